#pragma once
// The formulas of the optimizers as rules of the fused pass.

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/distribute/fused_update.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {

/// What every rule has: the learning rate, which may be set between steps, and decoupled weight
/// decay (w -= lr * decay * w first).
class Rule : public distribute::UpdateRule {
 public:
  Rule(const LearningRate& learning_rate, std::optional<double> weight_decay)
      : schedule_(learning_rate.schedule()),
        number_(schedule_ ? 0 : learning_rate.at(0)),
        weight_decay_(weight_decay.value_or(0)) {}
  double learning_rate(int64_t iteration) const {
    return schedule_ ? (*schedule_)(iteration) : number_.load(std::memory_order_relaxed);
  }
  const std::shared_ptr<const schedules::LearningRateSchedule>& schedule() const {
    return schedule_;
  }
  void set_learning_rate(const LearningRate& rate) {
    schedule_ = rate.schedule();
    if (!schedule_) number_.store(rate.at(0), std::memory_order_relaxed);
  }
  void begin_step(int64_t iteration) override { rate_ = learning_rate(iteration); }

  /// What weights to evaluate with are made of, by tensors of one component; the default has none.
  virtual bool trains_elsewhere() const { return false; }
  virtual Tensor to_evaluate(const Tensor& weights, const std::vector<Tensor>& slots) const {
    return weights;
  }
  virtual Tensor to_train(const Tensor& weights, const std::vector<Tensor>& slots) const {
    return weights;
  }

 protected:
  /// Factor of the weights before the update.
  double keep(bool decay) const { return decay ? 1 - rate_ * weight_decay_ : 1; }
  double weight_decay() const { return weight_decay_; }
  double rate_ = 0;  ///< of the step under way

 private:
  std::shared_ptr<const schedules::LearningRateSchedule> schedule_;
  std::atomic<double> number_;
  double weight_decay_;
};

/// A rule whose class has `template <class T> void run(T* weights, const T* gradients, T* const*
/// slots, int64_t n, bool decay) const`.
template <class Class>
class LoopRule : public Rule {
 public:
  using Rule::Rule;
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    static_cast<const Class*>(this)->run(w, g, s, n, decay);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    static_cast<const Class*>(this)->run(w, g, s, n, decay);
  }
};

/// What Keras computes once an update in the variables' dtype: 1 - 0.999f^t differs from 1 -
/// 0.999^t in the fifth digit.
template <template <class> class Scalars>
struct BothDtypes {
  Scalars<float> single{};
  Scalars<double> full{};
  template <class T>
  const Scalars<T>& of() const {
    if constexpr (std::is_same_v<T, float>) {
      return single;
    } else {
      return full;
    }
  }
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
std::shared_ptr<Rule> make_rule(const RMSpropOptions& options);
std::shared_ptr<Rule> make_rule(const AdamOptions& options);
std::shared_ptr<Rule> make_rule(const AdamWOptions& options);
std::shared_ptr<Rule> make_rule(const AdamaxOptions& options);
std::shared_ptr<Rule> make_rule(const NadamOptions& options);
std::shared_ptr<Rule> make_rule(const AdagradOptions& options);
std::shared_ptr<Rule> make_rule(const AdadeltaOptions& options);
std::shared_ptr<Rule> make_rule(const FtrlOptions& options);
std::shared_ptr<Rule> make_rule(const LionOptions& options);
std::shared_ptr<Rule> make_rule(const LambOptions& options);
std::shared_ptr<Rule> make_rule(const AdafactorOptions& options);
std::shared_ptr<Rule> make_rule(const MuonOptions& options);
std::shared_ptr<Rule> make_rule(const ScheduleFreeAdamWOptions& options);

}  // namespace tutti::keras::optimizers
