// Adam and its kin: two moments and what corrects their bias, which Keras computes in the
// variables' dtype.

#include <algorithm>
#include <cmath>

#include "keras/optimizers/loops.h"
#include "keras/optimizers/rules.h"
#include "tutti/tensor/flat_buffer.h"

namespace tutti::keras::optimizers {
namespace {

/// 1 - beta^t as T computes it.
template <class T>
T unbiased(double beta, double t) {
  return 1 - std::pow(static_cast<T>(beta), static_cast<T>(t));
}
bool is_double(const Tensor& tensor) { return tensor.scalar_type() == at::kDouble; }

class AdamRule : public LoopRule<AdamRule> {
 public:
  explicit AdamRule(const AdamOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override {
    if (options_.amsgrad) return {"momentum", "velocity", "velocity_hat"};
    return {"momentum", "velocity"};
  }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    set(scalars_.single, t);
    set(scalars_.full, t);
  }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    AdamScalars<T> scalars = scalars_.of<T>();
    scalars.keep = static_cast<T>(keep(decay));
    if (options_.amsgrad) {
      run_amsgrad(w, g, s[0], s[1], s[2], n, scalars);
    } else {
      run_adam(w, g, s[0], s[1], n, scalars);
    }
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.beta_1));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.beta_2));
    if (options_.amsgrad) slots[2].copy_(at::maximum(slots[2], slots[1]));
    w.sub_(slots[0] * (is_double(w) ? scalars_.full.alpha : scalars_.single.alpha) /
           (slots[options_.amsgrad ? 2 : 1].sqrt() + options_.epsilon));
  }

 private:
  template <class T>
  void set(AdamScalars<T>& scalars, double t) const {
    scalars.alpha = static_cast<T>(rate_) * std::sqrt(unbiased<T>(options_.beta_2, t)) /
                    unbiased<T>(options_.beta_1, t);
    scalars.rest_1 = static_cast<T>(1 - options_.beta_1);
    scalars.rest_2 = static_cast<T>(1 - options_.beta_2);
    scalars.epsilon = static_cast<T>(options_.epsilon);
  }
  AdamOptions options_;
  BothDtypes<AdamScalars> scalars_;
};

class AdamaxRule : public LoopRule<AdamaxRule> {
 public:
  explicit AdamaxRule(const AdamaxOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"momentum", "norm"}; }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    set(scalars_.single, t);
    set(scalars_.full, t);
  }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    AdamaxScalars<T> scalars = scalars_.of<T>();
    scalars.keep = static_cast<T>(keep(decay));
    run_adamax(w, g, s[0], s[1], n, scalars);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.beta_1));
    slots[1].copy_(at::maximum(slots[1] * options_.beta_2, g.abs()));
    w.sub_(slots[0] * (is_double(w) ? scalars_.full.rate : scalars_.single.rate) /
           (slots[1] + options_.epsilon));
  }

 private:
  template <class T>
  void set(AdamaxScalars<T>& scalars, double t) const {
    scalars.rate = static_cast<T>(rate_) / unbiased<T>(options_.beta_1, t);
    scalars.rest_1 = static_cast<T>(1 - options_.beta_1);
    scalars.beta_2 = static_cast<T>(options_.beta_2);
    scalars.epsilon = static_cast<T>(options_.epsilon);
  }
  AdamaxOptions options_;
  BothDtypes<AdamaxScalars> scalars_;
};

/// The product of the momentum's schedule is a function of the number of updates: nothing to save.
/// It is carried from step to step, and made anew where the number jumps.
class NadamRule : public LoopRule<NadamRule> {
 public:
  explicit NadamRule(const NadamOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"momentum", "velocity"}; }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    if (iteration + 1 < steps_) {
      steps_ = 0;
      product_single_ = 1;
      product_ = 1;
    }
    for (; steps_ < iteration + 1; ++steps_) {
      const auto t = static_cast<double>(steps_ + 1);
      product_single_ *= momentum<float>(t);
      product_ *= momentum<double>(t);
      if (product_ == 0) steps_ = iteration;  // and it stays so
    }
    const auto t = static_cast<double>(iteration + 1);
    set(scalars_.single, t, product_single_);
    set(scalars_.full, t, product_);
  }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    NadamScalars<T> scalars = scalars_.of<T>();
    scalars.keep = static_cast<T>(keep(decay));
    run_nadam(w, g, s[0], s[1], n, scalars);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.beta_1));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.beta_2));
    if (is_double(w)) {
      step(w, g, slots, scalars_.full);
    } else {
      step(w, g, slots, scalars_.single);
    }
  }

 private:
  template <class T>
  T momentum(double t) const {
    return static_cast<T>(options_.beta_1) *
           (1 - T(0.5) * std::pow(static_cast<T>(0.96), static_cast<T>(t)));
  }
  template <class T>
  void set(NadamScalars<T>& scalars, double t, T product) const {
    const T next = momentum<T>(t + 1);
    scalars.rate = static_cast<T>(rate_);
    scalars.rest_1 = static_cast<T>(1 - options_.beta_1);
    scalars.rest_2 = static_cast<T>(1 - options_.beta_2);
    scalars.epsilon = static_cast<T>(options_.epsilon);
    scalars.next = next / (1 - product * next);
    scalars.now = (1 - momentum<T>(t)) / (1 - product);
    scalars.unbias = 1 / unbiased<T>(options_.beta_2, t);
  }
  template <class T>
  void step(Tensor& w, const Tensor& g, const std::vector<Tensor>& slots,
            const NadamScalars<T>& s) const {
    w.sub_((slots[0] * s.next + g * s.now) * s.rate /
           ((slots[1] * s.unbias).sqrt() + options_.epsilon));
  }
  NadamOptions options_;
  BothDtypes<NadamScalars> scalars_;
  int64_t steps_ = 0;  // that the products are of
  float product_single_ = 1;
  double product_ = 1;
};

