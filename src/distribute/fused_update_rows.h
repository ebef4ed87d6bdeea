#pragma once
// Gradients of lookups in the fused pass: rows of a variable instead of all of it.

#include <algorithm>
#include <vector>

#include "tutti/tensor/indexed_slices.h"

namespace tutti::distribute {

/// A gradient of sparse layout as the pass takes it: values of `component`'s dtype and device. When
/// rows are no contiguous memory of `component`, a dense tensor.
Tensor rows_as_stored(const Tensor& gradient, const Tensor& component);

/// What the replicas' gradients of one variable, some of sparse layout, add up to.
struct RowGradient {
  /// Each row once, ascending. Values are undefined when a replica brought a dense gradient.
  IndexedSlices rows;
  /// The sum in that case, in the variable's strides.
  Tensor dense;
  int64_t width = 0;  ///< entries of a row

  bool is_rows() const { return rows.values.defined(); }
  Tensor to_dense() const { return is_rows() ? rows.to_dense() : dense; }

  /// Calls `visit(begin, n, gradients)` for the parts of [begin, end) that lie in one of the rows,
  /// at most `chunk` entries at a time.
  template <class Scalar, class Visitor>
  void for_touched(int64_t begin, int64_t end, int64_t chunk, Visitor visit) const {
    if (width == 0) return;
    const auto* row = rows.indices.const_data_ptr<int64_t>();
    const auto* values = rows.values.const_data_ptr<Scalar>();
    const auto* last = row + rows.indices.numel();
    for (const auto* at = std::lower_bound(row, last, begin / width); at != last; ++at) {
      const int64_t from = std::max(*at * width, begin);
      const int64_t to = std::min((*at + 1) * width, end);
      if (from >= end) return;
      const Scalar* source = values + (at - row) * width + (from - *at * width);
      for (int64_t done = from; done < to; done += chunk, source += chunk)
        visit(done, std::min(chunk, to - done), source);
    }
  }
  /// Entries [begin, begin + n) of the dense gradient.
  template <class Scalar>
  void fill(int64_t begin, int64_t n, Scalar* buffer) const {
    std::fill_n(buffer, n, Scalar{0});
    for_touched<Scalar>(begin, begin + n, n, [&](int64_t at, int64_t count, const Scalar* source) {
      std::copy_n(source, count, buffer + (at - begin));
    });
  }
};

/// `parts`: defined gradients of the replicas, in their order, as rows_as_stored and the pass gave
/// them.
RowGradient add_up_rows(const std::vector<Tensor>& parts, const Tensor& component);

}  // namespace tutti::distribute
