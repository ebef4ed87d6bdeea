// Model::save and load_model: the architecture, the compiled parts and the optimizer as JSON, the
// numbers as tensors of the file.

#include <algorithm>

#include "distribute/variable_checkpoint.h"
#include "keras/json.h"
#include "keras/layers/config.h"
#include "keras/model/model_body.h"
#include "keras/saving/optimizer_state.h"
#include "keras/training/training_state.h"
#include "tutti/base/log.h"
#include "tutti/io/tensor_file.h"
#include "tutti/keras/layers.h"

namespace tutti::keras {
namespace {

constexpr int kFormatVersion = 1;

template <class Part>
Json described(const Part& part) {
  return {{"class_name", part.class_name()}, {"config", Json::parse(part.config())}};
}

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

MetricList metric_list_from(const Json& list) {
  MetricList specs;
  for (const Json& item : list) {
    if (item.is_string()) {
      specs.emplace_back(item.get<std::string>());
    } else {
      specs.emplace_back(
          metrics::Metric::from_config(member<std::string>(item, "class_name", ""),
                                       member<Json>(item, "config", Json::object()).dump()));
    }
  }
  return specs;
}

/// A variable that the replicas have each their own of, where the file has the first one's.
void warn_of_own_statistics(const Model& model, const Variable& weight) {
  if (weight.aggregation() != VariableAggregation::kOnlyFirstReplica) return;
  const std::vector<Tensor> components = weight.components();
  for (const Tensor& component : components) {
    if (at::equal(component.cpu(), components[0].cpu())) continue;
    log_once(LogLevel::kWarning, cat("keras/save/", model.name()),
             cat("save [", model.name(), "]: ", weight.name(),
                 " differs between replicas, and the file has the first one's, while evaluate and "
                 "predict use each replica's own; for numbers that agree with the file call "
                 "model.set_weights(model.get_weights()) first, or make the layer with "
                 "synchronized = true"));
    return;
  }
}

Metrics metrics_from(const Json& json) {
  if (!json.is_object()) return Metrics(std::vector<MetricSpec>(metric_list_from(json)));
  std::vector<MetricList> lists;
  std::map<std::string, MetricList> by_name;
  const Json several = member<Json>(json, "lists", Json::array());
  const Json named = member<Json>(json, "by_name", Json::object());
  for (const Json& list : several) lists.push_back(metric_list_from(list));
  for (const auto& [name, list] : named.items()) by_name[name] = metric_list_from(list);
  return lists.empty() ? Metrics(std::move(by_name)) : Metrics(std::move(lists));
}

Json loss_json(const losses::Loss& loss) { return loss.defined() ? described(loss) : Json(); }

losses::Loss loss_from(const Json& json) {
  if (json.is_null()) return {};
  return losses::Loss::from_config(member<std::string>(json, "class_name", ""),
                                   member<Json>(json, "config", Json::object()).dump());
}

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
PerOutput<losses::Loss> losses_from(const Json& json) {
  return per_output_from<losses::Loss>(json, loss_from);
}
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

/// Weights are saved once, in the user's layout; ON_READ ones as their aggregate.
void put_weights(const Model& model, io::TensorFile& file) {
  for (const Variable& weight : model.weights()) {
    warn_of_own_statistics(model, weight);
    file.tensors.emplace_back(cat("weights/", weight.name()), tutti::internal::saved_value(weight));
  }
}

const Tensor& find_tensor(const io::TensorFile& file, const std::string& path, std::size_t index,
                          const std::string& prefix) {
  std::size_t at = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind(prefix, 0) == 0 && at++ == index) return tensor;
  }
  throw DataLoss(cat("load [", path, "]: ", at, " tensors under ", prefix,
                     ", expected more; the file is damaged"));
}

std::size_t count_tensors(const io::TensorFile& file, const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& [name, tensor] : file.tensors) count += name.rfind(prefix, 0) == 0 ? 1 : 0;
  return count;
}

}  // namespace

void take_weights(Model& model, const io::TensorFile& file, const std::string& path) {
  const std::size_t count = count_tensors(file, "weights/");
  if (count != model.weights().size()) {
    throw InvalidArgument(cat("load_weights [", path, "]: ", count, " weights for a model with ",
                              model.weights().size(),
                              ", expected the same architecture; nothing was changed"));
  }
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(find_tensor(file, path, i, "weights/"));
  model.set_weights(values);
}

