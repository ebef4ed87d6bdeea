#pragma once
// The elementwise loops of the optimizers, for float and double. `keep` scales the weights before
// the update (weight decay).

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
  void run_average(const T* w, T* average, int64_t n, T momentum);

TUTTI_DECLARE_LOOPS(float)
TUTTI_DECLARE_LOOPS(double)
#undef TUTTI_DECLARE_LOOPS

}  // namespace tutti::keras::optimizers
