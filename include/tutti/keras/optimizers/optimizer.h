#pragma once
// What all optimizers have in common. Inside replicas gradients are added over the replicas first,
// then clipped, then applied once.
//
// `learning_rate` is a number or a schedule, which is asked once an update for the rate of
// iterations().
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
//
// `loss_scale_factor`: scale_loss multiplies by it, and gradients are divided by it before anything
// else.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/keras/schedules.h"

namespace tutti::keras::optimizers {

/// Which variables get no weight decay: those of the list, and those whose name contains one of the
/// names.
struct ExcludeFromWeightDecay {
  std::vector<Variable> var_list = {};
  std::vector<std::string> var_names = {};
};

/// A handle; copies share state. Usable by one strategy, that of its variables.
class Optimizer {
 public:
  class Impl;
  Optimizer() = default;
  Optimizer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// A class of optimizers.h in lower case ("adam"); InvalidArgument lists them for another name.
  Optimizer(const std::string& name);                            // NOLINT: `.optimizer = "adam"`
  Optimizer(const char* name) : Optimizer(std::string(name)) {}  // NOLINT

  /// Makes the slots. The first apply_gradients does it with its variables; a second call with
  /// other variables is FailedPrecondition.
  void build(const std::vector<Variable>& variables);
  /// One update. Inside replicas every replica calls it with its own gradients, which are added up
  /// (SUM); `skip_aggregation` says that they are equal already. Undefined gradients are skipped
  /// with one warning that names the variables; InvalidArgument when all are undefined or a
  /// variable is not among those it was built with. Variables with a constraint become what it
  /// makes of them.
  void apply_gradients(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
                       bool skip_aggregation = false);
  /// The same with gradients of sums, for losses with a denominator of their own (tokens, weights):
  /// the gradient is what all replicas and all calls of the update bring together, divided by the
  /// sum of all their `denominator`s (by 1 where that is 0). Inside replicas each gives its own.
  /// InvalidArgument: a denominator below 0 or not finite; calls of one update of which some are
  /// apply_gradients.
  void apply_gradient_sums(const std::vector<Tensor>& gradients,
                           const std::vector<Variable>& variables, double denominator);
  /// The loss of which the gradients must be taken: times the loss scale, when there is one.
  Tensor scale_loss(const Tensor& loss) const;

  /// Calls of apply_gradients so far: updates times gradient_accumulation_steps, and those since.
  int64_t gradient_steps() const;
  /// Calls since the last update; 0 without gradient_accumulation_steps.
  int64_t accumulated_steps() const;
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
  /// The weights become those to evaluate with: their average with use_ema, ScheduleFreeAdamW's
  /// mean of the steps; others stay. Outside replicas.
  void finalize_variable_values();
  /// Takes back what finalize_variable_values did to weights that are trained elsewhere than they
  /// are evaluated (ScheduleFreeAdamW); the next update does it too, but its gradients were taken
  /// before. `fit` begins with it. Outside replicas.
  void begin_training();

  /// Of the next update.
  double learning_rate() const;
  /// Between two updates. InvalidArgument for a number below 0, and for a number where there is a
  /// schedule: only another schedule may take its place.
  void set_learning_rate(const LearningRate& learning_rate);
  /// Updates made so far.
  int64_t iterations() const;
  void set_iterations(int64_t iterations);
  bool built() const;
  /// Those it was built with, in its order.
  std::vector<Variable> trainable_variables() const;
  /// What it remembers, by name: for each variable, in their order, without those that have no such
  /// slot; empty before build.
  std::vector<std::string> slot_names() const;
  std::vector<Variable> slots(const std::string& name) const;
  /// Adds to what was excluded before. Before build (FailedPrecondition).
  void exclude_from_weight_decay(const ExcludeFromWeightDecay& which);

  std::string class_name() const;
  std::string name() const;
  /// JSON object text with Keras' argument names; from_config makes the optimizer again.
  std::string config() const;
  static Optimizer from_config(const std::string& class_name, const std::string& config);
  bool defined() const { return impl_ != nullptr; }
  /// True for two handles of one optimizer.
  bool is_same(const Optimizer& other) const { return impl_ == other.impl_; }

 protected:
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

/// Arguments that every optimizer has at the end, in Keras' order.
#define TUTTI_OPTIMIZER_ARGUMENTS(default_name)                      \
  std::optional<double> clipnorm = std::nullopt;                     \
  std::optional<double> clipvalue = std::nullopt;                    \
  std::optional<double> global_clipnorm = std::nullopt;              \
  bool use_ema = false;                                              \
  double ema_momentum = 0.99;                                        \
  std::optional<int64_t> ema_overwrite_frequency = std::nullopt;     \
  std::optional<double> loss_scale_factor = std::nullopt;            \
  std::optional<int64_t> gradient_accumulation_steps = std::nullopt; \
  std::string name = default_name

}  // namespace tutti::keras::optimizers
