#pragma once
// Datasets whose elements are those of the datasets that a function gives.

#include "data/iteration.h"
#include "tutti/data/plans.h"

namespace tutti::data {

/// The first dataset that a function gives, which tells what the others are like. Looked at once.
class FirstInner {
 public:
  /// Of the first element of a preview of `input`; null when there is none.
  PlanPtr of(const Plan& input, const PlanFunction& function) const;
  /// Its spec; FailedPrecondition when there is none.
  SpecNest spec(const char* operation, const Plan& input, const PlanFunction& function) const;
  /// Its batch size, whether it reads files: nothing and false when that cannot be told.
  std::optional<int64_t> batch_size(const Plan& input, const PlanFunction& function) const;
  bool reads_files(const Plan& input, const PlanFunction& function) const;

 private:
  mutable Mutex mutex_;
  mutable bool seen_ TUTTI_GUARDED_BY(mutex_) = false;
  mutable PlanPtr plan_ TUTTI_GUARDED_BY(mutex_);
};

/// A dataset that a function gave for an element, and one pass over it.
struct OpenInner {
  OpenInner(Nest argument, const PlanFunction& function, bool preview);
  /// As saved: the function is called again.
  OpenInner(const Nest& saved, const PlanFunction& function);
  Nest save() const;
  Nest argument;
  PlanPtr plan;
  std::unique_ptr<Iterator> pass;
};

/// flat_map and interleave in what they have in common.
class NestedPlan : public UnaryPlan {
 public:
  NestedPlan(const char* name, PlanPtr input, PlanFunction function)
      : UnaryPlan(std::move(input)), name_(name), function_(std::move(function)) {}
  std::string name() const override { return name_; }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  SpecNest element_spec() const override { return first_.spec(name_, input(), function_); }
  std::optional<int64_t> batch_size() const override {
    return first_.batch_size(input(), function_);
  }
  bool function_reads_files() const override { return first_.reads_files(input(), function_); }

 protected:
  const PlanFunction& function() const { return function_; }

 private:
  const char* name_;
  PlanFunction function_;
  FirstInner first_;
};

/// The arguments of interleave with its defaults filled in.
struct InterleaveShape {
  /// InvalidArgument for lengths below 1.
  explicit InterleaveShape(const InterleaveOptions& options);
  std::string text() const;
  std::size_t cycle_length;
  int64_t block_length;
};

}  // namespace tutti::data
