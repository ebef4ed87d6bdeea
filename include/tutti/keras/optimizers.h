#pragma once
// Optimizers with Keras' formulas. Inside replicas gradients are added over the replicas first,
// then clipped, then applied once.
//
// `gradient_accumulation_steps = k`: only every k-th call of apply_gradients updates, with the mean
// of the k gradients; until then each replica adds up its own, and nothing else changes. The k-th
// call adds the replicas' sums, clips, decays weights and updates: clipping sees the mean over the
// calls of the whole batch's gradients. iterations() counts updates. A replica that fails in a call
// leaves all of them as before it. Calls that bring unequal numbers of samples:
// apply_gradient_sums.
//
// `use_ema`: each update also moves an average of the weights, average = momentum average +
// (1 - momentum) weights (the weights themselves at the first), in the slot "average"; a variable
// without gradient keeps its average. Every `ema_overwrite_frequency` updates, and at the end of
// `fit`, the weights become the average.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/variable.h"
#include "tutti/tensor/trackable.h"

namespace tutti::keras::optimizers {

/// A handle; copies share state. Usable by one strategy, that of its variables.
class Optimizer {
 public:
  class Impl;
  Optimizer() = default;
  Optimizer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// "sgd", "adam", "adamw", "rmsprop", "adagrad"; InvalidArgument lists them for another name.
  Optimizer(const std::string& name);                            // NOLINT: `.optimizer = "adam"`
  Optimizer(const char* name) : Optimizer(std::string(name)) {}  // NOLINT

  /// Makes the slots. The first apply_gradients does it with its variables; a second call with
  /// other variables is FailedPrecondition.
  void build(const std::vector<Variable>& variables);
  /// One update. Inside replicas every replica calls it with its own gradients, which are added up
  /// (SUM); `skip_aggregation` says that they are equal already. Undefined gradients are skipped
  /// with one warning that names the variables; InvalidArgument when all are undefined or a
  /// variable is not among those it was built with.
  void apply_gradients(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
                       bool skip_aggregation = false);
  /// The same with gradients of sums, for losses with a denominator of their own (tokens, weights):
  /// the gradient is what all replicas and all calls of the update bring together, divided by the
  /// sum of all their `denominator`s (by 1 where that is 0). Inside replicas each gives its own.
  /// InvalidArgument: a denominator below 0 or not finite; calls of one update of which some are
  /// apply_gradients.
  void apply_gradient_sums(const std::vector<Tensor>& gradients,
                           const std::vector<Variable>& variables, double denominator);

  /// Calls of apply_gradients so far: updates times gradient_accumulation_steps, and those since.
  int64_t gradient_steps() const;
  /// With gradient_accumulation_steps: what the calls since the last update have added up, over the
  /// replicas, one a variable (undefined where there was no gradient); empty before build. Outside
  /// replicas.
  std::vector<Tensor> accumulated_gradients() const;
  /// The denominators that belong to them, added up; nothing when calls are what divides.
  std::optional<double> accumulated_denominator() const;
  /// Goes on as if the calls since the last update had been `calls` with these sums. After build,
  /// outside replicas; InvalidArgument for other shapes, or for as many calls as make an update.
  void set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                 std::optional<double> denominator = std::nullopt);
  /// The weights become their average, when there is one. Outside replicas.
  void finalize_variable_values();

  double learning_rate() const;
  void set_learning_rate(double learning_rate);
  /// Updates made so far.
  int64_t iterations() const;
  void set_iterations(int64_t iterations);
  bool built() const;
  /// Before build: `action` is called once, right after it, for all replicas. What it throws, the
  /// build throws, and the next step calls it again.
  void when_built(std::function<void(Optimizer&)> action);
  /// Those it was built with, in its order.
  std::vector<Variable> trainable_variables() const;
  /// The slots by name, in the order of the variables; empty before build.
  std::vector<std::string> slot_names() const;
  std::vector<Variable> slots(const std::string& name) const;
  /// Variables whose name contains one of `names` get no weight decay. Before build.
  void exclude_from_weight_decay(const std::vector<std::string>& names);

  std::string class_name() const;
  std::string name() const;
  /// JSON object text with Keras' argument names; from_config makes the optimizer again.
  std::string config() const;
  static Optimizer from_config(const std::string& class_name, const std::string& config);
  bool defined() const { return impl_ != nullptr; }

 protected:
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

/// The optimizer as a part of a train::Checkpoint: iterations, learning rate (unless a schedule says
/// it), slots, and the gradients that are accumulated towards the next update. One that is not
/// built takes them when it is. InvalidArgument for slots of another class or other options, and
/// when an optimizer that has made updates is given the state of one that had made none.
std::shared_ptr<Trackable> trackable(const Optimizer& optimizer);

struct SGDOptions {
  double learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> clipnorm = std::nullopt;
  std::optional<double> clipvalue = std::nullopt;
  std::optional<double> global_clipnorm = std::nullopt;
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = std::nullopt;
  std::optional<int64_t> gradient_accumulation_steps = std::nullopt;
  std::string name = "SGD";
};
/// v = momentum v - lr g; w += v (nesterov: w += momentum v - lr g).
class SGD : public Optimizer {
 public:
  explicit SGD(const SGDOptions& options = {});
};

struct AdamOptions {
  double learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> clipnorm = std::nullopt;
  std::optional<double> clipvalue = std::nullopt;
  std::optional<double> global_clipnorm = std::nullopt;
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = std::nullopt;
  std::optional<int64_t> gradient_accumulation_steps = std::nullopt;
  std::string name = "adam";
};
/// w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon).
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {});
};

struct AdamWOptions {
  double learning_rate = 0.001;
  double weight_decay = 0.004;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  std::optional<double> clipnorm = std::nullopt;
  std::optional<double> clipvalue = std::nullopt;
  std::optional<double> global_clipnorm = std::nullopt;
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = std::nullopt;
  std::optional<int64_t> gradient_accumulation_steps = std::nullopt;
  std::string name = "adamw";
};
/// Adam after w -= lr weight_decay w.
class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options = {});
};

struct RMSpropOptions {
  double learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> clipnorm = std::nullopt;
  std::optional<double> clipvalue = std::nullopt;
  std::optional<double> global_clipnorm = std::nullopt;
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = std::nullopt;
  std::optional<int64_t> gradient_accumulation_steps = std::nullopt;
  std::string name = "rmsprop";
};
/// v = rho v + (1 - rho) g^2; w -= lr g / sqrt(v + epsilon) (centered: v less the squared mean
/// gradient).
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const RMSpropOptions& options = {});
};

struct AdagradOptions {
  double learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> clipnorm = std::nullopt;
  std::optional<double> clipvalue = std::nullopt;
  std::optional<double> global_clipnorm = std::nullopt;
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency = std::nullopt;
  std::optional<int64_t> gradient_accumulation_steps = std::nullopt;
  std::string name = "adagrad";
};
/// a += g^2; w -= lr g / sqrt(a + epsilon).
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options = {});
};

}  // namespace tutti::keras::optimizers
