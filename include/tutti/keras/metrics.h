#pragma once
// Metrics: state that is summed over batches and replicas, and a number made of it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/tensor/tensor.h"

namespace tutti::keras::metrics {

/// Which way is better: what callbacks with mode "auto" ask.
enum class Direction { kUnknown, kDown, kUp };

/// A handle; copies share the state. The state is made under the current strategy, one copy a
/// replica, and updated without communication or gradient; result() outside replicas is a function
/// of the summed state, so it is exact for any split of the data.
class Metric {
 public:
  class Impl;
  Metric() = default;
  Metric(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// Adds a batch. Weights count samples: one each, or of the values' own shape, or a scalar.
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;
  /// A float32 scalar; 0 when nothing was added.
  Tensor result() const;
  /// Outside replicas.
  void reset_state() const;
  const std::string& name() const;
  std::vector<Variable> variables() const;
  Direction direction() const;
  std::string class_name() const;
  std::string config() const;
  bool defined() const { return impl_ != nullptr; }
  static Metric from_config(const std::string& class_name, const std::string& config);

 protected:
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

/// By Keras' name ("accuracy", "mae", "sparse_categorical_accuracy", …), which the metric then
/// bears. "accuracy" (and "acc") is binary, sparse or categorical by the shapes of labels and
/// predictions. InvalidArgument lists the names.
Metric from_string(const std::string& name, at::IntArrayRef y_true_sizes,
                   at::IntArrayRef y_pred_sizes);
/// Throws when from_string would not know the name.
void check_name(const std::string& name);

/// Weighted mean of all values added.
class Mean : public Metric {
 public:
  explicit Mean(const std::string& name = "mean");
  using Metric::update_state;
  void update_state(const Tensor& values) const { update_values(values, {}); }
  void update_values(const Tensor& values, const Tensor& sample_weight) const;
};
class Sum : public Metric {
 public:
  explicit Sum(const std::string& name = "sum");
  using Metric::update_state;
  void update_state(const Tensor& values) const { update_values(values, {}); }
  void update_values(const Tensor& values, const Tensor& sample_weight) const;
};
/// Mean of `function(y_true, y_pred)`, one value a sample.
class MeanMetricWrapper : public Metric {
 public:
  MeanMetricWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                    const std::string& name);
};
/// Share of entries with y_true == y_pred.
class Accuracy : public Metric {
 public:
  explicit Accuracy(const std::string& name = "accuracy");
};
/// Share of entries whose prediction lies on the label's side of the threshold (strictly above is
/// 1).
class BinaryAccuracy : public Metric {
 public:
  explicit BinaryAccuracy(const std::string& name = "binary_accuracy", double threshold = 0.5);
};
/// One-hot labels; the first of equal predictions counts.
class CategoricalAccuracy : public Metric {
 public:
  explicit CategoricalAccuracy(const std::string& name = "categorical_accuracy");
};
/// Class numbers as labels.
class SparseCategoricalAccuracy : public Metric {
 public:
  explicit SparseCategoricalAccuracy(const std::string& name = "sparse_categorical_accuracy");
};
class MeanSquaredError : public Metric {
 public:
  explicit MeanSquaredError(const std::string& name = "mean_squared_error");
};
class MeanAbsoluteError : public Metric {
 public:
  explicit MeanAbsoluteError(const std::string& name = "mean_absolute_error");
};

}  // namespace tutti::keras::metrics
