#include "tutti/tensor/indexed_slices.h"

#include <ostream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/printing.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {
namespace {

std::string found(const Tensor& tensor) {
  return tensor.defined() ? cat(dtype_name(tensor.scalar_type()), " ", shape_text(tensor.sizes()))
                          : "undefined";
}

/// Adds the rows of one index in the order in which they came. `order` sorts the indices.
template <class Scalar>
IndexedSlices added_up(const IndexedSlices& slices, const Tensor& sorted, const Tensor& order) {
  const Tensor values = slices.values.detach().contiguous();
  const int64_t n = values.size(0);
  const int64_t width = n == 0 ? 0 : values.numel() / n;
  const int64_t* row = sorted.const_data_ptr<int64_t>();
  const int64_t* from = order.const_data_ptr<int64_t>();
  const auto* source = values.const_data_ptr<Scalar>();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += i == 0 || row[i] != row[i - 1] ? 1 : 0;
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = count;
  Tensor sums = at::empty(sizes, values.options());
  Tensor rows = at::empty({count}, sorted.options());
  auto* to = sums.mutable_data_ptr<Scalar>();
  auto* at_row = rows.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const Scalar* added = source + from[i] * width;
    if (i == 0 || row[i] != row[i - 1]) {
      if (i != 0) to += width;
      *at_row++ = row[i];
      std::copy_n(added, width, to);
    } else {
      for (int64_t k = 0; k < width; ++k) to[k] += added[k];
    }
  }
  return {sums, rows, slices.dense_shape};
}

}  // namespace

void IndexedSlices::check() const {
  const bool fits =
      values.defined() && indices.defined() && indices.dim() == 1 &&
      indices.scalar_type() == at::kLong && values.dim() >= 1 &&
      values.size(0) == indices.size(0) &&
      static_cast<std::size_t>(values.dim()) == dense_shape.size() &&
      std::equal(dense_shape.begin() + 1, dense_shape.end(), values.sizes().begin() + 1) &&
      dense_shape[0] >= 0;
  if (!fits) {
    throw InvalidArgument(
        cat("IndexedSlices: values ", found(values), ", indices ", found(indices), ", dense shape ",
            shape_text(dense_shape),
            ", expected values [n, …], int64 indices [n] and the dense shape of rank ≥ 1 with the "
            "same rows"));
  }
  if (indices.numel() == 0) return;
  const int64_t low = indices.min().item<int64_t>();
  const int64_t high = indices.max().item<int64_t>();
  if (low < 0 || high >= dense_shape[0]) {
    throw InvalidArgument(cat("IndexedSlices: indices from ", low, " to ", high,
                              ", expected 0 or more and below ", dense_shape[0]));
  }
}

Tensor IndexedSlices::to_dense() const {
  check();
  return at::zeros(dense_shape, values.options()).index_add_(0, indices, values);
}

IndexedSlices IndexedSlices::deduplicated() const {
  check();
  at::NoGradGuard no_grad;
  const auto [sorted, order] = at::sort(indices, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  if (values.is_cpu() && values.scalar_type() == at::kFloat)
    return added_up<float>(*this, sorted, order);
  if (values.is_cpu() && values.scalar_type() == at::kDouble)
    return added_up<double>(*this, sorted, order);
  const auto [rows, position, unused] = at::unique_consecutive(sorted, /*return_inverse=*/true);
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = rows.size(0);
  Tensor sums = at::zeros(sizes, values.options());
  return {sums.index_add_(0, position, values.detach().index_select(0, order)), rows, dense_shape};
}

Tensor IndexedSlices::to_sparse() const {
  check();
  return at::_sparse_coo_tensor_unsafe(indices.unsqueeze(0), values, dense_shape,
                                       values.options().layout(at::kSparse));
}

IndexedSlices IndexedSlices::from_sparse(const Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kSparse || tensor.sparse_dim() != 1) {
    throw InvalidArgument(
        cat("IndexedSlices::from_sparse: ",
            !tensor.defined() ? "an undefined tensor"
            : tensor.layout() != at::kSparse
                ? cat("a tensor of layout ", tensor.layout())
                : cat("a sparse tensor with ", tensor.sparse_dim(), " sparse dimensions"),
            ", expected the sparse COO layout with one sparse dimension; it is "
            "what a lookup's gradient has"));
  }
  return {tensor._values(), tensor._indices()[0], tensor.sizes().vec()};
}

std::ostream& operator<<(std::ostream& out, const IndexedSlices& slices) {
  return out << "IndexedSlices(indices=" << values_to_string(slices.indices)
             << ", values=" << values_to_string(slices.values)
             << ", dense_shape=" << shape_text(slices.dense_shape) << ")";
}

}  // namespace tutti
