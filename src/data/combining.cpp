// Transformations of several datasets.

#include "data/iteration.h"
#include "tutti/data/dataset.h"

namespace tutti::data::plans {
namespace {

class ZipPlan : public Plan {
 public:
  using Plan::Plan;
  std::string name() const override { return "zip"; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ZipPlan>(std::move(inputs));
  }
  int64_t cardinality() const override {
    int64_t size = kInfinite;
    for (const PlanPtr& input : inputs()) {
      const int64_t other = input->cardinality();
      if (other == kUnknown) return kUnknown;
      if (other != kInfinite) size = size == kInfinite ? other : std::min(size, other);
    }
    return size;
  }
  SpecNest element_spec() const override {
    std::vector<SpecNest> specs;
    for (const PlanPtr& input : inputs()) specs.push_back(input->element_spec());
    return SpecNest::tuple(std::move(specs));
  }
  std::unique_ptr<Iterator> iterator() const override {
    auto pass = std::make_unique<Pass>();
    for (const PlanPtr& input : inputs()) pass->inputs.push_back(input->iterator());
    return pass;
  }
  std::unique_ptr<Iterator> preview() const override {
    auto pass = std::make_unique<Pass>();
    for (const PlanPtr& input : inputs()) pass->inputs.push_back(input->preview());
    return pass;
  }

 private:
  struct Pass : Iterator {
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      std::vector<Nest> items;
      for (auto& input : inputs) {
        auto element = input->next();
        done = !element;
        if (done) return std::nullopt;
        items.push_back(std::move(*element));
      }
      return Nest::tuple(std::move(items));
    }
    std::vector<std::unique_ptr<Iterator>> inputs;
    bool done = false;
  };
};

class ConcatenatePlan : public Plan {
 public:
  using Plan::Plan;
  std::string name() const override { return "concatenate"; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ConcatenatePlan>(std::move(inputs));
  }
  int64_t cardinality() const override {
    const int64_t a = inputs()[0]->cardinality();
    const int64_t b = inputs()[1]->cardinality();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    return a == kUnknown || b == kUnknown ? kUnknown : a + b;
  }
  SpecNest element_spec() const override {
    if (inputs()[0]->cardinality() == 0) return inputs()[1]->element_spec();
    const SpecNest a = inputs()[0]->element_spec();
    if (inputs()[1]->cardinality() == 0) return a;
    const auto theirs = flatten(inputs()[1]->element_spec());
    std::size_t next = 0;
    return a.map_leaves([&](const TensorSpec& leaf) { return leaf.relaxed_with(theirs[next++]); });
  }
  std::unique_ptr<Iterator> iterator() const override {
    auto first = inputs()[0]->iterator();
    if (columns_of(*first) == nullptr)
      return std::make_unique<Pass>(std::move(first), nullptr, inputs()[1], nullptr);
    auto second = inputs()[1]->iterator();
    auto table = joined(columns_of(*first), columns_of(*second));
    return std::make_unique<Pass>(std::move(first), std::move(second), inputs()[1],
                                  std::move(table));
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(inputs()[0]->preview(), inputs()[1]->preview(), inputs()[1],
                                  nullptr);
  }

 private:
  /// `second` is made when its turn comes, if it is not yet.
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> first, std::unique_ptr<Iterator> second, PlanPtr plan,
         std::shared_ptr<const RowTable> table)
        : current(std::move(first)),
          second(std::move(second)),
          plan(std::move(plan)),
          rows(std::move(table)),
          first_rows(rows ? total_rows(*current->table()) : 0) {}
    std::optional<Nest> next() override {
      for (;;) {
        auto element = current->next();
        if (element || !turn()) return element;
      }
    }
    const RowTable* table() const override { return rows.get(); }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      const std::size_t target = indices.size() + static_cast<std::size_t>(count);
      if (plan) current->next_rows(count, indices);
      if (indices.size() == target) return;
      turn();
      const std::size_t from = indices.size();
      current->next_rows(static_cast<int64_t>(target - from), indices);
      for (std::size_t i = from; i < indices.size(); ++i) indices[i] += first_rows;
    }
    bool turn() {
      if (!plan) return false;
      current = second ? std::move(second) : plan->iterator();
      plan = nullptr;
      return true;
    }
    std::unique_ptr<Iterator> current;
    std::unique_ptr<Iterator> second;
    PlanPtr plan;  // null: the second has its turn
    std::shared_ptr<const RowTable> rows;
    int64_t first_rows;
  };

  static int64_t total_rows(const RowTable& table) {
    return table.num_rows + (table.behind ? total_rows(*table.behind) : 0);
  }
  static RowTable append(const RowTable& first, const RowTable& second) {
    return {first.structure, first.num_rows,
            std::make_shared<RowTable>(first.behind ? append(*first.behind, second) : second)};
  }
  static bool alike(const RowTable& first, const RowTable& second) {
    if (!same_structure(first.structure, second.structure)) return false;
    const auto a = flatten(first.structure);
    const auto b = flatten(second.structure);
    const auto texts = flatten_strings(first.structure);
    const auto others = flatten_strings(second.structure);
    const bool strings_alike =
        std::equal(texts.begin(), texts.end(), others.begin(), [](const auto& x, const auto& y) {
          return std::equal(x.sizes().begin() + 1, x.sizes().end(), y.sizes().begin() + 1,
                            y.sizes().end());
        });
    return strings_alike &&
           std::equal(a.begin(), a.end(), b.begin(), [](const Tensor& x, const Tensor& y) {
             return x.sizes().slice(1) == y.sizes().slice(1) &&
                    x.scalar_type() == y.scalar_type() && x.device() == y.device();
           });
  }
  /// The one table that every pass over these two has, as repeat asks for; null when their rows
  /// cannot stand in one batch.
  std::shared_ptr<const RowTable> joined(const RowTable* first, const RowTable* second) const {
    if (second == nullptr || !alike(*first, *second)) return nullptr;
    MutexLock lock(mutex_);
    if (!joined_ || parts_ != std::pair(first, second)) {
      joined_ = std::make_shared<RowTable>(append(*first, *second));
      parts_ = {first, second};
    }
    return joined_;
  }

  mutable Mutex mutex_;
  mutable std::shared_ptr<const RowTable> joined_ TUTTI_GUARDED_BY(mutex_);
  mutable std::pair<const RowTable*, const RowTable*> parts_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace

PlanPtr zip(std::vector<PlanPtr> inputs) {
  if (inputs.empty()) throw InvalidArgument("zip: no datasets, expected at least one");
  return std::make_shared<ZipPlan>(std::move(inputs));
}
PlanPtr concatenate(PlanPtr first, PlanPtr second) {
  if (first->cardinality() != 0 && second->cardinality() != 0) {
    const SpecNest a = first->element_spec();
    const SpecNest b = second->element_spec();
    if (!same_structure(a, b)) {
      throw InvalidArgument(
          cat("concatenate: elements ", a, " and ", b, ", expected one structure"));
    }
    const auto left = flatten(a);
    const auto right = flatten(b);
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i].dtype != right[i].dtype)
        throw InvalidArgument(cat("concatenate: elements ", a, " and ", b,
                                  ", expected the same dtypes; convert one with map first"));
    }
  }
  return std::make_shared<ConcatenatePlan>(
      std::vector<PlanPtr>{std::move(first), std::move(second)});
}

}  // namespace tutti::data::plans
