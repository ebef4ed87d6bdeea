#pragma once
// Shared by the plans: a plan with one input, and an iterator over one.

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/plan.h"

namespace tutti::data {

class UnaryPlan : public Plan {
 public:
  explicit UnaryPlan(PlanPtr input) : Plan({std::move(input)}) {}
  const Plan& input() const { return *inputs()[0]; }
  int64_t cardinality() const override { return input().cardinality(); }
  SpecNest element_spec() const override { return input().element_spec(); }
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
