#pragma once
// Shared by the plans: a plan with one input, and an iterator over one.

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/plan.h"

namespace tutti::data {

/// Its bytes stand one after the other, as they are read: memcpy copies it.
bool is_plain(const Tensor& tensor);
/// The element with storage of its own.
Nest cloned(const Nest& element);
/// Number of rows of a batch. Throws when a component has no rows, or another number of them.
int64_t rows_of(const char* operation, const Nest& batch);
/// Rows `begin` to below `begin + count` of a batch: a view, a copy where the layout has none.
Nest slice_rows(const Nest& batch, int64_t begin, int64_t count);

/// Up to `size` elements, their leaves side by side.
struct ElementColumns {
  Nest structure;
  std::vector<std::vector<Tensor>> columns;  // [leaf][element]
  int64_t count = 0;
};
/// InvalidArgument when structures differ; `operation` says whose error it is.
ElementColumns take_columns(const char* operation, Iterator& input, int64_t size);

/// shard(kShardHint, kShardHint).
PlanPtr shard_hint(PlanPtr input);

/// The elements stacked along a new first axis. Throws InvalidArgument when their structures,
/// shapes or dtypes differ.
Nest stacked(const std::vector<Nest>& elements);

/// The table of a pass, if it has columns for all of its rows.
inline const RowTable* columns_of(const Iterator& pass) {
  const RowTable* table = pass.table();
  return table != nullptr && table->has_columns() ? table : nullptr;
}

/// next_rows, then `after(how many came)`, also when an element throws.
template <class After>
void read_rows(Iterator& input, int64_t count, std::vector<int64_t>& indices, After after) {
  const std::size_t before = indices.size();
  try {
    input.next_rows(count, indices);
  } catch (...) {
    after(static_cast<int64_t>(indices.size() - before));
    throw;
  }
  after(static_cast<int64_t>(indices.size() - before));
}

/// By default elements look like the input's.
class UnaryPlan : public Plan {
 public:
  explicit UnaryPlan(PlanPtr input) : Plan({std::move(input)}) {}
  const Plan& input() const { return *inputs()[0]; }
  int64_t cardinality() const override { return input().cardinality(); }
  SpecNest element_spec() const override { return input().element_spec(); }
  std::unique_ptr<Iterator> preview() const override { return input().preview(); }
};

/// A plan whose pass reads one pass of its input.
class PassPlan : public UnaryPlan {
 public:
  using UnaryPlan::UnaryPlan;
  std::unique_ptr<Iterator> iterator() const final { return over(input().iterator()); }
  std::unique_ptr<Iterator> preview() const final { return over(input().preview()); }

 private:
  virtual std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const = 0;
};

/// The spec of a plan whose elements alone tell it, looked at once.
class SeenSpec {
 public:
  SpecNest of(const Plan& plan) const {
    {
      MutexLock lock(mutex_);
      if (spec_) return *spec_;
    }
    // Without the lock: this runs functions of the user.
    SpecNest seen = plan.Plan::element_spec();
    MutexLock lock(mutex_);
    if (!spec_) spec_ = std::move(seen);
    return *spec_;
  }

 private:
  mutable Mutex mutex_;
  mutable std::optional<SpecNest> spec_ TUTTI_GUARDED_BY(mutex_);
};

/// An iterator that hands on elements of its input as they are; rows stay rows.
class ForwardingIterator : public Iterator {
 public:
  explicit ForwardingIterator(std::unique_ptr<Iterator> input) : input_(std::move(input)) {}
  const RowTable* table() const override { return input_->table(); }

 protected:
  Iterator& input() { return *input_; }

 private:
  std::unique_ptr<Iterator> input_;
};

}  // namespace tutti::data
