#pragma once
// One variable cut along its first axis into several, each of which may live elsewhere.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/trackable.h"

namespace tutti::distribute {

/// One part of a ShardedVariable, wherever it is kept.
class VariableShard {
 public:
  virtual ~VariableShard() = default;
  virtual const std::string& name() const = 0;
  virtual std::vector<int64_t> sizes() const = 0;
  virtual at::ScalarType dtype() const = 0;
  /// A copy of all of it.
  virtual Tensor read() = 0;
  /// Copies of the rows `ids` (int64, in range, any order, repeats).
  virtual Tensor gather(const Tensor& ids) = 0;
  enum class Write { kAssign, kAdd, kSub };
  /// `value` has the shard's shape and dtype.
  virtual void write(Write kind, const Tensor& value) = 0;
  /// The rows `slices.indices`; duplicates are applied one after the other.
  virtual void scatter(Write kind, const IndexedSlices& slices) = 0;
};
/// A variable as a shard.
std::shared_ptr<VariableShard> shard_of(const Variable& variable);

/// Python's start:stop:step; what is not given is the end that the step's sign says.
struct Slice {
  std::optional<int64_t> start = std::nullopt;
  std::optional<int64_t> stop = std::nullopt;
  int64_t step = 1;
};

/// A handle: copies share the shards. Its rows are those of the shards, one after another. Reads
/// and assignments go to the shards that they touch, to several at the same time where those are on
/// other machines; one shard's are done together, those of several need not be seen together. Any
/// thread may call, as far as the shards allow.
class ShardedVariable {
 public:
  /// InvalidArgument unless there is one at least, all of one dtype, and of one shape but for the
  /// first axis.
  explicit ShardedVariable(std::vector<std::shared_ptr<VariableShard>> shards,
                           std::string name = "ShardedVariable");
  explicit ShardedVariable(const std::vector<Variable>& variables,
                           std::string name = "ShardedVariable");

  const std::string& name() const;
  std::vector<int64_t> sizes() const;
  at::ScalarType dtype() const;
  std::size_t num_shards() const;
  /// First row of each shard.
  const std::vector<int64_t>& offsets() const;
  const std::vector<std::shared_ptr<VariableShard>>& shards() const;
  auto begin() const { return shards().begin(); }
  auto end() const { return shards().end(); }

  /// A copy of all rows.
  Tensor read_value() const;
  operator Tensor() const { return read_value(); }  // NOLINT: stands where a tensor does

  /// Each cuts `value`, which has the variable's shape and dtype (InvalidArgument, nothing is
  /// changed), by the offsets.
  ShardedVariable& assign(const Tensor& value);
  ShardedVariable& assign_add(const Tensor& delta);
  ShardedVariable& assign_sub(const Tensor& delta);
  /// Rows by their index in the whole variable; duplicates are applied one after the other.
  ShardedVariable& scatter_add(const IndexedSlices& slices);
  ShardedVariable& scatter_sub(const IndexedSlices& slices);
  ShardedVariable& scatter_update(const IndexedSlices& slices);

  /// One row; negative indices count from the end. OutOfRange.
  Tensor operator[](int64_t index) const;
  /// Rows as Python's slice gives them: only shards with one of them are asked. InvalidArgument for
  /// a step of 0.
  Tensor slice(const Slice& rows) const;
  /// Rows for which the bool vector `mask` is true. InvalidArgument for another size or dtype.
  Tensor masked(const Tensor& mask) const;

  /// Rows `ids` (int32 or int64, of any shape): ids.sizes() + sizes()[1:]. Each shard is asked once
  /// for its rows, each row once; the table does not move. OutOfRange for an id that is no row. No
  /// gradient.
  Tensor embedding_lookup(const Tensor& ids) const;

 private:
  ShardedVariable& write(const char* operation, VariableShard::Write kind, const Tensor& value);
  ShardedVariable& scatter(const char* operation, VariableShard::Write kind,
                           const IndexedSlices& slices);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Ids of several rows of lookups: `values[i]` belongs to row `rows[i]`; `weights`, of as many
/// entries, may be undefined: 1 each. Rows ascend.
struct SparseIds {
  Tensor rows;
  Tensor values;
  Tensor weights = {};
  int64_t num_rows = 0;
};
enum class Combiner { kSum, kMean, kSqrtn };
/// For each row of `ids` the weighted sum of its lookups, divided as the combiner says by the sum
/// of the weights (MEAN) or the root of the sum of their squares (SQRTN). A row without ids is
/// zero.
Tensor embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& ids,
                               Combiner combiner = Combiner::kMean);
/// The same without ids below 0 and those with a weight of 0 or less.
Tensor safe_embedding_lookup_sparse(const ShardedVariable& table, const SparseIds& ids,
                                    Combiner combiner = Combiner::kMean);

/// The whole as a part of a checkpoint: one tensor under its name, so any number of shards takes
/// it.
std::shared_ptr<Trackable> trackable(const ShardedVariable& variable);

}  // namespace tutti::distribute
