#include "tutti/ps/sharded_variable.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

using Shards = std::vector<std::shared_ptr<VariableShard>>;

class WholeVariable final : public VariableShard {
 public:
  explicit WholeVariable(Variable variable) : variable_(std::move(variable)) {}
  const std::string& name() const override { return variable_.name(); }
  std::vector<int64_t> sizes() const override { return variable_.sizes().vec(); }
  at::ScalarType dtype() const override { return variable_.dtype(); }
  Tensor read() override { return variable_.read_value(); }
  Tensor gather(const Tensor& ids) override {
    at::NoGradGuard no_grad;
    return variable_.value().index_select(0, ids);
  }
  void write(Write kind, const Tensor& value) override {
    switch (kind) {
      case Write::kAssign:
        variable_.assign(value);
        return;
      case Write::kAdd:
        variable_.assign_add(value);
        return;
      case Write::kSub:
        variable_.assign_sub(value);
        return;
    }
  }
  void scatter(Write kind, const IndexedSlices& slices) override {
    switch (kind) {
      case Write::kAssign:
        variable_.scatter_update(slices);
        return;
      case Write::kAdd:
        variable_.scatter_add(slices);
        return;
      case Write::kSub:
        variable_.scatter_sub(slices);
        return;
    }
  }

 private:
  Variable variable_;
};

void check_shards(const Shards& shards, const std::string& name) {
  const std::string where = cat("ShardedVariable [", name, "]: ");
  if (shards.empty()) throw InvalidArgument(where + "no shards, expected one at least");
  std::vector<std::string> dtypes, shapes;
  bool one_dtype = true, one_shape = true;
  for (const auto& shard : shards) {
    const auto sizes = shard->sizes(), first = shards[0]->sizes();
    dtypes.push_back(dtype_name(shard->dtype()));
    shapes.push_back(shape_text(sizes));
    one_dtype = one_dtype && shard->dtype() == shards[0]->dtype();
    one_shape = one_shape && !sizes.empty() && sizes.size() == first.size() &&
                std::equal(sizes.begin() + 1, sizes.end(), first.begin() + 1);
  }
  if (!one_dtype) {
    throw InvalidArgument(
        cat(where, "shards of the dtypes ", join(dtypes, ", "), ", expected the same dtype"));
  }
  if (!one_shape) {
    throw InvalidArgument(cat(where, "shards of the shapes ", join(shapes, ", "),
                              ", expected the same shapes except for the first axis"));
  }
}

/// The rows of a slice, as Python counts them.
std::vector<int64_t> rows_of(const Slice& slice, int64_t rows, const std::string& name) {
  if (slice.step == 0)
    throw InvalidArgument(cat("ShardedVariable::slice [", name, "]: step 0, expected another"));
  const bool forward = slice.step > 0;
  const auto bound = [&](std::optional<int64_t> at, int64_t missing) {
    if (!at) return missing;
    const int64_t index = *at < 0 ? *at + rows : *at;
    return std::clamp<int64_t>(index, forward ? 0 : -1, forward ? rows : rows - 1);
  };
  const int64_t start = bound(slice.start, forward ? 0 : rows - 1);
  const int64_t stop = bound(slice.stop, forward ? rows : -1);
  // A step over all of them ends the slice as any longer one does.
  const int64_t over_all = std::max<int64_t>(rows, 1);
  const int64_t step = std::clamp(slice.step, -over_all, over_all);
  std::vector<int64_t> all;
  for (int64_t at = start; forward ? at < stop : at > stop; at += step) all.push_back(at);
  return all;
}

Tensor tensor_of(const std::vector<int64_t>& values) {
  Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

}  // namespace

std::shared_ptr<VariableShard> shard_of(const Variable& variable) {
  return std::make_shared<WholeVariable>(variable);
}

struct ShardedVariable::Impl {
  std::string name;
  Shards shards;
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;

  /// The shard that holds a row in range.
  std::size_t shard_with(int64_t row) const {
    return static_cast<std::size_t>(std::upper_bound(offsets.begin(), offsets.end(), row) -
                                    offsets.begin()) -
           1;
  }
  /// Copies of rows in range, in their order; each shard is asked once, for each row once.
  Tensor gather(const Tensor& rows) const {
    std::vector<int64_t> shape = sizes;
    shape[0] = rows.numel();
    Tensor result = at::empty(shape, shards[0]->dtype());
    if (rows.numel() == 0) return result;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const int64_t end = i + 1 < shards.size() ? offsets[i + 1] : sizes[0];
      const Tensor places = rows.ge(offsets[i]).logical_and_(rows.lt(end)).nonzero().squeeze(1);
      if (places.numel() == 0) continue;
      const auto [ids, where, counts] =
          at::_unique2(rows.index_select(0, places).sub(offsets[i]), /*sorted=*/true,
                       /*return_inverse=*/true);
      result.index_copy_(0, places, shards[i]->gather(ids).index_select(0, where));
    }
    return result;
  }
  void check_rows(const char* operation, const Tensor& ids) const {
    if (ids.numel() == 0) return;
    const auto low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
    if (low < 0 || high >= sizes[0]) {
      throw OutOfRange(cat(operation, " [", name, "]: the id ", low < 0 ? low : high,
                           ", expected one in [0, ", sizes[0], ")"));
    }
  }
};

