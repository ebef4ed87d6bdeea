// Loops over plain arrays, of which the compiler makes a version for each generation of vector
// instructions. The build compiles this file with -fno-math-errno: a square root that may set errno
// is a call, and a loop with a call does not become vector instructions.

#include "keras/optimizers/loops.h"

#include <cmath>

// One function per dtype, for an attribute that makes several versions does not go with templates.
// Sanitizers run before the dynamic linker has chosen a version, so they get the plain one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TUTTI_SANITIZED)
#define TUTTI_VECTOR_VERSIONS \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define TUTTI_VECTOR_VERSIONS
#endif
#define TUTTI_INLINE inline __attribute__((always_inline))
#define TUTTI_RESTRICT __restrict__

namespace tutti::keras::optimizers {
namespace {

// ---- SGD
// -----------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void sgd(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, int64_t n, T rate, T keep) {
  for (int64_t i = 0; i < n; ++i) w[i] = keep * w[i] - rate * g[i];
}
template <class T>
TUTTI_INLINE void sgd_momentum(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v,
                               int64_t n, T rate, T keep, T momentum) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] - rate * g[i];
    w[i] = keep * w[i] + v[i];
  }
}
template <class T>
TUTTI_INLINE void sgd_nesterov(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v,
                               int64_t n, T rate, T keep, T momentum) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] - rate * g[i];
    w[i] = keep * w[i] + (momentum * v[i] - rate * g[i]);
  }
}

// ---- Adam
// ----------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void adam(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m,
                       T* TUTTI_RESTRICT v, int64_t n, AdamScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    w[i] = s.keep * w[i] - m[i] * s.alpha / (std::sqrt(v[i]) + s.epsilon);
  }
}
template <class T>
TUTTI_INLINE void amsgrad(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m,
                          T* TUTTI_RESTRICT v, T* TUTTI_RESTRICT h, int64_t n, AdamScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    h[i] = h[i] < v[i] ? v[i] : h[i];
    w[i] = s.keep * w[i] - m[i] * s.alpha / (std::sqrt(h[i]) + s.epsilon);
  }
}

// ---- RMSprop
// -------------------------------------------------------------------------------------------------------------------

/// `mean` and `moment` may be null: not centered, no momentum.
template <class T, bool kCentered, bool kMomentum>
TUTTI_INLINE void rmsprop(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v,
                          T* TUTTI_RESTRICT moment, T* TUTTI_RESTRICT mean, int64_t n,
                          RmsScalars<T> s) {
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

// ---- Adagrad
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void adagrad(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT a,
                          int64_t n, T rate, T keep, T epsilon) {
  for (int64_t i = 0; i < n; ++i) {
    a[i] += g[i] * g[i];
    w[i] = keep * w[i] - rate * g[i] / std::sqrt(a[i] + epsilon);
  }
}

// ---- the average of the weights
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void average_of(const T* TUTTI_RESTRICT w, T* TUTTI_RESTRICT average, int64_t n,
                             T momentum) {
  const T rest = 1 - momentum;
  for (int64_t i = 0; i < n; ++i) average[i] = momentum * average[i] + rest * w[i];
}

}  // namespace

#define TUTTI_FOR_DTYPE(T)                                                                         \
  TUTTI_VECTOR_VERSIONS void run_sgd(T* w, const T* g, int64_t n, T rate, T keep) {                \
    sgd(w, g, n, rate, keep);                                                                      \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_sgd_momentum(T* w, const T* g, T* v, int64_t n, T rate, T keep,   \
                                              T momentum) {                                        \
    sgd_momentum(w, g, v, n, rate, keep, momentum);                                                \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_sgd_nesterov(T* w, const T* g, T* v, int64_t n, T rate, T keep,   \
                                              T momentum) {                                        \
    sgd_nesterov(w, g, v, n, rate, keep, momentum);                                                \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adam(T* w, const T* g, T* m, T* v, int64_t n, AdamScalars<T> s) { \
    adam(w, g, m, v, n, s);                                                                        \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_amsgrad(T* w, const T* g, T* m, T* v, T* h, int64_t n,            \
                                         AdamScalars<T> s) {                                       \
    amsgrad(w, g, m, v, h, n, s);                                                                  \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_rmsprop(T* w, const T* g, T* v, int64_t n, RmsScalars<T> s) {     \
    rmsprop<T, false, false>(w, g, v, static_cast<T*>(nullptr), static_cast<T*>(nullptr), n, s);   \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_rmsprop_momentum(T* w, const T* g, T* v, T* moment, int64_t n,    \
                                                  RmsScalars<T> s) {                               \
    rmsprop<T, false, true>(w, g, v, moment, static_cast<T*>(nullptr), n, s);                      \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_rmsprop_centered(T* w, const T* g, T* v, T* mean, int64_t n,      \
                                                  RmsScalars<T> s) {                               \
    rmsprop<T, true, false>(w, g, v, static_cast<T*>(nullptr), mean, n, s);                        \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_rmsprop_both(T* w, const T* g, T* v, T* moment, T* mean,          \
                                              int64_t n, RmsScalars<T> s) {                        \
    rmsprop<T, true, true>(w, g, v, moment, mean, n, s);                                           \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adagrad(T* w, const T* g, T* a, int64_t n, T rate, T keep,        \
                                         T epsilon) {                                              \
    adagrad(w, g, a, n, rate, keep, epsilon);                                                      \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_average(const T* w, T* average, int64_t n, T momentum) {          \
    average_of(w, average, n, momentum);                                                           \
  }

TUTTI_FOR_DTYPE(float)
TUTTI_FOR_DTYPE(double)

}  // namespace tutti::keras::optimizers
