#pragma once
// Datasets whose elements are those of the datasets that a function gives.

#include "data/element_scope.h"
#include "data/iteration.h"
#include "data/pass_options.h"
#include "data/pass_seeds.h"
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
  Nest save() const;
  Nest argument;
  ElementCall call;
  std::unique_ptr<Iterator> pass;
};

/// Makes them, for one pass of the outer dataset and with its options.
class InnerOpener {
 public:
  /// Of a preview.
  explicit InnerOpener(PlanFunction function) : function_(std::move(function)), preview_(true) {}
  InnerOpener(PlanFunction function, PassSeeds& seeds)
      : function_(std::move(function)), calls_(seeds), options_(current_pass_options()) {}
  /// For the next element. It may be opened on any thread.
  ElementCall next_call() { return calls_.next(); }
  OpenInner open(Nest argument, const ElementCall& call) const;
  OpenInner open_next(Nest argument) { return open(std::move(argument), next_call()); }
  /// As saved: the function is called again.
  OpenInner reopen(const Nest& saved) const;
  /// Of the calls.
  Nest save() const { return calls_.save(); }
  void restore(const Nest& state) { calls_.restore(state); }

 private:
  PlanFunction function_;
  bool preview_ = false;
  CallSeeds calls_;
  PassOptions options_;
};

/// flat_map and interleave in what they have in common.
class NestedPlan : public UnaryPlan {
 public:
  NestedPlan(const char* name, PlanPtr input, PlanFunction function,
             std::shared_ptr<PassSeeds> seeds)
      : UnaryPlan(std::move(input)),
        name_(name),
        function_(std::move(function)),
        seeds_(std::move(seeds)) {}
  std::string name() const override { return name_; }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  SpecNest element_spec() const override { return first_.spec(name_, input(), function_); }
  std::optional<int64_t> batch_size() const override {
    return first_.batch_size(input(), function_);
  }
  bool function_reads_files() const override { return first_.reads_files(input(), function_); }

  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }

 protected:
  const PlanFunction& function() const { return function_; }
  const std::shared_ptr<PassSeeds>& seeds() const { return seeds_; }
  InnerOpener opener() const { return InnerOpener(function_, *seeds_); }

 private:
  const char* name_;
  PlanFunction function_;
  std::shared_ptr<PassSeeds> seeds_;
  FirstInner first_;
};

/// interleave without num_parallel_calls, which draws from these seeds.
PlanPtr interleave_one_by_one(PlanPtr input, PlanFunction function,
                              const InterleaveOptions& options, std::shared_ptr<PassSeeds> seeds);

/// The arguments of interleave with its defaults filled in.
struct InterleaveShape {
  /// InvalidArgument for lengths below 1.
  explicit InterleaveShape(const InterleaveOptions& options);
  std::string text() const;
  std::size_t cycle_length;
  int64_t block_length;
};

}  // namespace tutti::data