ShardedVariable::ShardedVariable(Shards shards, std::string name)
    : impl_(std::make_shared<Impl>()) {
  check_shards(shards, name);
  impl_->name = std::move(name);
  impl_->sizes = shards[0]->sizes();
  impl_->sizes[0] = 0;
  for (const auto& shard : shards) {
    impl_->offsets.push_back(impl_->sizes[0]);
    impl_->sizes[0] += shard->sizes()[0];
  }
  impl_->shards = std::move(shards);
}

ShardedVariable::ShardedVariable(const std::vector<Variable>& variables, std::string name)
    : ShardedVariable(
          [&] {
            Shards shards;
            for (const Variable& variable : variables) shards.push_back(shard_of(variable));
            return shards;
          }(),
          std::move(name)) {}

const std::string& ShardedVariable::name() const { return impl_->name; }
std::vector<int64_t> ShardedVariable::sizes() const { return impl_->sizes; }
at::ScalarType ShardedVariable::dtype() const { return impl_->shards[0]->dtype(); }
std::size_t ShardedVariable::num_shards() const { return impl_->shards.size(); }
const std::vector<int64_t>& ShardedVariable::offsets() const { return impl_->offsets; }
const Shards& ShardedVariable::shards() const { return impl_->shards; }

Tensor ShardedVariable::read_value() const {
  std::vector<Tensor> parts;
  for (const auto& shard : impl_->shards) parts.push_back(shard->read());
  return at::cat(parts, 0);
}

ShardedVariable& ShardedVariable::write(const char* operation, VariableShard::Write kind,
                                        const Tensor& value) {
  const TensorSpec own{impl_->sizes, dtype()};
  if (TensorSpec::of(value) != own) {
    throw InvalidArgument(cat(operation, " [", name(), "]: found ", TensorSpec::of(value),
                              ", expected ", own, ", the variable's"));
  }
  for (std::size_t i = 0; i < impl_->shards.size(); ++i) {
    const int64_t rows = impl_->shards[i]->sizes()[0];
    impl_->shards[i]->write(kind, value.narrow(0, impl_->offsets[i], rows));
  }
  return *this;
}
ShardedVariable& ShardedVariable::assign(const Tensor& value) {
  return write("assign", VariableShard::Write::kAssign, value);
}
ShardedVariable& ShardedVariable::assign_add(const Tensor& delta) {
  return write("assign_add", VariableShard::Write::kAdd, delta);
}
ShardedVariable& ShardedVariable::assign_sub(const Tensor& delta) {
  return write("assign_sub", VariableShard::Write::kSub, delta);
}

ShardedVariable& ShardedVariable::scatter(const char* operation, VariableShard::Write kind,
                                          const IndexedSlices& slices) {
  IndexedSlices whole = slices;
  if (whole.dense_shape.empty()) whole.dense_shape = impl_->sizes;
  if (whole.dense_shape != impl_->sizes) {
    throw InvalidArgument(cat(operation, " [", name(), "]: rows of the shape ",
                              shape_text(whole.dense_shape), ", expected ",
                              shape_text(impl_->sizes), ", the variable's"));
  }
  whole.check();
  for (std::size_t i = 0; i < impl_->shards.size(); ++i) {
    std::vector<int64_t> shape = impl_->shards[i]->sizes();
    const int64_t begin = impl_->offsets[i];
    const Tensor places = whole.indices.ge(begin)
                              .logical_and_(whole.indices.lt(begin + shape[0]))
                              .nonzero()
                              .squeeze(1);
    if (places.numel() == 0) continue;
    impl_->shards[i]->scatter(kind, {whole.values.index_select(0, places),
                                     whole.indices.index_select(0, places).sub(begin), shape});
  }
  return *this;
}
ShardedVariable& ShardedVariable::scatter_add(const IndexedSlices& slices) {
  return scatter("scatter_add", VariableShard::Write::kAdd, slices);
}
ShardedVariable& ShardedVariable::scatter_sub(const IndexedSlices& slices) {
  return scatter("scatter_sub", VariableShard::Write::kSub, slices);
}
ShardedVariable& ShardedVariable::scatter_update(const IndexedSlices& slices) {
  return scatter("scatter_update", VariableShard::Write::kAssign, slices);
}

