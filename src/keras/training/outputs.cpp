// Which loss, weight, metrics and labels belong to which output of a model.

#include <algorithm>
#include <map>

#include "keras/training/training_state.h"

namespace tutti::keras {
namespace {

std::vector<std::string> names_of(const std::vector<OutputTraining>& outputs) {
  std::vector<std::string> names;
  for (const OutputTraining& output : outputs) names.push_back(output.name);
  return names;
}

[[noreturn]] void refuse(const Model& model, const char* what, const std::string& found,
                         const std::vector<OutputTraining>& outputs) {
  throw InvalidArgument(cat("compile [", model.name(), "]: ", what, " ", found, ", expected ",
                            outputs.size() == 1
                                ? std::string("for one output")
                                : cat("for the outputs ", join(names_of(outputs), ", "))));
}

template <class T>
void check_names(const Model& model, const char* what, const std::map<std::string, T>& by_name,
                 const std::vector<OutputTraining>& outputs) {
  for (const auto& [name, unused] : by_name) {
    const bool known =
        std::any_of(outputs.begin(), outputs.end(),
                    [&](const OutputTraining& output) { return output.name == name; });
    if (!known) refuse(model, what, cat("for \"", name, "\""), outputs);
  }
}

/// `fallback` where nothing is said.
template <class T>
T pick(const Model& model, const char* what, const PerOutput<T>& given, T fallback,
       const std::vector<OutputTraining>& outputs, std::size_t index) {
  if (given.all()) return *given.all();
  if (given.is_list()) {
    if (given.list().size() != outputs.size())
      refuse(model, what, cat("in a list of ", given.list().size()), outputs);
    return given.list()[index];
  }
  check_names(model, what, given.by_name(), outputs);
  const auto found = given.by_name().find(outputs[index].name);
  return found == given.by_name().end() ? fallback : found->second;
}

}  // namespace

std::vector<OutputTraining> outputs_of(const Model& model, const PerOutput<losses::Loss>& loss,
                                       const PerOutput<double>& loss_weights, const Nest& y_pred) {
  const std::size_t count = y_pred.is_leaf() ? 1 : flatten(y_pred).size();
  std::vector<std::string> names = model.output_names();
  if (names.size() != count) names = y_pred.kind() == NestKind::kMap ? y_pred.keys() : names;
  std::vector<OutputTraining> outputs(count);
  for (std::size_t i = 0; i < count; ++i) {
    outputs[i].name = names.size() == count ? names[i] : cat("output_", i + 1);
  }
  for (std::size_t i = 0; i < count; ++i) {
    outputs[i].loss = pick(model, "losses", loss, losses::Loss(), outputs, i);
    outputs[i].weight = pick(model, "loss_weights", loss_weights, 1.0, outputs, i);
  }
  return outputs;
}

void Model::Training::know_outputs(const Model& model, const Nest& y_pred) {
  if (!outputs.empty()) return;
  std::vector<OutputTraining> found = outputs_of(model, loss, loss_weights, y_pred);
  for (std::size_t i = 0; i < found.size(); ++i) {  // says now what does not fit
    metrics_of(model, metric_specs, found, i);
    metrics_of(model, weighted_metric_specs, found, i);
  }
  outputs = std::move(found);
}

void Model::Training::make_loss_metrics() {
  loss_metric.emplace("loss");
  const auto with_loss =
      std::count_if(outputs.begin(), outputs.end(),
                    [](const OutputTraining& output) { return output.loss.defined(); });
  if (with_loss < 2) return;
  for (OutputTraining& output : outputs) {
    if (output.loss.defined()) output.loss_metric.emplace(cat(output.name, "_loss"));
  }
}

/// As Keras: an equal name gets "weighted_" in front where the metric is weighted, and "_1", "_2",
/// … behind where it is still equal to another one.
void Model::Training::name_metrics() {
  named_metrics.clear();
  std::map<std::string, int> numbers;
  const auto add = [&](std::string name, const metrics::Metric& metric) {
    const std::string first = name;
    while (numbers.count(name) > 0) name = cat(first, "_", numbers[first]++);
    numbers.emplace(name, 1);
    named_metrics.emplace_back(std::move(name), metric);
  };
  const auto prefix_of = [&](const OutputTraining& output) {
    return outputs.size() > 1 ? cat(output.name, "_") : std::string();
  };
  for (const OutputTraining& output : outputs) {
    for (const metrics::Metric& metric : output.metrics)
      add(cat(prefix_of(output), metric.name()), metric);
  }
  for (const OutputTraining& output : outputs) {
    for (const metrics::Metric& metric : output.weighted_metrics) {
      const bool again = numbers.count(cat(prefix_of(output), metric.name())) > 0;
      add(cat(prefix_of(output), again ? "weighted_" : "", metric.name()), metric);
    }
  }
}

std::vector<MetricSpec> metrics_of(const Model& model, const Metrics& metrics,
                                   const std::vector<OutputTraining>& outputs, std::size_t index) {
  if (!metrics.lists().empty()) {
    if (metrics.lists().size() != outputs.size())
      refuse(model, "metrics", cat("in ", metrics.lists().size(), " lists"), outputs);
    return metrics.lists()[index];
  }
  if (!metrics.by_name().empty()) {
    check_names(model, "metrics", metrics.by_name(), outputs);
    const auto found = metrics.by_name().find(outputs[index].name);
    return found == metrics.by_name().end() ? MetricList() : found->second;
  }
  if (metrics.list().empty() || outputs.size() == 1) return metrics.list();
  if (metrics.list().size() != outputs.size())
    refuse(model, "metrics", cat("in a list of ", metrics.list().size()), outputs);
  return {metrics.list()[index]};
}

Tensor part_of(const Nest& nest, const std::vector<OutputTraining>& outputs, std::size_t index) {
  if (nest.kind() == NestKind::kNone) return {};
  if (nest.is_leaf()) return nest.leaf();
  if (nest.kind() == NestKind::kNone) return {};
  if (nest.kind() == NestKind::kMap) {
    const auto& keys = nest.keys();
    const auto at = std::find(keys.begin(), keys.end(), outputs[index].name);
    if (at == keys.end()) return {};
    const Nest& item = nest.items()[static_cast<std::size_t>(at - keys.begin())];
    return item.is_leaf() ? item.leaf() : Tensor();
  }
  if (nest.size() != outputs.size())
    throw InvalidArgument(cat("labels: ", nest.structure(), " for ", outputs.size(), " outputs (",
                              join(names_of(outputs), ", "), "), expected one part each"));
  return nest.items()[index].is_leaf() ? nest.items()[index].leaf() : Tensor();
}

}  // namespace tutti::keras