namespace {

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

/// No weight may be larger than the largest in the file, so that a false description takes no
/// memory.
layers::LayerLimits limits_of(const io::TensorFile& file) {
  layers::LayerLimits limits;
  limits.weight_entries = 0;
  for (const auto& [name, tensor] : file.tensors)
    limits.weight_entries = std::max(limits.weight_entries, tensor.numel());
  return limits;
}

std::vector<layers::Layer> layers_from(const Json& json, const io::TensorFile& file,
                                       const std::string& path) {
  const Json described = member<Json>(json, "layers", Json::array());
  if (!described.is_array() || described.empty()) {
    throw DataLoss(cat("load_model [", path, "]: no list of layers; the file is damaged"));
  }
  std::vector<layers::Layer> layers;
  for (const Json& layer : described) {
    const auto class_name = member<std::string>(layer, "class_name", "");
    if (class_name.empty()) {
      throw DataLoss(cat("load_model [", path, "]: a layer without class; the file is damaged"));
    }
    layers.push_back(layers::layer_from_json(
        class_name, member<Json>(layer, "config", Json::object()), limits_of(file)));
  }
  return layers;
}

/// null for one tensor, "list", or the keys of a map.
Json structure_json(const SymbolicNest& nest) {
  if (nest.is_leaf()) return Json();
  return nest.kind() == NestKind::kMap ? Json(nest.keys()) : Json("list");
}

SymbolicNest in_structure(const Json& structure, const std::vector<KerasTensor>& tensors,
                          const std::string& path) {
  if (structure.is_null() && tensors.size() == 1) return tensors[0];
  if (structure.is_string()) return tensors;
  std::map<std::string, KerasTensor> by_name;
  if (structure.is_array() && structure.size() == tensors.size()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (structure[i].is_string()) by_name.emplace(structure[i].get<std::string>(), tensors[i]);
    }
  }
  if (by_name.size() != tensors.size())
    throw DataLoss(cat("load_model [", path,
                       "]: inputs or outputs that do not fit their names; "
                       "the file is damaged"));
  return by_name;
}

}  // namespace

/// Reads and writes what of a model is private.
struct ModelFile {
  static Json functional_part(const Functional& model) {
    return {{"model", Json::parse(model.graph_->config())},
            {"inputs", structure_json(model.inputs())},
            {"outputs", structure_json(model.outputs())}};
  }
  static std::unique_ptr<Model> functional_from(const Json& json, const io::TensorFile& file,
                                                const std::string& path) {
    const layers::Layer layer = layers::layer_from_json(
        "Functional", member<Json>(json, "model", Json::object()), limits_of(file));
    auto graph = std::dynamic_pointer_cast<FunctionalBody>(layer.impl());
    const SymbolicNest inputs =
        in_structure(member<Json>(json, "inputs", Json()), graph->inputs(), path);
    const SymbolicNest outputs =
        in_structure(member<Json>(json, "outputs", Json()), graph->outputs(), path);
    return std::unique_ptr<Model>(new Functional(std::move(graph), inputs, outputs));
  }
  static Json compiled_part(const Model& model) {
    const Model::Training& training = *model.training_;
    Json json = optimizer_part(training.optimizer);
    json["optimizer"] = described(training.optimizer);
    json["loss"] = losses_json(training.loss);
    json["loss_weights"] = weights_json(training.loss_weights);
    json["metrics"] = metric_specs(training.metric_specs);
    json["weighted_metrics"] = metric_specs(training.weighted_metric_specs);
    json["steps_per_execution"] = training.steps_per_execution;
    return json;
  }
  static Json optimizer_part(const optimizers::Optimizer& optimizer) {
    Json json{{"iterations", optimizer.iterations()},
              {"accumulated_steps", optimizer.accumulated_steps()},
              {"optimizer_variables", optimized(optimizer)}};
    if (const auto denominator = optimizer.accumulated_denominator())
      json["accumulated_denominator"] = *denominator;
    return json;
  }
  /// Names of the variables that it was built with, in its order.
  static Json optimized(const optimizers::Optimizer& optimizer) {
    Json names = Json::array();
    for (const Variable& variable : optimizer.trainable_variables())
      names.push_back(variable.name());
    return names;
  }
  static void put_slots(const Model& model, io::TensorFile& file) {
    const optimizers::Optimizer& optimizer = model.training_->optimizer;
    for (const std::string& slot : optimizer.slot_names()) {
      for (const Variable& variable : optimizer.slots(slot))
        file.tensors.emplace_back(cat("slots/", slot, "/", variable.name()),
                                  tutti::internal::saved_value(variable));
    }
    if (optimizer.accumulated_steps() == 0) return;
    const std::vector<Tensor> sums = optimizer.accumulated_gradients();
    const std::vector<Variable> variables = optimizer.trainable_variables();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].defined())
        file.tensors.emplace_back(cat("accumulated/", variables[i].name()), sums[i]);
    }
  }
  static void restore_accumulated(optimizers::Optimizer& optimizer, const Json& json,
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
  static void restore_compiled(Model& model, const Json& json, const io::TensorFile& file,
                               const std::string& path) {
    CompileOptions options;
    const Json optimizer = member<Json>(json, "optimizer", Json::object());
    options.optimizer = optimizers::Optimizer::from_config(
        member<std::string>(optimizer, "class_name", ""),
        member<Json>(optimizer, "config", Json::object()).dump());
    options.loss = losses_from(member<Json>(json, "loss", Json()));
    options.loss_weights = weights_from(member<Json>(json, "loss_weights", Json()));
    options.metrics = metrics_from(member<Json>(json, "metrics", Json::array()));
    options.weighted_metrics = metrics_from(member<Json>(json, "weighted_metrics", Json::array()));
    options.steps_per_execution = member<int64_t>(json, "steps_per_execution", 1);
    model.compile(options);
    restore_optimizer(model, json, file, path);
  }
  static void restore_optimizer(Model& model, const Json& json, const io::TensorFile& file,
                                const std::string& path) {
    optimizers::Optimizer& made = model.optimizer();
    made.set_iterations(member<int64_t>(json, "iterations", 0));
    const auto names = member<std::vector<std::string>>(json, "optimizer_variables", {});
    if (names.empty() && count_tensors(file, "slots/") == 0) return;
    made.build(variables_named(model, names, file, path));
    for (const std::string& slot : made.slot_names()) {
      std::size_t index = 0;
      for (const Variable& variable : made.slots(slot)) {
        const Tensor& value = find_tensor(file, path, index++, cat("slots/", slot, "/"));
        tutti::internal::restore_value(variable, value);
      }
    }
    restore_accumulated(made, json, file, path);
  }
};

