#pragma once
// Penalties on weights.

#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::keras {

/// l1 * sum |w| + l2 * sum w^2; the default has no penalty.
struct Regularizer {
  double l1 = 0;
  double l2 = 0;
  bool defined() const { return l1 != 0 || l2 != 0; }
  /// A scalar with gradient.
  Tensor operator()(const Tensor& weight) const;
};

namespace regularizers {
inline Regularizer L1(double l1 = 0.01) { return {l1, 0}; }
inline Regularizer L2(double l2 = 0.01) { return {0, l2}; }
inline Regularizer L1L2(double l1 = 0, double l2 = 0) { return {l1, l2}; }
}  // namespace regularizers
}  // namespace tutti::keras
