// SGD, RMSprop, Adagrad, Adadelta, Ftrl, Lion, and the average of the weights. Each formula twice:
// as a loop over one dtype (loops.cpp), and by tensor operations, which is the oracle of the loop
// and the way on GPUs.

#include "keras/optimizers/rules.h"

#include <algorithm>
#include <cmath>

#include "keras/optimizers/loops.h"
#include "tutti/tensor/flat_buffer.h"

namespace tutti::keras::optimizers {
namespace {

class SgdRule : public LoopRule<SgdRule> {
 public:
  explicit SgdRule(const SGDOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay),
        momentum_(options.momentum),
        nesterov_(options.nesterov) {}
  std::vector<std::string> slot_names() const override {
    return momentum_ != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  }
  bool is_identity_at_zero(bool decay) const override { return momentum_ == 0 && keep(decay) == 1; }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    const T rate = static_cast<T>(rate_);
    const T keep = static_cast<T>(Rule::keep(decay));
    if (momentum_ == 0) return run_sgd(w, g, n, rate, keep);
    if (nesterov_) return run_sgd_nesterov(w, g, s[0], n, rate, keep, static_cast<T>(momentum_));
    run_sgd_momentum(w, g, s[0], n, rate, keep, static_cast<T>(momentum_));
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
  double momentum_;
  bool nesterov_;
};

class RmspropRule : public LoopRule<RmspropRule> {
 public:
  explicit RmspropRule(const RMSpropOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names{"velocity"};
    if (options_.momentum > 0) names.push_back("momentum");
    if (options_.centered) names.push_back("average_gradient");
    return names;
  }
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
  RMSpropOptions options_;
};

class AdagradRule : public LoopRule<AdagradRule> {
 public:
  explicit AdagradRule(const AdagradOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"accumulator"}; }
  bool is_identity_at_zero(bool decay) const override { return keep(decay) == 1; }
  double slot_initial_value() const override { return options_.initial_accumulator_value; }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    run_adagrad(w, g, s[0], n, static_cast<T>(rate_), static_cast<T>(keep(decay)),
                static_cast<T>(options_.epsilon));
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

class AdadeltaRule : public LoopRule<AdadeltaRule> {
 public:
  explicit AdadeltaRule(const AdadeltaOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay),
        rho_(options.rho),
        epsilon_(options.epsilon) {}
  std::vector<std::string> slot_names() const override {
    return {"accumulated_grad", "accumulated_delta_var"};
  }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    run_adadelta(w, g, s[0], s[1], n,
                 AdadeltaScalars<T>{static_cast<T>(rate_), static_cast<T>(keep(decay)),
                                    static_cast<T>(rho_), static_cast<T>(epsilon_)});
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].mul_(rho_).add_(g.square(), 1 - rho_);
    const Tensor step = (slots[1] + epsilon_).sqrt() * g / (slots[0] + epsilon_).sqrt();
    slots[1].mul_(rho_).add_(step.square(), 1 - rho_);
    w.sub_(step, rate_);
  }

 private:
  double rho_;
  double epsilon_;
};

class FtrlRule : public LoopRule<FtrlRule> {
 public:
  explicit FtrlRule(const FtrlOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"accumulator", "linear"}; }
  Tensor initial_slot(std::size_t slot, std::size_t /*variable*/,
                      const Tensor& weights) const override {
    Tensor initial = zeros_like_dense(weights);
    if (slot == 0) initial.fill_(options_.initial_accumulator_value);
    return initial;
  }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    const FtrlScalars<T> scalars{static_cast<T>(rate_),
                                 static_cast<T>(keep(decay)),
                                 static_cast<T>(options_.l1_regularization_strength),
                                 static_cast<T>(l2()),
                                 static_cast<T>(2 * options_.l2_shrinkage_regularization_strength),
                                 static_cast<T>(-options_.learning_rate_power)};
    if (options_.learning_rate_power == -0.5) return run_ftrl_root(w, g, s[0], s[1], n, scalars);
    run_ftrl(w, g, s[0], s[1], n, scalars);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    const double power = -options_.learning_rate_power;
    const double l1 = options_.l1_regularization_strength;
    w.mul_(keep(decay));
    const Tensor sum = slots[0] + g.square();
    const Tensor now = sum.pow(power);
    slots[1]
        .add_(g)
        .add_(w, 2 * options_.l2_shrinkage_regularization_strength)
        .sub_((now - slots[0].pow(power)) / rate_ * w);
    w.copy_((slots[1].clamp(-l1, l1) - slots[1]) / (now / rate_ + l2()));
    slots[0].copy_(sum);
  }

 private:
  double l2() const {
    return 2 * (options_.l2_regularization_strength + options_.beta / (2 * rate_));
  }
  FtrlOptions options_;
};

class LionRule : public LoopRule<LionRule> {
 public:
  explicit LionRule(const LionOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay),
        beta_1_(options.beta_1),
        beta_2_(options.beta_2) {}
  std::vector<std::string> slot_names() const override { return {"momentum"}; }
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    run_lion(w, g, s[0], n,
             LionScalars<T>{static_cast<T>(rate_), static_cast<T>(keep(decay)),
                            static_cast<T>(beta_1_), static_cast<T>(beta_2_)});
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    w.sub_((slots[0] * beta_1_ + g * (1 - beta_1_)).sign(), rate_);
    slots[0].mul_(beta_2_).add_(g, 1 - beta_2_);
  }

 private:
  double beta_1_;
  double beta_2_;
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
  void bind(const std::vector<Variable>& variables) override { rule_->bind(variables); }
  Tensor initial_slot(std::size_t slot, std::size_t variable,
                      const Tensor& weights) const override {
    if (slot < slots_) return rule_->initial_slot(slot, variable, weights);
    return zeros_like_dense(weights).copy_(weights);
  }
  bool needs_whole(std::size_t variable) const override { return rule_->needs_whole(variable); }
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
  void update_whole(std::size_t variable, Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                    bool decay) const override {
    Tensor average = slots.back();
    slots.pop_back();
    rule_->update_whole(variable, w, g, slots, decay);
    move(w, average);
    slots.push_back(average);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    Tensor average = slots.back();
    slots.pop_back();  // the rule may look for its last one at the end
    rule_->update_tensors(w, g, slots, decay);
    move(w, average);
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
  void move(Tensor& w, Tensor& average) const {
    average.mul_(momentum_).add_(w, 1 - momentum_);
    if (overwrite_) w.copy_(average);
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
std::shared_ptr<Rule> make_rule(const RMSpropOptions& options) {
  return std::make_shared<RmspropRule>(options);
}
std::shared_ptr<Rule> make_rule(const AdagradOptions& options) {
  return std::make_shared<AdagradRule>(options);
}
std::shared_ptr<Rule> make_rule(const AdadeltaOptions& options) {
  return std::make_shared<AdadeltaRule>(options);
}
std::shared_ptr<Rule> make_rule(const FtrlOptions& options) {
  return std::make_shared<FtrlRule>(options);
}
std::shared_ptr<Rule> make_rule(const LionOptions& options) {
  return std::make_shared<LionRule>(options);
}

}  // namespace tutti::keras::optimizers
