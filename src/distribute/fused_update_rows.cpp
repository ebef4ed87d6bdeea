#include "distribute/fused_update_rows.h"

#include "collectives/local_reduce.h"

namespace tutti::distribute {

Tensor rows_as_stored(const Tensor& gradient, const Tensor& component) {
  if (gradient.sparse_dim() == 1 && component.is_contiguous()) {
    return gradient.to(component.options().layout(at::kSparse));
  }
  Tensor stored = at::empty_strided(component.sizes(), component.strides(), component.options());
  stored.copy_(gradient.to_dense());
  return stored;
}

RowGradient add_up_rows(const std::vector<Tensor>& parts, const Tensor& component) {
  RowGradient sum;
  sum.width = component.size(0) == 0 ? 0 : component.numel() / component.size(0);
  const bool all_rows =
      std::all_of(parts.begin(), parts.end(), [](const Tensor& part) { return part.is_sparse(); });
  if (all_rows) {
    std::vector<IndexedSlices> slices;
    for (const Tensor& part : parts) slices.push_back(IndexedSlices::from_sparse(part));
    sum.rows = slices.size() == 1
                   ? slices[0].deduplicated()
                   : collectives::local_reduce(collectives::ReduceOp::kSum, slices).deduplicated();
    return sum;
  }
  std::vector<Tensor> dense;
  for (const Tensor& part : parts)
    dense.push_back((part.is_sparse() ? part.to_dense() : part).to(component.device()));
  const Tensor total = collectives::local_reduce(collectives::ReduceOp::kSum, dense);
  sum.dense =
      at::empty_strided(component.sizes(), component.strides(), component.options()).copy_(total);
  return sum;
}

}  // namespace tutti::distribute
