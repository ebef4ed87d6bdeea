// Each formula twice: as a loop over one dtype (loops.cpp), and by tensor operations, which is the
// oracle of the loop and the way on GPUs.

#include "keras/optimizers/rules.h"

#include <algorithm>
#include <cmath>

#include "keras/optimizers/loops.h"

namespace tutti::keras::optimizers {
namespace {

class SgdRule : public Rule {
 public:
  explicit SgdRule(const SGDOptions& options)
      : Rule(options.learning_rate, options.weight_decay),
        momentum_(options.momentum),
        nesterov_(options.nesterov) {}
  std::vector<std::string> slot_names() const override {
    return momentum_ != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  }
  bool is_identity_at_zero(bool decay) const override { return momentum_ == 0 && keep(decay) == 1; }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    if (momentum_ == 0) {
      w.sub_(g, rate_);
      return;
    }
    slots[0].mul_(momentum_).sub_(g, rate_);
    if (nesterov_) {
      w.add_(slots[0], momentum_).sub_(g, rate_);
    } else {
      w.add_(slots[0]);
    }
  }

 private:
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    const T rate = static_cast<T>(rate_);
    const T keep = static_cast<T>(Rule::keep(decay));
    if (momentum_ == 0) return run_sgd(w, g, n, rate, keep);
    if (nesterov_) return run_sgd_nesterov(w, g, s[0], n, rate, keep, static_cast<T>(momentum_));
    run_sgd_momentum(w, g, s[0], n, rate, keep, static_cast<T>(momentum_));
  }
  double momentum_;
  bool nesterov_;
};

class AdamRule : public Rule {
 public:
  explicit AdamRule(const AdamOptions& options)
      : Rule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override {
    if (options_.amsgrad) return {"momentum", "velocity", "velocity_hat"};
    return {"momentum", "velocity"};
  }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    alpha_ =
        rate_ * std::sqrt(1 - std::pow(options_.beta_2, t)) / (1 - std::pow(options_.beta_1, t));
    // Keras computes the correction in the variables' dtype: 1 - 0.999f^t differs from 1 - 0.999^t
    // in the fifth digit.
    const auto beta_1 = static_cast<float>(options_.beta_1);
    const auto beta_2 = static_cast<float>(options_.beta_2);
    const auto steps = static_cast<float>(t);
    alpha_single_ = static_cast<float>(rate_) * std::sqrt(1 - std::pow(beta_2, steps)) /
                    (1 - std::pow(beta_1, steps));
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.beta_1));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.beta_2));
    if (options_.amsgrad) slots[2].copy_(at::maximum(slots[2], slots[1]));
    w.sub_(slots[0] * (w.scalar_type() == at::kDouble ? alpha_ : alpha_single_) /
           (slots[options_.amsgrad ? 2 : 1].sqrt() + options_.epsilon));
  }

 private:
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    const AdamScalars<T> scalars{
        alpha<T>(), static_cast<T>(keep(decay)), static_cast<T>(1 - options_.beta_1),
        static_cast<T>(1 - options_.beta_2), static_cast<T>(options_.epsilon)};
    if (options_.amsgrad) {
      run_amsgrad(w, g, s[0], s[1], s[2], n, scalars);
    } else {
      run_adam(w, g, s[0], s[1], n, scalars);
    }
  }
  AdamOptions options_;
  template <class T>
  T alpha() const {
    return std::is_same_v<T, float> ? static_cast<T>(alpha_single_) : static_cast<T>(alpha_);
  }
  double alpha_ = 0;
  float alpha_single_ = 0;
};

