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

// ---- Adamax, Nadam
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void adamax(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m,
                         T* TUTTI_RESTRICT u, int64_t n, AdamaxScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    const T size = g[i] < 0 ? -g[i] : g[i];
    const T old = s.beta_2 * u[i];
    u[i] = old < size ? size : old;
    w[i] = s.keep * w[i] - s.rate * m[i] / (u[i] + s.epsilon);
  }
}
template <class T>
TUTTI_INLINE void nadam(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m,
                        T* TUTTI_RESTRICT v, int64_t n, NadamScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    const T moment = s.next * m[i] + s.now * g[i];
    w[i] = s.keep * w[i] - moment * s.rate / (std::sqrt(v[i] * s.unbias) + s.epsilon);
  }
}

// ---- Adadelta, Ftrl, Lion
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void adadelta(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT a,
                           T* TUTTI_RESTRICT d, int64_t n, AdadeltaScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    a[i] = s.rho * a[i] + (1 - s.rho) * g[i] * g[i];
    const T step = std::sqrt(d[i] + s.epsilon) * g[i] / std::sqrt(a[i] + s.epsilon);
    d[i] = s.rho * d[i] + (1 - s.rho) * step * step;
    w[i] = s.keep * w[i] - s.rate * step;
  }
}
template <class T, bool kRoot>
TUTTI_INLINE void ftrl(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT a,
                       T* TUTTI_RESTRICT z, int64_t n, FtrlScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    const T weight = s.keep * w[i];
    const T sum = a[i] + g[i] * g[i];
    const T now = kRoot ? std::sqrt(sum) : std::pow(sum, s.power);
    const T before = kRoot ? std::sqrt(a[i]) : std::pow(a[i], s.power);
    z[i] += g[i] + s.shrinkage * weight - (now - before) / s.rate * weight;
    const T quadratic = now / s.rate + s.l2;
    const T low = z[i] < -s.l1 ? -s.l1 : z[i];
    const T clipped = s.l1 < low ? s.l1 : low;
    w[i] = (clipped - z[i]) / quadratic;
    a[i] = sum;
  }
}
template <class T>
TUTTI_INLINE void lion(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m,
                       int64_t n, LionScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    const T direction = m[i] * s.beta_1 + g[i] * (1 - s.beta_1);
    const T step = direction > 0 ? s.rate : direction < 0 ? -s.rate : T(0);
    w[i] = s.keep * w[i] - step;
    m[i] = m[i] * s.beta_2 + g[i] * (1 - s.beta_2);
  }
}

// ---- ScheduleFreeAdamW
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void schedule_free(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT z,
                                T* TUTTI_RESTRICT v, int64_t n, ScheduleFreeScalars<T> s) {
  const T rest_1 = 1 - s.beta_1;
  for (int64_t i = 0; i < n; ++i) {
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    const T mean = (s.keep * w[i] - rest_1 * z[i]) / s.beta_1;
    z[i] -= s.rate * g[i] / (std::sqrt(v[i] * s.unbias) + s.epsilon);
    const T moved = (1 - s.weight) * mean + s.weight * z[i];
    w[i] = rest_1 * z[i] + s.beta_1 * moved;
  }
}

// ---- Lamb
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE T lamb_direction(T m, T v, LambScalars<T> s) {
  return m * s.unbias_1 / (std::sqrt(v * s.unbias_2) + s.epsilon);
}
template <class T>
TUTTI_INLINE void lamb_moments(const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m, T* TUTTI_RESTRICT v,
                               T* TUTTI_RESTRICT r, int64_t n, LambScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * s.rest_1;
    v[i] += (g[i] * g[i] - v[i]) * s.rest_2;
    r[i] = lamb_direction(m[i], v[i], s);
  }
}
template <class T>
TUTTI_INLINE void lamb_step(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT m,
                            const T* TUTTI_RESTRICT v, int64_t n, T keep, T step,
                            LambScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) w[i] = keep * w[i] - step * lamb_direction(m[i], v[i], s);
}

// ---- Adafactor
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void adafactor_moment(const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT v,
                                   T* TUTTI_RESTRICT u, int64_t n, AdafactorScalars<T> s) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = s.beta_2 * v[i] + (1 - s.beta_2) * (g[i] * g[i] + s.epsilon_1);
    u[i] = g[i] / std::sqrt(v[i]);
  }
}
template <class T>
TUTTI_INLINE void adafactor_columns(const T* TUTTI_RESTRICT g, double* TUTTI_RESTRICT sums,
                                    int64_t n, T epsilon_1) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(g[i] * g[i] + epsilon_1);
}
template <class T>
TUTTI_INLINE void adafactor_row(const T* TUTTI_RESTRICT g, const T* TUTTI_RESTRICT c,
                                T* TUTTI_RESTRICT v, T* TUTTI_RESTRICT u, int64_t n, T row) {
  for (int64_t i = 0; i < n; ++i) {
    v[i] = row * c[i];
    u[i] = g[i] / std::sqrt(v[i]);
  }
}
template <class T>
TUTTI_INLINE void adafactor_step(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT g,
                                 const T* TUTTI_RESTRICT v, int64_t n, T keep, T step) {
  for (int64_t i = 0; i < n; ++i) w[i] = keep * w[i] - step * (g[i] / std::sqrt(v[i]));
}

