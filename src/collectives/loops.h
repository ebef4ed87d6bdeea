#pragma once
// Loops over float16 and bfloat16, bit for bit what ATen's operators give.

#include <cstdint>

namespace tutti::collectives {

enum class Float16 { kHalf, kBFloat16 };

/// sum = a + b, rounded; then sum /= divisor, rounded, unless that is 1. `sum` may be `a`.
void add_16(Float16 kind, uint16_t* sum, const uint16_t* a, const uint16_t* b, int64_t n,
            float divisor);
/// Rounded to the nearest, ties to even.
void to_16(Float16 kind, const float* from, uint16_t* to, int64_t n);
void from_16(Float16 kind, const uint16_t* from, float* to, int64_t n);
/// sum += the widened values.
void accumulate_16(Float16 kind, float* sum, const uint16_t* from, int64_t n);
void divide(float* values, int64_t n, float divisor);

}  // namespace tutti::collectives
