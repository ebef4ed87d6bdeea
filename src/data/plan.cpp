#include "tutti/data/plan.h"

#include <ATen/ATen.h>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/dataset.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::data {

Nest RowTable::row(int64_t index) const {
  return structure.map_leaves([index](const Tensor& column) { return column.select(0, index); });
}

Nest RowTable::rows(const std::vector<int64_t>& indices) const {
  bool consecutive = !indices.empty();
  for (std::size_t i = 1; consecutive && i < indices.size(); ++i)
    consecutive = indices[i] == indices[i - 1] + 1;
  if (consecutive) {
    return structure.map_leaves([&](const Tensor& column) {
      return column.narrow(0, indices[0], static_cast<int64_t>(indices.size())).clone();
    });
  }
  const Tensor index = at::from_blob(const_cast<int64_t*>(indices.data()),
                                     {static_cast<int64_t>(indices.size())}, at::kLong);
  return structure.map_leaves(
      [&](const Tensor& column) { return column.index_select(0, index.to(column.device())); });
}

SpecNest Plan::element_spec() const {
  auto first = iterator()->next();
  if (!first)
    throw FailedPrecondition(
        cat("element_spec [", name(),
            "]: the dataset is empty, expected an element to tell its shape by"));
  return spec_of(*first);
}

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync_ != 0) {
    throw InvalidArgument(
        cat("get_per_replica_batch_size: ", global_batch_size, " rows for ", num_replicas_in_sync_,
            " replicas, expected a multiple; choose a global batch size that divides"));
  }
  return global_batch_size / num_replicas_in_sync_;
}

std::string InputContext::to_string() const {
  return cat("InputContext(input pipeline id ", input_pipeline_id_, ", total ",
             num_input_pipelines_, ")");
}

bool internal::one_bool(const Tensor& verdict) {
  if (!verdict.defined() || verdict.numel() != 1 || verdict.scalar_type() != at::kBool) {
    throw InvalidArgument(cat(
        "filter: the predicate gave ",
        verdict.defined() ? cat(dtype_name(verdict.scalar_type()), " ", shape_text(verdict.sizes()))
                          : "nothing",
        ", expected one bool"));
  }
  return verdict.item<bool>();
}

}  // namespace tutti::data
