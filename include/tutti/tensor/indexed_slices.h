#pragma once
// Rows of a larger tensor: the gradient of a lookup.

#include <cstdint>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

/// `values` [n, …] belong to the rows `indices` [n] (int64, duplicates add up) of a tensor of shape
/// `dense_shape`.
struct IndexedSlices {
  Tensor values;
  Tensor indices;
  std::vector<int64_t> dense_shape;

  /// Throws InvalidArgument when the parts do not fit one another or an index is out of range.
  void check() const;
  Tensor to_dense() const;
  /// The same sum with each row at most once, rows ascending.
  IndexedSlices deduplicated() const;
};

}  // namespace tutti
