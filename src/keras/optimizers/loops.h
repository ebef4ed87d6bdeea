#pragma once
// The elementwise loops of the optimizers, for float and double. `keep` scales the weights before
// the update (weight decay). run_ftrl_root is run_ftrl with the power 1/2. What is called a moment
// only moves a slot and gives the direction (`r`, `u`, `x`), of which norms are taken; the step
// comes after them.

#include <cstdint>

namespace tutti::keras::optimizers {

template <class T>
struct AdamScalars {
  T alpha, keep, rest_1, rest_2, epsilon;
};
template <class T>
struct RmsScalars {
  T rate, keep, rho, momentum, epsilon;
};
/// `rate` is divided by 1 - beta_1^t already.
template <class T>
struct AdamaxScalars {
  T rate, keep, rest_1, beta_2, epsilon;
};
/// `next` and `now` are the factors of the moment and of the gradient, `unbias` 1 / (1 - beta_2^t).
template <class T>
struct NadamScalars {
  T rate, keep, rest_1, rest_2, epsilon, next, now, unbias;
};
template <class T>
struct AdadeltaScalars {
  T rate, keep, rho, epsilon;
};
/// `l2` and `shrinkage` are twice the arguments, `l2` with beta / lr; `power` is positive.
template <class T>
struct FtrlScalars {
  T rate, keep, l1, l2, shrinkage, power;
};
template <class T>
struct LionScalars {
  T rate, keep, beta_1, beta_2;
};
/// `weight` is that of the newest step in the mean.
template <class T>
struct ScheduleFreeScalars {
  T rate, keep, beta_1, rest_2, epsilon, unbias, weight;
};
/// `unbias_1` and `unbias_2` are 1 / (1 - beta^t).
template <class T>
struct LambScalars {
  T rest_1, rest_2, epsilon, unbias_1, unbias_2;
};
template <class T>
struct AdafactorScalars {
  T beta_2, epsilon_1;
};

#define TUTTI_DECLARE_LOOPS(T)                                                                   \
  void run_sgd(T* w, const T* g, int64_t n, T rate, T keep);                                     \
  void run_sgd_momentum(T* w, const T* g, T* v, int64_t n, T rate, T keep, T momentum);          \
  void run_sgd_nesterov(T* w, const T* g, T* v, int64_t n, T rate, T keep, T momentum);          \
  void run_adam(T* w, const T* g, T* m, T* v, int64_t n, AdamScalars<T> s);                      \
  void run_amsgrad(T* w, const T* g, T* m, T* v, T* h, int64_t n, AdamScalars<T> s);             \
  void run_rmsprop(T* w, const T* g, T* v, int64_t n, RmsScalars<T> s);                          \
  void run_rmsprop_momentum(T* w, const T* g, T* v, T* moment, int64_t n, RmsScalars<T> s);      \
  void run_rmsprop_centered(T* w, const T* g, T* v, T* mean, int64_t n, RmsScalars<T> s);        \
  void run_rmsprop_both(T* w, const T* g, T* v, T* moment, T* mean, int64_t n, RmsScalars<T> s); \
  void run_adagrad(T* w, const T* g, T* a, int64_t n, T rate, T keep, T epsilon);                \
  void run_average(const T* w, T* average, int64_t n, T momentum);                               \
  void run_adamax(T* w, const T* g, T* m, T* u, int64_t n, AdamaxScalars<T> s);                  \
  void run_nadam(T* w, const T* g, T* m, T* v, int64_t n, NadamScalars<T> s);                    \
  void run_adadelta(T* w, const T* g, T* a, T* d, int64_t n, AdadeltaScalars<T> s);              \
  void run_ftrl(T* w, const T* g, T* a, T* z, int64_t n, FtrlScalars<T> s);                      \
  void run_ftrl_root(T* w, const T* g, T* a, T* z, int64_t n, FtrlScalars<T> s);                 \
  void run_lion(T* w, const T* g, T* m, int64_t n, LionScalars<T> s);                            \
  void run_schedule_free(T* w, const T* g, T* z, T* v, int64_t n, ScheduleFreeScalars<T> s);     \
  void run_lamb_moments(const T* g, T* m, T* v, T* r, int64_t n, LambScalars<T> s);              \
  void run_lamb_step(T* w, const T* m, const T* v, int64_t n, T keep, T step, LambScalars<T> s); \
  void run_adafactor_moment(const T* g, T* v, T* u, int64_t n, AdafactorScalars<T> s);           \
  void run_adafactor_columns(const T* g, double* sums, int64_t n, T epsilon_1);                  \
  void run_adafactor_row(const T* g, const T* c, T* v, T* u, int64_t n, T row);                  \
  void run_adafactor_step(T* w, const T* g, const T* v, int64_t n, T keep, T step);              \
  void run_muon_moment(const T* g, T* m, T* x, int64_t n, T momentum, bool nesterov);            \
  void run_scaled_sub(T* w, const T* x, int64_t n, T keep, T step);                              \
  double run_sum_squares(const T* x, int64_t n);

TUTTI_DECLARE_LOOPS(float)
TUTTI_DECLARE_LOOPS(double)
#undef TUTTI_DECLARE_LOOPS

}  // namespace tutti::keras::optimizers
