#include "tutti/tensor/indexed_slices.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {
namespace {

std::string found(const Tensor& tensor) {
  return tensor.defined() ? cat(dtype_name(tensor.scalar_type()), " ", shape_text(tensor.sizes()))
                          : "undefined";
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
  auto [rows, position, unused] =
      at::_unique2(indices, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/false);
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = rows.size(0);
  return {at::zeros(sizes, values.options()).index_add_(0, position, values), rows, dense_shape};
}

}  // namespace tutti
