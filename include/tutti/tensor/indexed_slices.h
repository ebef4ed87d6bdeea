#pragma once
// Rows of a larger tensor: the gradient of a lookup.

#include <cstdint>
#include <iosfwd>
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
  /// The same sum with each row at most once, rows ascending; duplicates are added in their order.
  IndexedSlices deduplicated() const;

  /// LibTorch's form of the same: the layout that sparse gradients have. Shares memory.
  Tensor to_sparse() const;
  /// Of a sparse COO tensor of one sparse dimension, duplicates kept; shares memory. Throws
  /// InvalidArgument for other layouts.
  static IndexedSlices from_sparse(const Tensor& tensor);
};

/// `IndexedSlices(indices=[3 0], values=[[1. 2.], …], dense_shape=(4, 2))`.
std::ostream& operator<<(std::ostream& out, const IndexedSlices& slices);

}  // namespace tutti
