// Each formula twice: as a loop over one dtype, of which the compiler makes a version for each generation of vector instructions,
// and by tensor operations, which is the oracle of the loop and the way on GPUs.

#include "keras/optimizers/rules.h"

#include <cmath>

// One function per dtype, for an attribute that makes several versions does not go with templates. Sanitizers run before the
// dynamic linker has chosen a version, so they get the plain one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TUTTI_SANITIZED)
#define TUTTI_VECTOR_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3", "no-math-errno")))
#else
#define TUTTI_VECTOR_VERSIONS
#endif
#define TUTTI_INLINE inline __attribute__((always_inline))
#define TUTTI_RESTRICT __restrict__

namespace tutti::keras::optimizers {
namespace {

// ---- SGD -----------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void sgd(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, int64_t n, T rate, T keep) {
  for (int64_t i = 0; i < n; ++i) w[i] = keep * w[i] - rate * g[i];
}
template <class T>
TUTTI_INLINE void sgd_momentum(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v, int64_t n, T rate, T keep, T momentum) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] - rate * g[i];
    w[i] = keep * w[i] + v[i];
  }
}
template <class T>
TUTTI_INLINE void sgd_nesterov(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v, int64_t n, T rate, T keep, T momentum) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] - rate * g[i];
    w[i] = keep * w[i] + (momentum * v[i] - rate * g[i]);
  }
}

// ---- Adam ----------------------------------------------------------------------------------------------------------------------

template <class T>
struct AdamScalars {
  T alpha, keep, rest_1, rest_2, epsilon;
};
template <class T>
TUTTI_INLINE void adam(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m, T* TUTTI_RESTRICT v, int64_t n, AdamScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    w[i] = s.keep * w[i] - m[i] * s.alpha / (std::sqrt(v[i]) + s.epsilon);
  }
}
template <class T>
TUTTI_INLINE void amsgrad(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m, T* TUTTI_RESTRICT v, T* TUTTI_RESTRICT h, int64_t n,
                          AdamScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    h[i] = h[i] < v[i] ? v[i] : h[i];
    w[i] = s.keep * w[i] - m[i] * s.alpha / (std::sqrt(h[i]) + s.epsilon);
  }
}

// ---- RMSprop -------------------------------------------------------------------------------------------------------------------

template <class T>
struct RmsScalars {
  T rate, keep, rho, momentum, epsilon;
};
/// `mean` and `moment` may be null: not centered, no momentum.
template <class T, bool kCentered, bool kMomentum>
TUTTI_INLINE void rmsprop(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v, T* TUTTI_RESTRICT moment, T* TUTTI_RESTRICT mean,
                          int64_t n, RmsScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = s.rho * v[i] + (1 - s.rho) * g[i] * g[i];
    T denominator = v[i] + s.epsilon;
    if constexpr (kCentered) {
      mean[i] = s.rho * mean[i] + (1 - s.rho) * g[i];
      denominator = v[i] - mean[i] * mean[i] + s.epsilon;
    }
    T step = s.rate * g[i] / std::sqrt(denominator);
    if constexpr (kMomentum) {
      moment[i] = s.momentum * moment[i] + step;
      step = moment[i];
    }
    w[i] = s.keep * w[i] - step;
  }
}

// ---- Adagrad -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void adagrad(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT a, int64_t n, T rate, T keep, T epsilon) {
  for (int64_t i = 0; i < n; ++i) {
    a[i] += g[i] * g[i];
    w[i] = keep * w[i] - rate * g[i] / std::sqrt(a[i] + epsilon);
  }
}

#define TUTTI_FOR_DTYPE(T)                                                                                                                    \
  TUTTI_VECTOR_VERSIONS void run_sgd(T* w, const T* g, int64_t n, T rate, T keep) { sgd(w, g, n, rate, keep); }                              \
  TUTTI_VECTOR_VERSIONS void run_sgd_momentum(T* w, const T* g, T* v, int64_t n, T rate, T keep, T momentum) {                               \
    sgd_momentum(w, g, v, n, rate, keep, momentum);                                                                                           \
  }                                                                                                                                           \
  TUTTI_VECTOR_VERSIONS void run_sgd_nesterov(T* w, const T* g, T* v, int64_t n, T rate, T keep, T momentum) {                               \
    sgd_nesterov(w, g, v, n, rate, keep, momentum);                                                                                           \
  }                                                                                                                                           \
  TUTTI_VECTOR_VERSIONS void run_adam(T* w, const T* g, T* m, T* v, int64_t n, AdamScalars<T> s) { adam(w, g, m, v, n, s); }                 \
  TUTTI_VECTOR_VERSIONS void run_amsgrad(T* w, const T* g, T* m, T* v, T* h, int64_t n, AdamScalars<T> s) { amsgrad(w, g, m, v, h, n, s); }  \
  TUTTI_VECTOR_VERSIONS void run_rmsprop(T* w, const T* g, T* v, int64_t n, RmsScalars<T> s) {                                               \
    rmsprop<T, false, false>(w, g, v, static_cast<T*>(nullptr), static_cast<T*>(nullptr), n, s);                                             \
  }                                                                                                                                           \
  TUTTI_VECTOR_VERSIONS void run_rmsprop_momentum(T* w, const T* g, T* v, T* moment, int64_t n, RmsScalars<T> s) {                           \
    rmsprop<T, false, true>(w, g, v, moment, static_cast<T*>(nullptr), n, s);                                                                \
  }                                                                                                                                           \
  TUTTI_VECTOR_VERSIONS void run_rmsprop_centered(T* w, const T* g, T* v, T* mean, int64_t n, RmsScalars<T> s) {                             \
    rmsprop<T, true, false>(w, g, v, static_cast<T*>(nullptr), mean, n, s);                                                                  \
  }                                                                                                                                           \
  TUTTI_VECTOR_VERSIONS void run_rmsprop_both(T* w, const T* g, T* v, T* moment, T* mean, int64_t n, RmsScalars<T> s) {                      \
    rmsprop<T, true, true>(w, g, v, moment, mean, n, s);                                                                                     \
  }                                                                                                                                           \
  TUTTI_VECTOR_VERSIONS void run_adagrad(T* w, const T* g, T* a, int64_t n, T rate, T keep, T epsilon) {                                     \
    adagrad(w, g, a, n, rate, keep, epsilon);                                                                                                 \
  }

