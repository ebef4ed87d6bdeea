#pragma once
// Arguments and results of compile, fit, evaluate and predict.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/distribute/distributed_dataset.h"
#include "tutti/keras/callbacks.h"
#include "tutti/keras/losses.h"
#include "tutti/keras/metrics.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras {

/// A metric, or the name of one, which then decides by the first batch's shapes.
class MetricSpec {
 public:
  MetricSpec(const char* name) : name_(name) {}             // NOLINT: `.metrics = {"accuracy"}`
  MetricSpec(std::string name) : name_(std::move(name)) {}  // NOLINT
  MetricSpec(metrics::Metric metric) : metric_(std::move(metric)) {}  // NOLINT
  const std::string& name() const { return metric_.defined() ? metric_.name() : name_; }
  const metrics::Metric& metric() const { return metric_; }

 private:
  std::string name_;
  metrics::Metric metric_;
};

struct CompileOptions {
  optimizers::Optimizer optimizer = optimizers::RMSprop();
  /// A mean (kNone too) is over the rows of the whole step, whatever each replica has of them.
  losses::Loss loss = {};
  std::vector<MetricSpec> metrics = {};
  /// Like metrics, but sample and class weights count.
  std::vector<MetricSpec> weighted_metrics = {};
  /// Optimizer steps between two calls of the batch hooks.
  int64_t steps_per_execution = 1;
  /// Under the policy mixed_float16 (the global one, or that of a layer) a LossScaleOptimizer is
  /// put around the optimizer.
  bool auto_scale_loss = true;
};

/// Data to validate on: (x, y), (x, y, sample_weight), a dataset or a distributed one.
class ValidationData {
 public:
  ValidationData() = default;
  ValidationData(std::pair<Tensor, Tensor> data)
      : arrays_(std::tuple(data.first, data.second, Tensor())) {}  // NOLINT
  ValidationData(std::tuple<Tensor, Tensor> data)                  // NOLINT
      : arrays_(std::tuple(std::get<0>(data), std::get<1>(data), Tensor())) {}
  ValidationData(std::tuple<Tensor, Tensor, Tensor> data) : arrays_(std::move(data)) {}  // NOLINT
  template <class Element>
  ValidationData(const data::Dataset<Element>& dataset) : plan_(dataset.plan()) {}  // NOLINT
  template <class Element>
  ValidationData(const distribute::DistributedDataset<Element>& dataset)
      : distributed_(dataset.plan()) {}  // NOLINT

  bool defined() const {
    return arrays_.has_value() || plan_ != nullptr || distributed_ != nullptr;
  }
  const std::optional<std::tuple<Tensor, Tensor, Tensor>>& arrays() const { return arrays_; }
  const data::PlanPtr& plan() const { return plan_; }
  const std::shared_ptr<distribute::DistributedPlan>& distributed() const { return distributed_; }

 private:
  std::optional<std::tuple<Tensor, Tensor, Tensor>> arrays_;
  data::PlanPtr plan_;
  std::shared_ptr<distribute::DistributedPlan> distributed_;
};

/// -1: the bar on a terminal, one line an epoch elsewhere; 0: nothing; 1: the bar; 2: one line an
/// epoch.
inline constexpr int kVerboseAuto = -1;

struct FitOptions {
  /// Rows of a step over all replicas; unset: 32. Arrays only.
  std::optional<int64_t> batch_size = std::nullopt;
  /// Index of the last epoch + 1.
  int64_t epochs = 1;
  int verbose = kVerboseAuto;
  std::vector<callbacks::AnyCallback> callbacks = {};
  /// Share of the arrays, at their end, that is validated on instead of trained on.
  double validation_split = 0;
  ValidationData validation_data = {};
  bool shuffle = true;
  /// Weight of each class' samples; 1 for those not named.
  std::map<int64_t, double> class_weight = {};
  Tensor sample_weight = {};
  int64_t initial_epoch = 0;
  /// Unset: until the data ends.
  std::optional<int64_t> steps_per_epoch = std::nullopt;
  std::optional<int64_t> validation_steps = std::nullopt;
  std::optional<int64_t> validation_batch_size = std::nullopt;
  /// Validation after every so many epochs.
  int64_t validation_freq = 1;
};

struct EvaluateOptions {
  std::optional<int64_t> batch_size = std::nullopt;
  int verbose = kVerboseAuto;
  Tensor sample_weight = {};
  std::optional<int64_t> steps = std::nullopt;
  std::vector<callbacks::AnyCallback> callbacks = {};
};

struct PredictOptions {
  std::optional<int64_t> batch_size = std::nullopt;
  int verbose = kVerboseAuto;
  std::optional<int64_t> steps = std::nullopt;
  std::vector<callbacks::AnyCallback> callbacks = {};
};

}  // namespace tutti::keras
