// What compile has set, in files: loss, metrics and optimizer with what it has learned.

#include <algorithm>

#include "distribute/variable_checkpoint.h"
#include "keras/optimizers/optimizer_impl.h"
#include "keras/saving/model_file.h"
#include "keras/saving/named_state.h"
#include "keras/saving/optimizer_state.h"
#include "keras/saving/weights_file.h"
#include "keras/training/training_state.h"

namespace tutti::keras {
namespace {

Json metric_list(const std::vector<MetricSpec>& specs) {
  Json list = Json::array();
  for (const MetricSpec& spec : specs) {
    if (spec.metric().defined()) {
      list.push_back(described(spec.metric()));
    } else {
      list.push_back(spec.name());
    }
  }
  return list;
}

/// A list for the only output or one metric an output; {"lists": …} or {"by_name": …} for several.
Json metric_specs(const Metrics& metrics) {
  Json lists = Json::array(), by_name = Json::object();
  for (const MetricList& list : metrics.lists()) lists.push_back(metric_list(list));
  for (const auto& [name, list] : metrics.by_name()) by_name[name] = metric_list(list);
  if (!lists.empty()) return {{"lists", lists}};
  if (!by_name.empty()) return {{"by_name", by_name}};
  return metric_list(metrics.list());
}

/// The maker of a class of the user's own, or of a function of theirs by its name; null: there is
/// none.
const CustomObject* custom_object(const CustomObjects& custom_objects, const Json& described) {
  for (const auto& name :
       {member<std::string>(described, "class_name", ""),
        member<std::string>(member<Json>(described, "config", Json::object()), "name", "")}) {
    const auto found = custom_objects.find(name);
    if (found != custom_objects.end()) return &found->second;
  }
  return nullptr;
}

class CompiledReader {
 public:
  explicit CompiledReader(const CustomObjects& custom_objects) : custom_(custom_objects) {}

  losses::Loss loss(const Json& json) const {
    if (json.is_null()) return {};
    const std::string config = member<Json>(json, "config", Json::object()).dump();
    const CustomObject* custom = custom_object(custom_, json);
    if (custom != nullptr && custom->make_loss) return custom->make_loss(config);
    return losses::Loss::from_config(member<std::string>(json, "class_name", ""), config);
  }
  Metrics metrics(const Json& json) const {
    if (!json.is_object()) return Metrics(static_cast<std::vector<MetricSpec>>(list(json)));
    std::vector<MetricList> lists;
    std::map<std::string, MetricList> by_name;
    for (const Json& each : member<Json>(json, "lists", Json::array())) lists.push_back(list(each));
    const Json named = member<Json>(json, "by_name", Json::object());
    for (const auto& [name, each] : named.items()) by_name[name] = list(each);
    return lists.empty() ? Metrics(std::move(by_name)) : Metrics(std::move(lists));
  }

