#pragma once
// The formulas of the optimizers as rules of the fused pass.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tutti/distribute/fused_update.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {

/// What every rule has: the learning rate, which may be set between steps, and decoupled weight
/// decay (w -= lr * decay * w first).
class Rule : public distribute::UpdateRule {
 public:
  Rule(double learning_rate, std::optional<double> weight_decay)
      : learning_rate_(learning_rate), weight_decay_(weight_decay.value_or(0)) {}
  double learning_rate() const { return learning_rate_.load(std::memory_order_relaxed); }
  void set_learning_rate(double rate) { learning_rate_.store(rate, std::memory_order_relaxed); }
  void begin_step(int64_t iteration) override { rate_ = learning_rate(); }

 protected:
  /// Factor of the weights before the update.
  double keep(bool decay) const { return decay ? 1 - rate_ * weight_decay_ : 1; }
  double rate_ = 0;  ///< of the step under way

 private:
  std::atomic<double> learning_rate_;
  double weight_decay_;
};

/// The arguments of the average of the weights; `use_ema` is set.
struct EmaOptions {
  double momentum = 0.99;
  std::optional<int64_t> overwrite_frequency = std::nullopt;
};
/// Name of the slot that holds it.
inline constexpr const char* kAverage = "average";
/// `rule`, and after it in the same pass the average of the weights, in a last slot.
std::shared_ptr<distribute::UpdateRule> with_average(std::shared_ptr<Rule> rule,
                                                     const EmaOptions& options);

std::shared_ptr<Rule> make_rule(const SGDOptions& options);
std::shared_ptr<Rule> make_rule(const AdamOptions& options);
std::shared_ptr<Rule> make_rule(const RMSpropOptions& options);
std::shared_ptr<Rule> make_rule(const AdagradOptions& options);

}  // namespace tutti::keras::optimizers