Json put_optimizer(const Model& model, io::TensorFile& file) {
  ModelFile::put_slots(model, file);
  return ModelFile::optimizer_part(const_cast<Model&>(model).optimizer());
}
void take_optimizer(Model& model, const Json& json, const io::TensorFile& file,
                    const std::string& path) {
  ModelFile::restore_optimizer(model, json, file, path);
}

std::optional<double> learning_rate_of(const optimizers::Optimizer& optimizer) {
  if (optimizer.class_name() == "MultiOptimizer") return std::nullopt;
  return optimizer.learning_rate();
}

namespace {
/// Every replica would do it, on one file.
void check_outside_replicas(const char* operation, const std::string& path) {
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || replica->strategy().is_default()) return;
  throw FailedPrecondition(cat(operation, " [", path, "]: called inside replica ",
                               replica->replica_id_in_sync_group(),
                               ", expected outside; call it between two runs, once for all"));
}
}  // namespace

void Model::save_weights(const std::string& path) const {
  check_outside_replicas("save_weights", path);
  io::TensorFile file{Json{{"format", kFormatVersion}, {"kind", "weights"}}.dump(), {}};
  put_weights(*this, file);
  io::write_tensor_file(path, file);
}

void Model::load_weights(const std::string& path) {
  check_outside_replicas("load_weights", path);
  take_weights(*this, io::read_tensor_file(path), path);
}

void Model::save(const std::string& path) const {
  check_outside_replicas("save", path);
  const auto* sequential = dynamic_cast<const Sequential*>(this);
  const auto* functional = dynamic_cast<const Functional*>(this);
  if (sequential == nullptr && functional == nullptr) {
    throw Unimplemented(cat("save [", name(),
                            "]: a model of a class of your own has no description, expected a "
                            "Sequential or Functional; use save_weights"));
  }
  io::TensorFile file;
  put_weights(*this, file);
  Json json{{"format", kFormatVersion}, {"name", name()}};
  if (sequential != nullptr) {
    json["kind"] = "sequential";
    json["layers"] = layers_json(this->layers());
    json["input_shape"] = sequential->input_shape();
  } else {
    json["kind"] = "functional";
    json.update(ModelFile::functional_part(*functional));
  }
  if (compiled()) {
    json["compiled"] = ModelFile::compiled_part(*this);
    ModelFile::put_slots(*this, file);
  }
  file.metadata =
      json.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name need not be UTF-8
  io::write_tensor_file(path, file);
}

std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options) {
  check_outside_replicas("load_model", path);
  const io::TensorFile file = io::read_tensor_file(path);
  const Json json = parse_object(cat("load_model [", path, "]"), file.metadata);
  const auto kind = member<std::string>(json, "kind", "");
  if ((kind != "sequential" && kind != "functional") ||
      member<int>(json, "format", 0) != kFormatVersion) {
    throw InvalidArgument(cat("load_model [", path, "]: a file of kind \"", kind, "\" and format ",
                              member<int>(json, "format", 0), ", expected a model of format ",
                              kFormatVersion, "; weights are read by load_weights"));
  }
  std::unique_ptr<Model> model;
  if (kind == "functional") {
    model = ModelFile::functional_from(json, file, path);
  } else {
    model = std::make_unique<Sequential>(
        layers_from(json, file, path),
        SequentialOptions{.name = member<std::string>(json, "name", "")});
    model->build(member<layers::Shape>(json, "input_shape", {}));
  }
  take_weights(*model, file, path);
  if (options.compile && json.contains("compiled"))
    ModelFile::restore_compiled(*model, json["compiled"], file, path);
  return model;
}

}  // namespace tutti::keras