 private:
  MetricList list(const Json& json) const {
    MetricList specs;
    for (const Json& item : json) {
      if (item.is_string()) {
        specs.emplace_back(item.get<std::string>());
      } else {
        specs.emplace_back(metric(item));
      }
    }
    return specs;
  }
  metrics::Metric metric(const Json& json) const {
    const std::string config = member<Json>(json, "config", Json::object()).dump();
    const CustomObject* custom = custom_object(custom_, json);
    if (custom != nullptr && custom->make_metric) return custom->make_metric(config);
    return metrics::Metric::from_config(member<std::string>(json, "class_name", ""), config);
  }
  const CustomObjects& custom_;
};

Json loss_json(const losses::Loss& loss) { return loss.defined() ? described(loss) : Json(); }

/// One for all; {"list": …} or {"by_name": …} for several outputs.
template <class T, class ToJson>
Json per_output_json(const PerOutput<T>& given, ToJson&& to_json) {
  if (given.all()) return to_json(*given.all());
  Json list = Json::array(), by_name = Json::object();
  for (const T& item : given.list()) list.push_back(to_json(item));
  for (const auto& [name, item] : given.by_name()) by_name[name] = to_json(item);
  if (given.is_list()) return {{"list", list}};
  return by_name.empty() ? Json() : Json{{"by_name", by_name}};
}

template <class T, class FromJson>
PerOutput<T> per_output_from(const Json& json, FromJson&& from_json) {
  if (json.is_null()) return {};
  if (json.is_object() && json.contains("list")) {
    std::vector<T> list;
    for (const Json& item : json["list"]) list.push_back(from_json(item));
    return list;
  }
  if (json.is_object() && json.contains("by_name")) {
    std::map<std::string, T> by_name;
    const Json named = member<Json>(json, "by_name", Json::object());
    for (const auto& [name, item] : named.items()) by_name.emplace(name, from_json(item));
    return by_name;
  }
  return from_json(json);
}

Json losses_json(const PerOutput<losses::Loss>& loss) { return per_output_json(loss, loss_json); }
Json weights_json(const PerOutput<double>& weights) {
  return per_output_json(weights, [](double weight) { return Json(weight); });
}
PerOutput<double> weights_from(const Json& json) {
  return per_output_from<double>(json, [](const Json& item) {
    if (!item.is_number())
      throw DataLoss("load_model: a loss weight that is no number; the file is damaged");
    return item.get<double>();
  });
}

/// Those of the model whose weights stand in the file under these names. The model's own names may
/// be others: "dense_1" of one program is "dense" of the next.
std::vector<Variable> variables_named(const Model& model, const std::vector<std::string>& names,
                                      const io::TensorFile& file, const std::string& path) {
  constexpr std::size_t kPrefix = sizeof("weights/") - 1;
  std::vector<std::string> in_file;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind("weights/", 0) == 0) in_file.push_back(name.substr(kPrefix));
  }
  const std::vector<Variable> weights = model.weights();
  std::vector<Variable> found;
  for (const std::string& name : names) {
    const auto at =
        static_cast<std::size_t>(std::find(in_file.begin(), in_file.end(), name) - in_file.begin());
    if (at >= std::min(in_file.size(), weights.size()) || !weights[at].trainable()) {
      throw DataLoss(cat("load_model [", path, "]: an optimizer with slots for \"", name,
                         "\", which is no such weight of the model; the file is damaged"));
    }
    found.push_back(weights[at]);
  }
  return found;
}

/// The names, in the file of the model's weights, of the variables that it was built with; in its
/// order.
std::vector<std::string> optimized(const Model& model, const optimizers::Optimizer& optimizer) {
  std::vector<std::string> names;
  const std::vector<Variable> variables = optimizer.trainable_variables();
  if (variables.empty()) return names;
  const std::vector<Variable> weights = model.weights();
  const std::vector<std::string> in_file = names_of(weights);
  for (const Variable& variable : variables) {
    const auto at = std::find_if(weights.begin(), weights.end(),
                                 [&](const Variable& weight) { return weight.is_same(variable); });
    names.push_back(at == weights.end() ? variable.name()
                                        : in_file[static_cast<std::size_t>(at - weights.begin())]);
  }
  return names;
}

void restore_accumulated(optimizers::Optimizer& optimizer, const Json& json,
                         const io::TensorFile& file, const std::string& path) {
  const auto calls = member<int64_t>(json, "accumulated_steps", 0);
  // An optimizer that lives on may have gradients of its own, which are none of the file's.
  const auto own = optimizer.accumulated_gradients();
  if (calls == 0 && own.empty()) return;
  std::optional<double> denominator;
  if (json.contains("accumulated_denominator"))
    denominator = member<double>(json, "accumulated_denominator", 0);

  const auto names = member<std::vector<std::string>>(json, "optimizer_variables", {});
  std::vector<Tensor> sums(optimizer.trainable_variables().size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (const auto& [name, tensor] : file.tensors) {
      if (i < names.size() && name == cat("accumulated/", names[i])) sums[i] = tensor;
    }
  }
  try {
    optimizer.set_accumulated_gradients(sums, calls, denominator);
  } catch (const Error& error) {
    throw DataLoss(cat("load_model [", path, "]: ", error.what(), "; the file is damaged"));
  }
}

}  // namespace