class RmspropRule : public Rule {
 public:
  explicit RmspropRule(const RMSpropOptions& options)
      : Rule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names{"velocity"};
    if (options_.momentum > 0) names.push_back("momentum");
    if (options_.centered) names.push_back("average_gradient");
    return names;
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].mul_(options_.rho).add_(g.square(), 1 - options_.rho);
    Tensor denominator = slots[0] + options_.epsilon;
    if (options_.centered) {
      Tensor& mean = slots.back();
      mean.mul_(options_.rho).add_(g, 1 - options_.rho);
      denominator = denominator - mean.square();
    }
    Tensor step = g * rate_ * denominator.rsqrt();
    if (options_.momentum > 0) step = slots[1].mul_(options_.momentum).add_(step);
    w.sub_(step);
  }

 private:
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    const RmsScalars<T> scalars{static_cast<T>(rate_), static_cast<T>(keep(decay)),
                                static_cast<T>(options_.rho), static_cast<T>(options_.momentum),
                                static_cast<T>(options_.epsilon)};
    const bool moment = options_.momentum > 0;
    if (options_.centered && moment) return run_rmsprop_both(w, g, s[0], s[1], s[2], n, scalars);
    if (options_.centered) return run_rmsprop_centered(w, g, s[0], s[1], n, scalars);
    if (moment) return run_rmsprop_momentum(w, g, s[0], s[1], n, scalars);
    run_rmsprop(w, g, s[0], n, scalars);
  }
  RMSpropOptions options_;
};

class AdagradRule : public Rule {
 public:
  explicit AdagradRule(const AdagradOptions& options)
      : Rule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"accumulator"}; }
  bool is_identity_at_zero(bool decay) const override { return keep(decay) == 1; }
  double slot_initial_value() const override { return options_.initial_accumulator_value; }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    run_adagrad(w, g, s[0], n, static_cast<float>(rate_), static_cast<float>(keep(decay)),
                static_cast<float>(options_.epsilon));
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    run_adagrad(w, g, s[0], n, rate_, keep(decay), options_.epsilon);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_(g.square());
    w.sub_(g * rate_ / (slots[0] + options_.epsilon).sqrt());
  }

 private:
  AdagradOptions options_;
};

class AverageRule : public distribute::UpdateRule {
 public:
  AverageRule(std::shared_ptr<Rule> rule, const EmaOptions& options)
      : rule_(std::move(rule)), options_(options) {}
  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names = rule_->slot_names();
    names.emplace_back(kAverage);
    return names;
  }
  double slot_initial_value() const override { return rule_->slot_initial_value(); }
  void begin_step(int64_t iteration) override {
    rule_->begin_step(iteration);
    momentum_ = iteration == 0 ? 0 : options_.momentum;
    overwrite_ =
        options_.overwrite_frequency && (iteration + 1) % *options_.overwrite_frequency == 0;
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    run(w, g, s, n, decay);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    Tensor average = slots.back();
    slots.pop_back();  // the rule may look for its last one at the end
    rule_->update_tensors(w, g, slots, decay);
    average.mul_(momentum_).add_(w, 1 - momentum_);
    if (overwrite_) w.copy_(average);
    slots.push_back(average);
  }

 private:
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    rule_->update(w, g, s, n, decay);
    T* average = s[slots_];
    run_average(w, average, n, static_cast<T>(momentum_));
    if (overwrite_) std::copy_n(average, n, w);
  }
  std::shared_ptr<Rule> rule_;
  EmaOptions options_;
  std::size_t slots_ = rule_->slot_names().size();
  double momentum_ = 0;
  bool overwrite_ = false;
};

}  // namespace

std::shared_ptr<distribute::UpdateRule> with_average(std::shared_ptr<Rule> rule,
                                                     const EmaOptions& options) {
  return std::make_shared<AverageRule>(std::move(rule), options);
}
std::shared_ptr<Rule> make_rule(const SGDOptions& options) {
  return std::make_shared<SgdRule>(options);
}
std::shared_ptr<Rule> make_rule(const AdamOptions& options) {
  return std::make_shared<AdamRule>(options);
}
std::shared_ptr<Rule> make_rule(const RMSpropOptions& options) {
  return std::make_shared<RmspropRule>(options);
}
std::shared_ptr<Rule> make_rule(const AdagradOptions& options) {
  return std::make_shared<AdagradRule>(options);
}

}  // namespace tutti::keras::optimizers
