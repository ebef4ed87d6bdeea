// Batches of tensors of different shapes as sparse tensors.

#include <ATen/ATen.h>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

/// Checks an element against the rows' shape; `sizes`, the batch's row, grows where it is unknown.
void fit(const Nest& element, const std::vector<int64_t>& row_shape, std::vector<int64_t>& sizes) {
  if (!element.is_leaf() || !element.leaf().defined() || element.leaf().layout() != at::kStrided) {
    throw InvalidArgument(cat("sparse_batch: an element ", element.structure(),
                              ", expected one dense tensor; select it with map"));
  }
  const Tensor& row = element.leaf();
  bool fits = row.dim() == static_cast<int64_t>(row_shape.size());
  for (std::size_t d = 0; fits && d < row_shape.size(); ++d) {
    const int64_t size = row.size(static_cast<int64_t>(d));
    if (row_shape[d] < 0) {
      sizes[d] = std::max(sizes[d], size);
    } else {
      fits = size <= row_shape[d];
    }
  }
  if (!fits) {
    throw InvalidArgument(cat("sparse_batch: an element ", TensorSpec::of(row),
                              " for rows of shape ", shape_text(row_shape),
                              ", expected as many dimensions, none larger"));
  }
}

/// Row after row, each in row-major order: what LibTorch calls coalesced.
Tensor sparse(const std::vector<Tensor>& rows, const std::vector<int64_t>& row_sizes) {
  const auto dims = static_cast<int64_t>(row_sizes.size());
  int64_t count = 0;
  for (const Tensor& row : rows) count += row.numel();
  const Tensor indices = at::empty({1 + dims, count}, at::kLong);
  std::vector<Tensor> values;
  auto* index = indices.data_ptr<int64_t>();
  int64_t at = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Tensor& row = rows[r];
    if (row.scalar_type() != rows[0].scalar_type()) {
      throw InvalidArgument(cat("sparse_batch: elements ", TensorSpec::of(rows[0]), " and ",
                                TensorSpec::of(row), ", expected one dtype"));
    }
    values.push_back(row.reshape({-1}));
    for (int64_t i = 0; i < row.numel(); ++i, ++at) {
      int64_t rest = i;
      for (int64_t d = dims - 1; d >= 0; --d) {
        index[(1 + d) * count + at] = rest % row.size(d);
        rest /= row.size(d);
      }
      index[at] = static_cast<int64_t>(r);
    }
  }
  std::vector<int64_t> sizes = row_sizes;
  sizes.insert(sizes.begin(), static_cast<int64_t>(rows.size()));
  const Tensor all = at::cat(values);
  return at::sparse_coo_tensor(indices.to(all.device()), all, sizes,
                               all.options().layout(at::kSparse))
      ._coalesced_(true);
}

class SparseBatchPlan : public PassPlan {
 public:
  SparseBatchPlan(PlanPtr input, int64_t size, std::vector<int64_t> row_shape)
      : PassPlan(std::move(input)), size_(size), row_shape_(std::move(row_shape)) {}
  std::string name() const override { return "sparse_batch"; }
  std::string arguments() const override { return cat(size_, ", ", shape_text(row_shape_)); }
  int64_t cardinality() const override {
    const int64_t elements = input().cardinality();
    return elements < 0 ? elements : (elements + size_ - 1) / size_;
  }
  std::optional<int64_t> batch_size() const override { return size_; }
  int64_t num_rows() const override { return input().cardinality(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<SparseBatchPlan>(std::move(inputs[0]), size_, row_shape_);
  }
  SpecNest element_spec() const override {
    return input().element_spec().map_leaves([this](TensorSpec leaf) {
      leaf.shape = row_shape_;
      leaf.shape.insert(leaf.shape.begin(), -1);
      leaf.unknown_rank = false;
      return leaf;
    });
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), size_, row_shape_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t size, std::vector<int64_t> row_shape)
        : input(std::move(input)), size(size), row_shape(std::move(row_shape)) {}
    std::optional<Nest> next() override {
      std::vector<int64_t> sizes = row_shape;
      for (int64_t& unknown : sizes) unknown = std::max<int64_t>(unknown, 0);
      std::vector<Tensor> rows;
      while (static_cast<int64_t>(rows.size()) < size) {
        auto element = input->next();
        if (!element) break;
        fit(*element, row_shape, sizes);
        rows.push_back(element->leaf());
      }
      if (rows.empty()) return std::nullopt;
      return Nest(sparse(rows, sizes));
    }
    Nest save() const override { return input->save(); }
    void restore(const Nest& saved) override { input->restore(saved); }
    std::unique_ptr<Iterator> input;
    int64_t size;
    std::vector<int64_t> row_shape;
  };
  int64_t size_;
  std::vector<int64_t> row_shape_;
};

}  // namespace

PlanPtr plans::sparse_batch(PlanPtr input, int64_t size, std::vector<int64_t> row_shape) {
  if (size < 1)
    throw InvalidArgument(cat("sparse_batch: ", size, " elements, expected at least 1"));
  for (int64_t dim : row_shape) {
    if (dim < -1)
      throw InvalidArgument(cat("sparse_batch: row_shape ", shape_text(row_shape),
                                ", expected sizes, or -1 where they are unknown"));
  }
  return std::make_shared<SparseBatchPlan>(std::move(input), size, std::move(row_shape));
}

}  // namespace tutti::data