Json ModelFile::compiled_part(const Model& model) {
  const Model::Training& training = *model.training_;
  Json json = optimizer_part(model);
  json["optimizer"] = described(training.optimizer);
  json["loss"] = losses_json(training.loss);
  json["loss_weights"] = weights_json(training.loss_weights);
  json["metrics"] = metric_specs(training.metric_specs);
  json["weighted_metrics"] = metric_specs(training.weighted_metric_specs);
  json["steps_per_execution"] = training.steps_per_execution;
  json["auto_scale_loss"] = training.auto_scale_loss;
  return json;
}

Json ModelFile::optimizer_part(const Model& model) {
  const optimizers::Optimizer& optimizer = model.training_->optimizer;
  Json json{{"iterations", optimizer.iterations()},
            {"accumulated_steps", optimizer.accumulated_steps()},
            {"optimizer_variables", optimized(model, optimizer)}};
  if (const auto denominator = optimizer.accumulated_denominator())
    json["accumulated_denominator"] = *denominator;
  return json;
}

void ModelFile::put_slots(const Model& model, io::TensorFile& file) {
  const optimizers::Optimizer& optimizer = model.training_->optimizer;
  for (const std::string& slot : optimizer.slot_names()) {
    for (const Variable& variable : optimizer.slots(slot))
      file.tensors.emplace_back(cat("slots/", slot, "/", variable.name()),
                                tutti::internal::saved_value(variable));
  }
  if (optimizer.accumulated_steps() == 0) return;
  const std::vector<Tensor> sums = optimizer.accumulated_gradients();
  const std::vector<std::string> names = optimized(model, optimizer);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].defined()) file.tensors.emplace_back(cat("accumulated/", names[i]), sums[i]);
  }
}

void ModelFile::restore_compiled(Model& model, const Json& json, const io::TensorFile& file,
                                 const std::string& path, const CustomObjects& custom_objects) {
  const CompiledReader reader(custom_objects);
  CompileOptions options;
  const Json optimizer = member<Json>(json, "optimizer", Json::object());
  options.optimizer = optimizers::from_description(optimizer, custom_objects);
  options.loss = per_output_from<losses::Loss>(member<Json>(json, "loss", Json()),
                                               [&](const Json& item) { return reader.loss(item); });
  options.loss_weights = weights_from(member<Json>(json, "loss_weights", Json()));
  options.metrics = reader.metrics(member<Json>(json, "metrics", Json::array()));
  options.weighted_metrics = reader.metrics(member<Json>(json, "weighted_metrics", Json::array()));
  options.steps_per_execution = member<int64_t>(json, "steps_per_execution", 1);
  options.auto_scale_loss = member<bool>(json, "auto_scale_loss", true);
  model.compile(options);
  restore_optimizer(model, json, file, path);
}

void ModelFile::restore_optimizer(Model& model, const Json& json, const io::TensorFile& file,
                                  const std::string& path) {
  optimizers::Optimizer& made = model.optimizer();
  made.set_iterations(member<int64_t>(json, "iterations", 0));
  const auto names = member<std::vector<std::string>>(json, "optimizer_variables", {});
  if (names.empty() && count_tensors(file, "slots/") == 0) return;
  made.build(variables_named(model, names, file, path));
  for (const std::string& slot : made.slot_names()) {
    const std::vector<const Tensor*> values = tensors_under(file, cat("slots/", slot, "/"));
    const std::vector<Variable> variables = made.slots(slot);
    if (values.size() < variables.size())
      throw DataLoss(cat("load [", path, "]: ", values.size(), " tensors under slots/", slot,
                         "/, expected ", variables.size(), "; the file is damaged"));
    for (std::size_t i = 0; i < variables.size(); ++i)
      tutti::internal::restore_value(variables[i], *values[i]);
  }
  restore_accumulated(made, json, file, path);
}

Json put_optimizer(const Model& model, io::TensorFile& file) {
  ModelFile::put_slots(model, file);
  return ModelFile::optimizer_part(model);
}
void take_optimizer(Model& model, const Json& json, const io::TensorFile& file,
                    const std::string& path) {
  ModelFile::restore_optimizer(model, json, file, path);
}

std::optional<double> learning_rate_of(const optimizers::Optimizer& optimizer) {
  if (optimizer.class_name() == "MultiOptimizer") return std::nullopt;
  return optimizer.learning_rate();
}

}  // namespace tutti::keras