TUTTI_FOR_DTYPE(float)
TUTTI_FOR_DTYPE(double)

class SgdRule : public Rule {
 public:
  explicit SgdRule(const SGDOptions& options)
      : Rule(options.learning_rate, options.weight_decay), momentum_(options.momentum), nesterov_(options.nesterov) {}
  std::vector<std::string> slot_names() const override {
    return momentum_ != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override { run(w, g, s, n, decay); }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override { run(w, g, s, n, decay); }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots, bool decay) const override {
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
  explicit AdamRule(const AdamOptions& options) : Rule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override {
    if (options_.amsgrad) return {"momentum", "velocity", "velocity_hat"};
    return {"momentum", "velocity"};
  }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    alpha_ = rate_ * std::sqrt(1 - std::pow(options_.beta_2, t)) / (1 - std::pow(options_.beta_1, t));
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override { run(w, g, s, n, decay); }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override { run(w, g, s, n, decay); }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots, bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.beta_1));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.beta_2));
    if (options_.amsgrad) slots[2].copy_(at::maximum(slots[2], slots[1]));
    w.sub_(slots[0] * alpha_ / (slots[options_.amsgrad ? 2 : 1].sqrt() + options_.epsilon));
  }

 private:
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    const AdamScalars<T> scalars{static_cast<T>(alpha_), static_cast<T>(keep(decay)), static_cast<T>(1 - options_.beta_1),
                                 static_cast<T>(1 - options_.beta_2), static_cast<T>(options_.epsilon)};
    if (options_.amsgrad) {
      run_amsgrad(w, g, s[0], s[1], s[2], n, scalars);
    } else {
      run_adam(w, g, s[0], s[1], n, scalars);
    }
  }
  AdamOptions options_;
  double alpha_ = 0;
};

class RmspropRule : public Rule {
 public:
  explicit RmspropRule(const RMSpropOptions& options) : Rule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names{"velocity"};
    if (options_.momentum > 0) names.push_back("momentum");
    if (options_.centered) names.push_back("average_gradient");
    return names;
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override { run(w, g, s, n, decay); }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override { run(w, g, s, n, decay); }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots, bool decay) const override {
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
    const RmsScalars<T> scalars{static_cast<T>(rate_), static_cast<T>(keep(decay)), static_cast<T>(options_.rho),
                                static_cast<T>(options_.momentum), static_cast<T>(options_.epsilon)};
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
  explicit AdagradRule(const AdagradOptions& options) : Rule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"accumulator"}; }
  double slot_initial_value() const override { return options_.initial_accumulator_value; }
  void update(float* w, const float* g, float* const* s, int64_t n, bool decay) const override {
    run_adagrad(w, g, s[0], n, static_cast<float>(rate_), static_cast<float>(keep(decay)), static_cast<float>(options_.epsilon));
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool decay) const override {
    run_adagrad(w, g, s[0], n, rate_, keep(decay), options_.epsilon);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots, bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_(g.square());
    w.sub_(g * rate_ / (slots[0] + options_.epsilon).sqrt());
  }

 private:
  AdagradOptions options_;
};

}  // namespace

std::shared_ptr<Rule> make_rule(const SGDOptions& options) { return std::make_shared<SgdRule>(options); }
std::shared_ptr<Rule> make_rule(const AdamOptions& options) { return std::make_shared<AdamRule>(options); }
std::shared_ptr<Rule> make_rule(const RMSpropOptions& options) { return std::make_shared<RmspropRule>(options); }
std::shared_ptr<Rule> make_rule(const AdagradOptions& options) { return std::make_shared<AdagradRule>(options); }

}  // namespace tutti::keras::optimizers
