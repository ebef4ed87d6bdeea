// metrics.json: the result after each batch, the state after the last one, the result after a
// reset; without weights and with one a row.

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using keras::metrics::Metric;

struct MetricCase {
  const GoldenFile& file;
  const Json& inputs;
  Verdict& verdict;

  Metric metric() const {
    return Metric::from_config(inputs.at("class"), inputs.value("args", Json::object()).dump());
  }

  void update(const Metric& metric, std::size_t batch, bool weighted) const {
    const Json& batches = file.resolve(inputs.at("batches"));
    const auto tensors = file.tensors(batches.at(batch));
    const at::Tensor weight =
        weighted ? file.tensor(file.resolve(inputs.at("weights")).at(batch)) : at::Tensor();
    metric.update_state(tensors[0], tensors.size() > 1 ? tensors[1] : at::Tensor(), weight);
  }

  /// Keys are names, with `#k` behind those that follow.
  void compare_state(const Metric& metric, const std::string& what, const Json& expected) const {
    const auto variables = metric.variables();
    if (variables.size() != expected.size())
      return verdict.fail(
          cat(what, ": ", variables.size(), " variables, expected ", expected.size()));
    for (const auto& [key, value] : expected.items()) {
      const auto parts = split(key, '#');
      const std::size_t index = parts.size() > 1 ? std::stoul(parts[1]) : 0;
      const Variable& variable = variables[index];
      if (variable.name() != cat(metric.name(), "/", parts[0]))
        verdict.fail(cat(what, ": variable ", index, " is ", variable.name(), ", expected ", key));
      const at::Tensor wanted = file.tensor(value);
      if (variable.dtype() != wanted.scalar_type())
        verdict.fail(cat(what, " ", key, ": dtype ", c10::toString(variable.dtype())));
      verdict.close(cat(what, " ", key), variable.read_value(), wanted);
    }
  }

  void compare(const std::string& weighing, const Json& expected) const {
    const Metric own = metric();
    if (own.name() != expected.at("name").get<std::string>())
      verdict.fail(cat("the name is ", own.name()));
    const Json& results = expected.at("result_after_batch");
    for (std::size_t batch = 0; batch < results.size(); ++batch) {
      update(own, batch, weighing == "row_weight");
      verdict.close(cat(weighing, " after batch ", batch), own.result(),
                    file.tensor(results.at(batch)));
    }
    if (expected.contains("variables")) compare_state(own, weighing, expected.at("variables"));
    own.reset_state();
    if (!verdict.differs(cat(weighing, "/result_after_reset"))) {
      verdict.close(cat(weighing, " after reset"), own.result(),
                    file.tensor(expected.at("result_after_reset")));
    }
  }
};

}  // namespace

void run_metric_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const MetricCase own{file, entry.at("inputs"), verdict};
  const Json& expected = entry.at("expected");
  if (expected.contains("result")) {
    verdict.close("before any update", own.metric().result(), file.tensor(expected.at("result")));
    return;
  }
  for (const auto& [weighing, value] : expected.items()) own.compare(weighing, value);
}

}  // namespace tutti::golden
