#pragma once
// Shared by the plans: a plan with one input, and an iterator over one.

#include <functional>

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/plan.h"

namespace tutti::data {

class PassSeeds;

/// Its bytes stand one after the other, as they are read: memcpy copies it.
bool is_plain(const Tensor& tensor);
/// The element with storage of its own.
Nest cloned(const Nest& element);
/// Number of rows of a batch. Throws when a component has no rows, or another number of them.
int64_t rows_of(const char* operation, const Nest& batch);
/// Rows `begin` to below `begin + count` of a batch: a view, a copy where the layout has none.
Nest slice_rows(const Nest& batch, int64_t begin, int64_t count);

/// What is left of a batch, for the state of an iterator: rows from `row` on; None without any.
Nest saved_rows(const Nest& batch, int64_t row, int64_t rows);
/// Takes it from "batch" in `saved`; the number of rows.
int64_t restored_rows(const char* operation, const Nest& saved, Nest& batch);

/// Several elements, their components side by side.
struct ElementColumns {
  Nest structure;
  std::vector<std::vector<Tensor>> columns;        // [leaf][element]
  std::vector<std::vector<StringTensor>> strings;  // [strings][element]
  int64_t count = 0;

  /// InvalidArgument when the structure is not that of the others, or has datasets in it;
  /// `operation` says whose error it is.
  void add(const char* operation, const Nest& element);
  /// Their structure with each column of tensors or strings made into one component.
  template <class OfTensors, class OfStrings>
  Nest joined(OfTensors of_tensors, OfStrings of_strings) const {
    std::size_t column = 0, text = 0;
    return structure.map_components(
        [&](const Tensor&) -> Tensor { return of_tensors(columns[column++]); },
        [&](const StringTensor&) -> StringTensor { return of_strings(strings[text++]); });
  }
};
/// Up to `size` elements.
ElementColumns take_columns(const char* operation, Iterator& input, int64_t size);

/// The spec that accepts the elements of all of these; those without elements are left out.
/// InvalidArgument when structures or dtypes differ.
SpecNest common_spec(const char* operation, const std::vector<PlanPtr>& plans);

/// What stands in a spec for a component that is no tensor: this text, or a dataset of such
/// elements.
NestObjectPtr text_spec(std::string text);
NestObjectPtr dataset_spec(const SpecNest& element_spec);

/// map without num_parallel_calls, which draws from these seeds.
PlanPtr map_one_by_one(PlanPtr input, std::function<Nest(const Nest&)> function,
                       std::shared_ptr<PassSeeds> seeds);

/// shard(kShardHint, kShardHint).
PlanPtr shard_hint(PlanPtr input);

/// The elements stacked along a new first axis. Throws InvalidArgument when their structures,
/// shapes or dtypes differ.
Nest stacked(const std::vector<Nest>& elements);
Nest stacked(const ElementColumns& elements);

/// Says once that `deterministic` does nothing without num_parallel_calls.
void warn_of_deterministic(const char* operation, const std::optional<bool>& deterministic);

/// "true" and "false" in the arguments of plans.
inline const char* bool_text(bool value) { return value ? "true" : "false"; }
/// `, drop_remainder=true`, or nothing.
inline std::string drop_text(bool drop_remainder) {
  return drop_remainder ? ", drop_remainder=true" : "";
}
/// `, name=value`, or nothing.
template <class Value>
std::string optional_text(const char* name, const std::optional<Value>& value) {
  return value ? cat(", ", name, "=", *value) : "";
}

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

/// Of a plan whose function is applied to each element of its input: as seen, but what is seen of
/// one batch tells nothing of the number of rows of the others.
SpecNest mapped_spec(const Plan& plan, const SeenSpec& seen);

/// An iterator that hands on elements of its input as they are; rows stay rows.
class ForwardingIterator : public Iterator {
 public:
  explicit ForwardingIterator(std::unique_ptr<Iterator> input) : input_(std::move(input)) {}
  const RowTable* table() const override { return input_->table(); }

 protected:
  Iterator& input() { return *input_; }
  const Iterator& input() const { return *input_; }

 private:
  std::unique_ptr<Iterator> input_;
};

}  // namespace tutti::data
