#pragma once
// Arguments and results of compile, fit, evaluate and predict.

#include <cstdint>
#include <initializer_list>
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
#include "tutti/tensor/static_nest.h"

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

/// x, y or sample_weight of Python's fit: one array, a list, or arrays by name. What is undefined
/// or left out is None.
class Arrays : public Nest {
 public:
  Arrays() = default;
  Arrays(const Tensor& array) : Nest(array.defined() ? Nest(array) : Nest()) {}  // NOLINT
  Arrays(Nest nest) : Nest(std::move(nest)) {}                                   // NOLINT
  Arrays(StringTensor strings) : Nest(std::move(strings)) {}                     // NOLINT
  Arrays(std::initializer_list<Tensor> list) : Arrays(std::vector<Tensor>(list)) {}
  Arrays(const std::vector<Tensor>& list) : Nest(to_nest(list)) {}                  // NOLINT
  Arrays(const std::map<std::string, Tensor>& by_name) : Nest(to_nest(by_name)) {}  // NOLINT
  Arrays(std::initializer_list<std::pair<const std::string, Tensor>> by_name)
      : Arrays(std::map<std::string, Tensor>(by_name)) {}
  template <class... Items>
  Arrays(const std::tuple<Items...>& items) : Nest(to_nest(items)) {}  // NOLINT
  bool defined() const { return kind() != NestKind::kNone; }
};

/// Something for each output of a model: one for all, a list in the order of the outputs, or by the
/// outputs' names. In a list or by name, what is left empty is not there.
template <class T>
class PerOutput {
 public:
  PerOutput() = default;
  template <class From>
  requires(std::convertible_to<From, T> && !std::same_as<std::decay_t<From>, PerOutput>)
      PerOutput(From&& all)  // NOLINT: `.loss = "mse"`
      : all_(T(std::forward<From>(all))) {}
  PerOutput(std::initializer_list<T> list) : list_(list), is_list_(true) {}
  PerOutput(std::vector<T> list) : list_(std::move(list)), is_list_(true) {}     // NOLINT
  PerOutput(std::map<std::string, T> by_name) : by_name_(std::move(by_name)) {}  // NOLINT
  PerOutput(std::initializer_list<std::pair<const std::string, T>> by_name) : by_name_(by_name) {}
  bool defined() const { return all_.has_value() || is_list_ || !by_name_.empty(); }
  const std::optional<T>& all() const { return all_; }
  bool is_list() const { return is_list_; }
  const std::vector<T>& list() const { return list_; }
  const std::map<std::string, T>& by_name() const { return by_name_; }

 private:
  std::optional<T> all_;
  std::vector<T> list_;
  bool is_list_ = false;
  std::map<std::string, T> by_name_;
};

/// The metrics of one output.
class MetricList : public std::vector<MetricSpec> {
 public:
  using std::vector<MetricSpec>::vector;
  template <class From>
  requires std::convertible_to<From, MetricSpec> MetricList(From&& one)  // NOLINT: `"accuracy"`
      : std::vector<MetricSpec>{MetricSpec(std::forward<From>(one))} {}
};

/// `{"accuracy", …}`: all metrics of the only output, or with several outputs one for each in their
/// order; `{{"output", {"accuracy"}}, …}`: by the outputs' names; std::vector<MetricList>: a list
/// for each output.
class Metrics {
 public:
  Metrics() = default;
  Metrics(std::initializer_list<MetricSpec> list) : list_(list) {}
  Metrics(std::vector<MetricSpec> list) : list_(std::move(list)) {}                     // NOLINT
  Metrics(std::vector<MetricList> lists) : lists_(std::move(lists)) {}                  // NOLINT
  Metrics(std::map<std::string, MetricList> by_name) : by_name_(std::move(by_name)) {}  // NOLINT
  Metrics(std::initializer_list<std::pair<const std::string, MetricList>> by_name)
      : by_name_(by_name) {}
  bool defined() const { return !list_.empty() || !lists_.empty() || !by_name_.empty(); }
  const std::vector<MetricSpec>& list() const { return list_; }
  const std::vector<MetricList>& lists() const { return lists_; }
  const std::map<std::string, MetricList>& by_name() const { return by_name_; }

 private:
  std::vector<MetricSpec> list_;
  std::vector<MetricList> lists_;
  std::map<std::string, MetricList> by_name_;
};

