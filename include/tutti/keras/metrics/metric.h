#pragma once
// Metrics: state that is summed over batches and replicas, and numbers made of it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/tensor/tensor.h"

namespace tutti::keras::metrics {

/// Which way is better: what callbacks with mode "auto" ask.
enum class Direction { kUnknown, kDown, kUp };

/// A handle; copies share the state. The state is made under the current strategy, one copy a
/// replica, and updated without communication or gradient; result() outside replicas is a function
/// of the summed state, so it is exact for any split of the data.
///
/// A metric whose state has the size of its data (F1Score, R2Score, AUC with multi_label) makes it
/// at the first update, under the strategy current there; inside replicas all of them must make
/// that update.
class Metric {
 public:
  class Impl;
  Metric() = default;
  Metric(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// Adds a batch. Weights count samples: one each, or of the values' own shape, or a scalar.
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;
  /// A float32 scalar, or a vector where the metric has one number a class or a threshold; 0 when
  /// nothing was added.
  Tensor result() const;
  /// What logs show: the result, the mean of a vector. (Keras' progress bar shows that mean; its
  /// History keeps the vector.)
  double log_value() const;
  /// Outside replicas.
  void reset_state() const;
  const std::string& name() const;
  std::vector<Variable> variables() const;
  Direction direction() const;
  std::string class_name() const;
  std::string config() const;
  bool defined() const { return impl_ != nullptr; }
  /// From class_name() and config(). InvalidArgument for a class that is not Tutti's, and for
  /// functions and metrics of a user's own: compile with them anew.
  static Metric from_config(const std::string& class_name, const std::string& config);

 protected:
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

/// Base of every metric; a user's own derives from it and is given to `compile` as
/// `Metric(std::make_shared<Own>())`.
///
/// Replica threads update at the same time, each its own copy of the variables: nothing else may
/// change in update_state. What result() needs must be a function of the sums over all samples.
class Metric::Impl {
 public:
  explicit Impl(std::string name, Direction direction = Direction::kUnknown)
      : name_(std::move(name)), direction_(direction) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  virtual std::string class_name() const = 0;
  /// JSON object text of the arguments; the default has the name.
  virtual std::string config() const;
  /// False for a metric of values, which come as y_true.
  virtual bool takes_predictions() const { return true; }
  /// Makes state that hangs on shapes, after defer_build(): called once, before the first update.
  virtual void build(at::IntArrayRef y_true_sizes, at::IntArrayRef y_pred_sizes);
  /// Adds a batch to the variables with assign_add, in every call to all of them. Gradient is off.
  virtual void update_state(const Tensor& y_true, const Tensor& y_pred,
                            const Tensor& sample_weight) = 0;
  /// Of the variables' read_value(), which outside replicas is summed over them. Not called before
  /// build().
  virtual Tensor result() const = 0;

  const std::string& name() const { return name_; }
  Direction direction() const { return direction_; }
  const std::vector<Variable>& variables() const { return variables_; }
  bool built() const { return built_; }
  /// build(), by one thread for all replicas.
  void build_once(at::IntArrayRef y_true_sizes, at::IntArrayRef y_pred_sizes);

 protected:
  /// A variable of zeros, ON_READ and SUM, named `<metric>/<name>`. In constructors and in build().
  Variable add_variable(const std::string& name, at::IntArrayRef shape,
                        at::ScalarType dtype = at::kFloat);
  /// In a constructor: the state waits for the first batch's shapes.
  void defer_build() { built_ = false; }

 private:
  std::string name_;
  Direction direction_;
  std::vector<Variable> variables_;
  bool built_ = true;
};

/// By Keras' name, which the metric then bears: a class ("MeanSquaredError"), the same in
/// snake_case ("mean_squared_error", "auc", "precision", "f1_score"), or a short form ("mse",
/// "mae", "mape", "msle", "bce", "kld"). "accuracy" ("acc") and "crossentropy" ("ce") are binary,
/// sparse or categorical by the shapes of labels and predictions. InvalidArgument lists the names,
/// or names the argument that a class cannot do without.
Metric from_string(const std::string& name, at::IntArrayRef y_true_sizes,
                   at::IntArrayRef y_pred_sizes);
/// The same without shapes and with the class' own name: "accuracy" is Accuracy, the share of equal
/// entries.
Metric get(const std::string& name);
/// Throws when from_string would.
void check_name(const std::string& name);

}  // namespace tutti::keras::metrics
