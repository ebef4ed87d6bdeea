#pragma once
// Optimizers around other optimizers.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/keras/optimizers/optimizer.h"

namespace tutti::keras::optimizers {

struct LossScaleOptimizerOptions {
  double initial_scale = 32768;
  int64_t dynamic_growth_steps = 2000;
  std::string name = "loss_scale_optimizer";
};
/// Keeps small gradients of half precision from becoming 0: the loss is multiplied by a scale, the
/// gradients are divided by it. A step whose gradients, added over the replicas, are not all finite
/// is left out by all replicas together (iterations() stays) and halves the scale, down to 1;
/// `dynamic_growth_steps` finite steps in a row double it.
///
///     GradientTape tape;
///     Tensor loss = optimizer.scale_loss(compute_loss(…));
///     optimizer.apply_gradients(tape.gradient(loss, variables), variables);
///
/// Slots: the inner optimizer's, "step_counter" and "dynamic_scale". Its learning rate, clipping,
/// averages and accumulation are the inner optimizer's, whose own loss_scale_factor is set aside.
class LossScaleOptimizer : public Optimizer {
 public:
  /// InvalidArgument for an inner optimizer that scales already.
  explicit LossScaleOptimizer(const Optimizer& inner_optimizer,
                              const LossScaleOptimizerOptions& options = {});
  /// The one that `optimizer` is (as a model's is under mixed_float16); InvalidArgument for another
  /// class.
  static LossScaleOptimizer of(const Optimizer& optimizer);

  Optimizer inner_optimizer() const;
  double dynamic_scale() const;
  /// Finite steps since the scale last changed.
  int64_t step_counter() const;
  /// tf.keras' names for loops that take the scale back themselves: this replica's next
  /// apply_gradients takes its gradients as they are. Every replica does it alike.
  Tensor get_scaled_loss(const Tensor& loss) const { return scale_loss(loss); }
  std::vector<Tensor> get_unscaled_gradients(const std::vector<Tensor>& gradients) const;

 private:
  explicit LossScaleOptimizer(std::shared_ptr<Impl> impl) : Optimizer(std::move(impl)) {}
};

/// Which optimizer a variable has: that of its own name, else that of the one pattern (a regular
/// expression) that its whole name matches, else the default.
class OptimizerMap {
 public:
  explicit OptimizerMap(const Optimizer& default_optimizer,
                        const std::map<std::string, Optimizer>& optimizer_map = {});
  const Optimizer& default_optimizer() const { return default_; }
  /// InvalidArgument for a key that is there, that is no regular expression, and for optimizers
  /// around others.
  void insert(const std::string& key, const Optimizer& optimizer);
  /// InvalidArgument when several patterns match.
  const Optimizer& at(const std::string& variable_name) const;
  const std::map<std::string, Optimizer>& items() const { return map_; }

 private:
  Optimizer default_;
  std::map<std::string, Optimizer> map_;
};

struct MultiOptimizerOptions {
  std::optional<double> loss_scale_factor = std::nullopt;
  std::string name = "multi_optimizer";
};
/// An optimizer for each variable. Each is asked for its own variables, clips over these alone and
/// counts its own updates; a group without any gradient in a step is left alone. Slots lie
/// optimizer after optimizer. There is no one learning rate: learning_rate() and set_learning_rate
/// are InvalidArgument, ask optimizers(). With gradient_accumulation_steps all of them have the
/// same (InvalidArgument).
class MultiOptimizer : public Optimizer {
 public:
  explicit MultiOptimizer(const OptimizerMap& optimizer_map,
                          const MultiOptimizerOptions& options = {});
  /// Asked once for each variable, when it is built. Such an optimizer cannot be saved
  /// (Unimplemented).
  explicit MultiOptimizer(std::function<Optimizer(const Variable&)> optimizer_of,
                          const MultiOptimizerOptions& options = {});
  /// Those that have variables, in the order in which the variables name them. Before build those
  /// of the map.
  std::vector<Optimizer> optimizers() const;
};

}  // namespace tutti::keras::optimizers
