#include "collectives/loops.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

// As in local_reduce.cpp: a version for each generation of vector instructions.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TUTTI_SANITIZED)
#define TUTTI_VECTOR_VERSIONS \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define TUTTI_VECTOR_VERSIONS
#endif
#define TUTTI_INLINE inline __attribute__((always_inline))

namespace tutti::collectives {
namespace {

struct BFloat16Bits {
  static TUTTI_INLINE float widened(uint16_t bits) { return c10::detail::f32_from_bits(bits); }
  static TUTTI_INLINE uint16_t rounded(float value) {
    return c10::detail::round_to_nearest_even(value);
  }
};

struct HalfBits {
  static TUTTI_INLINE float widened(uint16_t bits) {
    return c10::detail::fp16_ieee_to_fp32_value(bits);
  }
  static TUTTI_INLINE uint16_t rounded(float value) {
    return c10::detail::fp16_ieee_from_fp32_value(value);
  }
};

template <class Bits>
TUTTI_INLINE void add(uint16_t* sum, const uint16_t* a, const uint16_t* b, int64_t n,
                      float divisor) {
  if (divisor == 1.0F) {
    for (int64_t i = 0; i < n; ++i) {
      sum[i] = Bits::rounded(Bits::widened(a[i]) + Bits::widened(b[i]));
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t total = Bits::rounded(Bits::widened(a[i]) + Bits::widened(b[i]));
    sum[i] = Bits::rounded(Bits::widened(total) / divisor);
  }
}

// One function a kind, for an attribute that makes several versions does not go with templates.
#define TUTTI_LOOPS_OF(name, Bits)                                                            \
  TUTTI_VECTOR_VERSIONS void add_##name(uint16_t* sum, const uint16_t* a, const uint16_t* b,  \
                                        int64_t n, float divisor) {                           \
    add<Bits>(sum, a, b, n, divisor);                                                         \
  }                                                                                           \
  TUTTI_VECTOR_VERSIONS void to_##name(const float* from, uint16_t* to, int64_t n) {          \
    for (int64_t i = 0; i < n; ++i) to[i] = Bits::rounded(from[i]);                           \
  }                                                                                           \
  TUTTI_VECTOR_VERSIONS void from_##name(const uint16_t* from, float* to, int64_t n) {        \
    for (int64_t i = 0; i < n; ++i) to[i] = Bits::widened(from[i]);                           \
  }                                                                                           \
  TUTTI_VECTOR_VERSIONS void accumulate_##name(float* sum, const uint16_t* from, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) sum[i] += Bits::widened(from[i]);                         \
  }
TUTTI_LOOPS_OF(half, HalfBits)
TUTTI_LOOPS_OF(bfloat16, BFloat16Bits)
#undef TUTTI_LOOPS_OF

}  // namespace

void add_16(Float16 kind, uint16_t* sum, const uint16_t* a, const uint16_t* b, int64_t n,
            float divisor) {
  (kind == Float16::kHalf ? add_half : add_bfloat16)(sum, a, b, n, divisor);
}

void to_16(Float16 kind, const float* from, uint16_t* to, int64_t n) {
  (kind == Float16::kHalf ? to_half : to_bfloat16)(from, to, n);
}

void from_16(Float16 kind, const uint16_t* from, float* to, int64_t n) {
  (kind == Float16::kHalf ? from_half : from_bfloat16)(from, to, n);
}

void accumulate_16(Float16 kind, float* sum, const uint16_t* from, int64_t n) {
  (kind == Float16::kHalf ? accumulate_half : accumulate_bfloat16)(sum, from, n);
}

TUTTI_VECTOR_VERSIONS void divide(float* values, int64_t n, float divisor) {
  for (int64_t i = 0; i < n; ++i) values[i] /= divisor;
}

}  // namespace tutti::collectives