Tensor ShardedVariable::operator[](int64_t index) const {
  const int64_t rows = impl_->sizes[0];
  const int64_t row = index < 0 ? index + rows : index;
  if (row < 0 || row >= rows) {
    throw OutOfRange(cat("ShardedVariable [", name(), "]: row ", index, ", expected one in [",
                         -rows, ", ", rows, ")"));
  }
  const std::size_t shard = impl_->shard_with(row);
  return impl_->shards[shard]->gather(tensor_of({row - impl_->offsets[shard]})).squeeze(0);
}

Tensor ShardedVariable::slice(const Slice& rows) const {
  return impl_->gather(tensor_of(rows_of(rows, impl_->sizes[0], name())));
}

Tensor ShardedVariable::masked(const Tensor& mask) const {
  if (mask.scalar_type() != at::kBool || mask.sizes() != at::IntArrayRef({impl_->sizes[0]})) {
    throw InvalidArgument(cat("ShardedVariable::masked [", name(), "]: found ",
                              TensorSpec::of(mask), ", expected ",
                              TensorSpec{{impl_->sizes[0]}, at::kBool}));
  }
  return impl_->gather(mask.nonzero().squeeze(1));
}

Tensor ShardedVariable::embedding_lookup(const Tensor& ids) const {
  if (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt) {
    throw InvalidArgument(cat("embedding_lookup [", name(), "]: ids of dtype ",
                              dtype_name(ids.scalar_type()), ", expected int32 or int64"));
  }
  const Tensor flat = ids.to(at::kLong).reshape({-1});
  impl_->check_rows("embedding_lookup", flat);
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.insert(shape.end(), impl_->sizes.begin() + 1, impl_->sizes.end());
  return impl_->gather(flat).reshape(shape);
}

Tensor embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& ids,
                               Combiner combiner) {
  const bool weighted = ids.weights.defined();
  if (ids.rows.sizes() != ids.values.sizes() || ids.values.dim() != 1 ||
      (weighted && ids.weights.sizes() != ids.values.sizes())) {
    throw InvalidArgument(cat("embedding_lookup_sparse [", table.name(),
                              "]: rows, values and weights of different sizes, expected vectors of "
                              "one size"));
  }
  const Tensor rows = ids.rows.to(at::kLong);
  Tensor found = table.embedding_lookup(ids.values);
  std::vector<int64_t> one_each(static_cast<std::size_t>(found.dim()), 1);
  one_each[0] = -1;
  Tensor weights = weighted ? ids.weights.to(found.scalar_type())
                            : at::ones({ids.values.numel()}, found.options());
  found = found.mul(weights.reshape(one_each));
  std::vector<int64_t> shape = found.sizes().vec();
  shape[0] = ids.num_rows;
  Tensor sums = at::zeros(shape, found.options()).index_add_(0, rows, found);
  if (combiner == Combiner::kSum) return sums;
  if (combiner == Combiner::kSqrtn) weights = weights.square();
  Tensor divisors = at::zeros({ids.num_rows}, found.options()).index_add_(0, rows, weights);
  if (combiner == Combiner::kSqrtn) divisors.sqrt_();
  divisors.masked_fill_(divisors.eq(0), 1);
  return sums.div_(divisors.reshape(one_each));
}

Tensor safe_embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& ids,
                                    Combiner combiner) {
  Tensor keep = ids.values.ge(0);
  if (ids.weights.defined()) keep = keep.logical_and(ids.weights.gt(0));
  const Tensor places = keep.nonzero().squeeze(1);
  SparseIds kept{
      ids.rows.index_select(0, places), ids.values.index_select(0, places), {}, ids.num_rows};
  if (ids.weights.defined()) kept.weights = ids.weights.index_select(0, places);
  return embedding_lookup_sparse(table, kept, combiner);
}

namespace {

class WholeState final : public Trackable {
 public:
  explicit WholeState(ShardedVariable variable) : variable_(std::move(variable)) {}
  Nest state() const override { return variable_.read_value(); }
  void check_state(const Nest& state) const override {
    const TensorSpec own{variable_.sizes(), variable_.dtype()};
    if (!state.is_leaf() || TensorSpec::of(state.leaf()) != own) {
      throw InvalidArgument(
          cat("restore [", variable_.name(), "]: found ", spec_of(state), ", expected ", own));
    }
  }
  void set_state(const Nest& state) override { variable_.assign(state.leaf()); }

 private:
  ShardedVariable variable_;
};

}  // namespace

std::shared_ptr<Trackable> trackable(const ShardedVariable& variable) {
  return std::make_shared<WholeState>(variable);
}

}  // namespace tutti::distribute