class ScheduleFreeRule : public LoopRule<ScheduleFreeRule> {
 public:
  explicit ScheduleFreeRule(const ScheduleFreeAdamWOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"momentum", "velocity"}; }
  Tensor initial_slot(std::size_t slot, std::size_t /*variable*/,
                      const Tensor& weights) const override {
    Tensor initial = zeros_like_dense(weights);
    return slot == 0 ? initial.copy_(weights) : initial;
  }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    set(scalars_.single, t);
    set(scalars_.full, t);
  }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    ScheduleFreeScalars<T> scalars = scalars_.of<T>();
    scalars.keep = static_cast<T>(keep(decay));
    run_schedule_free(w, g, s[0], s[1], n, scalars);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.beta_2));
    const Tensor mean = to_evaluate(w, slots);
    if (is_double(w)) {
      step(w, g, mean, slots, scalars_.full);
    } else {
      step(w, g, mean, slots, scalars_.single);
    }
  }
  bool trains_elsewhere() const override { return true; }
  Tensor to_evaluate(const Tensor& weights, const std::vector<Tensor>& slots) const override {
    return (weights - slots[0] * (1 - options_.beta_1)) / options_.beta_1;
  }
  Tensor to_train(const Tensor& weights, const std::vector<Tensor>& slots) const override {
    return slots[0] * (1 - options_.beta_1) + weights * options_.beta_1;
  }

 private:
  template <class T>
  void set(ScheduleFreeScalars<T>& scalars, double t) const {
    scalars.rate = static_cast<T>(rate_);
    if (options_.warmup_steps > 0) {
      scalars.rate *=
          std::min(static_cast<T>(t) / static_cast<T>(options_.warmup_steps), static_cast<T>(1));
    }
    scalars.beta_1 = static_cast<T>(options_.beta_1);
    scalars.rest_2 = static_cast<T>(1 - options_.beta_2);
    scalars.epsilon = static_cast<T>(options_.epsilon);
    scalars.unbias = 1 / unbiased<T>(options_.beta_2, t);
    scalars.weight = 1 / static_cast<T>(t);
  }
  template <class T>
  void step(Tensor& w, const Tensor& g, const Tensor& mean, std::vector<Tensor>& slots,
            const ScheduleFreeScalars<T>& s) const {
    slots[0].sub_(g * s.rate / ((slots[1] * s.unbias).sqrt() + options_.epsilon));
    const Tensor moved = mean * (1 - s.weight) + slots[0] * s.weight;
    w.copy_(slots[0] * (1 - options_.beta_1) + moved * options_.beta_1);
  }
  ScheduleFreeAdamWOptions options_;
  BothDtypes<ScheduleFreeScalars> scalars_;
};

}  // namespace

std::shared_ptr<Rule> make_rule(const AdamOptions& options) {
  return std::make_shared<AdamRule>(options);
}
std::shared_ptr<Rule> make_rule(const AdamWOptions& options) {
  return std::make_shared<AdamRule>(AdamOptions{.learning_rate = options.learning_rate,
                                                .beta_1 = options.beta_1,
                                                .beta_2 = options.beta_2,
                                                .epsilon = options.epsilon,
                                                .amsgrad = options.amsgrad,
                                                .weight_decay = options.weight_decay});
}
std::shared_ptr<Rule> make_rule(const AdamaxOptions& options) {
  return std::make_shared<AdamaxRule>(options);
}
std::shared_ptr<Rule> make_rule(const NadamOptions& options) {
  return std::make_shared<NadamRule>(options);
}
std::shared_ptr<Rule> make_rule(const ScheduleFreeAdamWOptions& options) {
  return std::make_shared<ScheduleFreeRule>(options);
}

}  // namespace tutti::keras::optimizers
