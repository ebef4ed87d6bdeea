#include "tutti/data/plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "data/iteration.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/dataset.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::data {
namespace {

// A view would cost as much to make as this copy of a small row, and a map that writes into its
// argument would change the table for every later pass.
Tensor own_row(const Tensor& column, int64_t index) {
  if (!is_plain(column)) return column.select(0, index).clone();
  Tensor row = at::empty(column.sizes().slice(1), column.options());
  const std::size_t bytes = row.nbytes();
  if (bytes > 0) {
    std::memcpy(
        row.data_ptr(),
        static_cast<const char*>(column.const_data_ptr()) + static_cast<std::size_t>(index) * bytes,
        bytes);
  }
  return row;
}

}  // namespace

bool is_plain(const Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_conj() && !tensor.is_neg();
}

Nest cloned(const Nest& element) {
  return element.map_leaves([](const Tensor& leaf) { return leaf.detach().clone(); });
}

Nest Iterator::save() const {
  throw FailedPrecondition(
      "save iterator: a pass over a source or function with a state of its own, expected a "
      "pipeline "
      "whose place can be told; take from_generator and the like out of it");
}

void Iterator::restore(const Nest& state) {
  throw FailedPrecondition(
      "restore iterator: a pass over a source or function with a state of its own, expected a "
      "pipeline whose place can be told");
}

Nest RowTable::row(int64_t index) const {
  if (index >= num_rows && behind) return behind->row(index - num_rows);
  return structure.map_leaves([index](const Tensor& column) { return own_row(column, index); });
}

namespace {

Nest rows_of_columns(const Nest& structure, const std::vector<int64_t>& indices) {
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

}  // namespace

Nest RowTable::rows(const std::vector<int64_t>& indices) const {
  if (!behind) return rows_of_columns(structure, indices);
  std::vector<int64_t> here, there;
  for (int64_t index : indices) (index < num_rows ? here : there).push_back(index);
  for (int64_t& index : there) index -= num_rows;
  if (there.empty()) return rows_of_columns(structure, here);
  if (here.empty()) return behind->rows(there);
  // Both: the rows of each table in one read, then every row to its place.
  std::vector<int64_t> places;
  int64_t next_here = 0;
  auto next_there = static_cast<int64_t>(here.size());
  for (int64_t index : indices) places.push_back(index < num_rows ? next_here++ : next_there++);
  const bool in_place = std::is_sorted(places.begin(), places.end());
  const auto second = flatten(behind->rows(there));
  std::size_t column = 0;
  return rows_of_columns(structure, here).map_leaves([&](const Tensor& first) {
    const Tensor joined = at::cat({first, second[column++]});
    return in_place ? joined : rows_of_columns(joined, places).leaf();
  });
}

SpecNest Plan::element_spec() const {
  auto first = preview()->next();
  if (!first)
    throw FailedPrecondition(
        cat("element_spec [", name(),
            "]: the dataset is empty, expected an element to tell its shape by; give "
            "from_generator a spec, or fill the source"));
  return spec_of(*first);
}

InputContext::InputContext(int num_input_pipelines, int input_pipeline_id, int num_replicas_in_sync)
    : num_input_pipelines_(num_input_pipelines),
      input_pipeline_id_(input_pipeline_id),
      num_replicas_in_sync_(num_replicas_in_sync) {
  if (num_input_pipelines < 1 || num_replicas_in_sync < 1 || input_pipeline_id < 0 ||
      input_pipeline_id >= num_input_pipelines) {
    throw InvalidArgument(cat("InputContext: pipeline ", input_pipeline_id, " of ",
                              num_input_pipelines, " for ", num_replicas_in_sync,
                              " replicas, expected positive numbers and a pipeline below their "
                              "number"));
  }
}

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  if (global_batch_size < 1) {
    throw InvalidArgument(
        cat("get_per_replica_batch_size: ", global_batch_size, " rows, expected at least 1"));
  }
  if (global_batch_size % num_replicas_in_sync_ != 0) {
    throw InvalidArgument(
        cat("get_per_replica_batch_size: ", global_batch_size, " rows for ", num_replicas_in_sync_,
            " replicas, expected a multiple; choose a global batch size that divides"));
  }
  return global_batch_size / num_replicas_in_sync_;
}

std::string InputContext::to_string() const {
  return cat("InputContext(input pipeline id ", input_pipeline_id_,
             ", total: ", num_input_pipelines_, ")");
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
