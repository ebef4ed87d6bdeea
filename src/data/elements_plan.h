#pragma once
// A dataset of elements at hand: a window, a group.

#include <memory>
#include <vector>

#include "data/iteration.h"

namespace tutti::data {

/// The component of each element that `path` leads to (its index at each level); the whole one by
/// default. `like`: the plan whose elements they are, for their spec; without it the first one
/// tells.
class ElementsPlan : public Plan {
 public:
  explicit ElementsPlan(std::shared_ptr<const std::vector<Nest>> elements, PlanPtr like = nullptr,
                        std::vector<std::size_t> path = {});
  std::string name() const override { return "elements"; }
  std::string arguments() const override { return cat(elements_->size()); }
  int64_t cardinality() const override { return static_cast<int64_t>(elements_->size()); }
  SpecNest element_spec() const override;
  std::unique_ptr<Iterator> iterator() const override;
  Nest element_at(int64_t index) const override;
  std::vector<Nest> elements() const;

 private:
  struct Pass;
  std::shared_ptr<const std::vector<Nest>> elements_;
  PlanPtr like_;
  std::vector<std::size_t> path_;
};

/// What window makes of elements: the structure of one with a dataset in the place of each
/// component.
Nest window_of(const std::shared_ptr<const std::vector<Nest>>& elements, const PlanPtr& like);

}  // namespace tutti::data