// ---- Muon
// -------------------------------------------------------------------------------------------------------------------

template <class T>
TUTTI_INLINE void muon_moment(const T* TUTTI_RESTRICT g, T* TUTTI_RESTRICT m, T* TUTTI_RESTRICT x,
                              int64_t n, T momentum, bool nesterov) {
  const T ahead = nesterov ? momentum : 1;
  const T now = nesterov ? 1 : 0;
  for (int64_t i = 0; i < n; ++i) {
    m[i] = momentum * m[i] + g[i];
    x[i] = now * g[i] + ahead * m[i];
  }
}
template <class T>
TUTTI_INLINE void scaled_sub(T* TUTTI_RESTRICT w, const T* TUTTI_RESTRICT x, int64_t n, T keep,
                             T step) {
  for (int64_t i = 0; i < n; ++i) w[i] = keep * w[i] - step * x[i];
}

// ---- norms
// -------------------------------------------------------------------------------------------------------------------

/// Sums apart from each other are vector instructions; one sum is a chain.
template <class T>
TUTTI_INLINE double sum_squares(const T* TUTTI_RESTRICT x, int64_t n) {
  constexpr int64_t kLanes = 16;
  constexpr int64_t kBlock = 4096;  // floats are added up no further
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = n < begin + kBlock ? n : begin + kBlock;
    T lanes[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * x[i + j];
    }
    for (; i < end; ++i) lanes[0] += x[i] * x[i];
    for (const T lane : lanes) total += static_cast<double>(lane);
  }
  return total;
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
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adamax(T* w, const T* g, T* m, T* u, int64_t n,                   \
                                        AdamaxScalars<T> s) {                                      \
    adamax(w, g, m, u, n, s);                                                                      \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_nadam(T* w, const T* g, T* m, T* v, int64_t n,                    \
                                       NadamScalars<T> s) {                                        \
    nadam(w, g, m, v, n, s);                                                                       \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adadelta(T* w, const T* g, T* a, T* d, int64_t n,                 \
                                          AdadeltaScalars<T> s) {                                  \
    adadelta(w, g, a, d, n, s);                                                                    \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_ftrl(T* w, const T* g, T* a, T* z, int64_t n, FtrlScalars<T> s) { \
    ftrl<T, false>(w, g, a, z, n, s);                                                              \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_ftrl_root(T* w, const T* g, T* a, T* z, int64_t n,                \
                                           FtrlScalars<T> s) {                                     \
    ftrl<T, true>(w, g, a, z, n, s);                                                               \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_lion(T* w, const T* g, T* m, int64_t n, LionScalars<T> s) {       \
    lion(w, g, m, n, s);                                                                           \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_schedule_free(T* w, const T* g, T* z, T* v, int64_t n,            \
                                               ScheduleFreeScalars<T> s) {                         \
    schedule_free(w, g, z, v, n, s);                                                               \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_lamb_moments(const T* g, T* m, T* v, T* r, int64_t n,             \
                                              LambScalars<T> s) {                                  \
    lamb_moments(g, m, v, r, n, s);                                                                \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_lamb_step(T* w, const T* m, const T* v, int64_t n, T keep,        \
                                           T step, LambScalars<T> s) {                             \
    lamb_step(w, m, v, n, keep, step, s);                                                          \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adafactor_moment(const T* g, T* v, T* u, int64_t n,               \
                                                  AdafactorScalars<T> s) {                         \
    adafactor_moment(g, v, u, n, s);                                                               \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adafactor_columns(const T* g, double* sums, int64_t n,            \
                                                   T epsilon_1) {                                  \
    adafactor_columns(g, sums, n, epsilon_1);                                                      \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adafactor_row(const T* g, const T* c, T* v, T* u, int64_t n,      \
                                               T row) {                                            \
    adafactor_row(g, c, v, u, n, row);                                                             \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_adafactor_step(T* w, const T* g, const T* v, int64_t n, T keep,   \
                                                T step) {                                          \
    adafactor_step(w, g, v, n, keep, step);                                                        \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_muon_moment(const T* g, T* m, T* x, int64_t n, T momentum,        \
                                             bool nesterov) {                                      \
    muon_moment(g, m, x, n, momentum, nesterov);                                                   \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS void run_scaled_sub(T* w, const T* x, int64_t n, T keep, T step) {         \
    scaled_sub(w, x, n, keep, step);                                                               \
  }                                                                                                \
  TUTTI_VECTOR_VERSIONS double run_sum_squares(const T* x, int64_t n) { return sum_squares(x, n); }

TUTTI_FOR_DTYPE(float)
TUTTI_FOR_DTYPE(double)

}  // namespace tutti::keras::optimizers