struct CompileOptions {
  optimizers::Optimizer optimizer = optimizers::RMSprop();
  /// One for every output, or for each its own: `"mse"`, `{"mse", "mae"}`, `{{"output", "mse"}}`. A
  /// mean (kNone too) is over the rows of the whole step, whatever each replica has of them. None
  /// at all suits a train_step of one's own.
  PerOutput<losses::Loss> loss = {};
  /// What each output's loss counts in the sum; 1 where nothing is said.
  PerOutput<double> loss_weights = {};
  Metrics metrics = {};
  /// Like metrics, but sample and class weights count.
  Metrics weighted_metrics = {};
  /// Taken for Keras' sake, without effect: Tutti always runs eagerly, and its own kernels are
  /// compiled already.
  bool run_eagerly = false;
  /// Optimizer steps between two calls of the batch hooks; evaluate and predict likewise.
  int64_t steps_per_execution = 1;
  /// Without effect, as run_eagerly.
  std::optional<bool> jit_compile = std::nullopt;
  /// Under the policy mixed_float16 (the global one, or that of a layer) a LossScaleOptimizer is
  /// put around the optimizer.
  bool auto_scale_loss = true;
};

/// Data to validate on: (x, y), (x, y, sample_weight), a dataset or a distributed one.
class ValidationData {
 public:
  using ArraysXYW = std::tuple<Arrays, Arrays, Arrays>;
  ValidationData() = default;
  ValidationData(Arrays x, Arrays y, Arrays sample_weight = {})
      : arrays_(ArraysXYW(std::move(x), std::move(y), std::move(sample_weight))) {}
  template <class X, class Y>
  ValidationData(const std::pair<X, Y>& data)  // NOLINT
      : ValidationData(Arrays(data.first), Arrays(data.second)) {}
  template <class X, class Y, class... Weight>
  requires(sizeof...(Weight) < 2) ValidationData(const std::tuple<X, Y, Weight...>& data)  // NOLINT
      : arrays_(std::apply(
            [](const auto& x, const auto& y, const auto&... weight) {
              return ArraysXYW(Arrays(x), Arrays(y), Arrays(weight...));
            },
            data)) {}
  template <class Element>
  ValidationData(const data::Dataset<Element>& dataset) : plan_(dataset.plan()) {}  // NOLINT
  template <class Element>
  ValidationData(const distribute::DistributedDataset<Element>& dataset)
      : distributed_(dataset.plan()) {}  // NOLINT

  bool defined() const {
    return arrays_.has_value() || plan_ != nullptr || distributed_ != nullptr;
  }
  const std::optional<ArraysXYW>& arrays() const { return arrays_; }
  const data::PlanPtr& plan() const { return plan_; }
  const std::shared_ptr<distribute::DistributedPlan>& distributed() const { return distributed_; }

 private:
  std::optional<ArraysXYW> arrays_;
  data::PlanPtr plan_;
  std::shared_ptr<distribute::DistributedPlan> distributed_;
};

/// How rows of arrays are mixed in each epoch: true: one by one; "batch": whole batches; false: not
/// at all. A dataset mixes itself: asking for it there is a warning.
class Shuffle {
 public:
  enum class Kind { kNone, kRows, kBatches };
  Shuffle() = default;
  Shuffle(bool rows) : kind_(rows ? Kind::kRows : Kind::kNone), given_(true) {}  // NOLINT
  /// InvalidArgument for another word than "batch".
  Shuffle(const char* word);  // NOLINT
  Kind kind() const { return kind_; }
  bool given() const { return given_; }

 private:
  Kind kind_ = Kind::kRows;
  bool given_ = false;
};

/// After which epochs fit validates: k: after every k-th; a list: after those, counted from 1.
class ValidationFrequency {
 public:
  ValidationFrequency(int64_t every = 1) : every_(every) {}  // NOLINT
  ValidationFrequency(std::initializer_list<int64_t> epochs)
      : ValidationFrequency(std::vector<int64_t>(epochs)) {}
  ValidationFrequency(std::vector<int64_t> epochs)
      : every_(0), epochs_(std::move(epochs)) {}  // NOLINT
  /// `epoch` from 0.
  bool is_due(int64_t epoch) const;
  /// InvalidArgument below 1.
  void check() const;

 private:
  int64_t every_;
  std::vector<int64_t> epochs_;
};

/// -1: the bar on a terminal, one line an epoch elsewhere; 0: nothing; 1: the bar; 2: one line an
/// epoch. Where something is printed, fit also logs (at `info`) how steps are made of rows and what
/// the loss divides by, and at its end the samples per second and the global step.
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
  Shuffle shuffle = {};
  /// Weight of each class' samples; 1 for those not named. Not together with sample_weight, and for
  /// one output only.
  std::map<int64_t, double> class_weight = {};
  Arrays sample_weight = {};
  int64_t initial_epoch = 0;
  /// Unset: until the data ends.
  std::optional<int64_t> steps_per_epoch = std::nullopt;
  std::optional<int64_t> validation_steps = std::nullopt;
  std::optional<int64_t> validation_batch_size = std::nullopt;
  ValidationFrequency validation_freq = 1;
};

struct EvaluateOptions {
  std::optional<int64_t> batch_size = std::nullopt;
  int verbose = kVerboseAuto;
  Arrays sample_weight = {};
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
