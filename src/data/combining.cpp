// Transformations of several datasets.

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
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
  Nest element_at(int64_t index) const override {
    std::vector<Nest> items;
    for (const PlanPtr& input : inputs()) items.push_back(plans::element_at(*input, index));
    return Nest::tuple(std::move(items));
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
    Nest save() const override {
      std::vector<Nest> states;
      for (const auto& input : inputs) states.push_back(input->save());
      return Nest::map({{"inputs", Nest::list(std::move(states))}, {"done", state::number(done)}});
    }
    void restore(const Nest& saved) override {
      const std::vector<Nest>& states = state::list_in(saved, "inputs");
      if (states.size() != inputs.size())
        throw DataLoss(
            cat("restore iterator: ", states.size(), " datasets, expected ", inputs.size()));
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i]->restore(states[i]);
      done = state::number_in(saved, "done") != 0;
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
  Nest element_at(int64_t index) const override {
    const int64_t size = inputs()[0]->cardinality();
    return size >= 0 && index >= size ? plans::element_at(*inputs()[1], index - size)
                                      : plans::element_at(*inputs()[0], index);
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
    std::unique_ptr<Iterator> second;
    if (columns_of(*first) != nullptr) second = inputs()[1]->iterator();
    return std::make_unique<Pass>(std::move(first), std::move(second), inputs()[1], joined_);
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(inputs()[0]->preview(), inputs()[1]->preview(), inputs()[1],
                                  nullptr);
  }

 private:
  /// The one table that every pass over two tables has, as repeat asks for.
  class Joined {
   public:
    /// Null when their rows cannot stand in one batch.
    std::shared_ptr<const RowTable> of(const RowTable* first, const RowTable* second) {
      if (first == nullptr || second == nullptr || !alike(*first, *second)) return nullptr;
      MutexLock lock(mutex_);
      if (!table_ || parts_ != std::pair(first, second)) {
        table_ = std::make_shared<RowTable>(append(*first, *second));
        parts_ = {first, second};
      }
      return table_;
    }

   private:
    Mutex mutex_;
    std::shared_ptr<const RowTable> table_ TUTTI_GUARDED_BY(mutex_);
    std::pair<const RowTable*, const RowTable*> parts_ TUTTI_GUARDED_BY(mutex_);
  };

  struct Pass : Iterator {
    /// `given`: made when its turn comes, if it is null. `joined`: null for no table.
    Pass(std::unique_ptr<Iterator> given_first, std::unique_ptr<Iterator> given, PlanPtr plan,
         std::shared_ptr<Joined> joined_tables)
        : first(std::move(given_first)),
          second(std::move(given)),
          plan(std::move(plan)),
          options(current_pass_options()),
          joined(std::move(joined_tables)) {
      join();
    }
    void join() {
      rows = joined && second ? joined->of(columns_of(*first), columns_of(*second)) : nullptr;
      first_rows = rows ? total_rows(*first->table()) : 0;
    }
    std::optional<Nest> next() override {
      if (!turned) {
        if (auto element = first->next()) return element;
        turn();
      }
      return second->next();
    }
    const RowTable* table() const override { return rows.get(); }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      const std::size_t target = indices.size() + static_cast<std::size_t>(count);
      if (!turned) first->next_rows(count, indices);
      if (indices.size() == target) return;
      if (!turned) turn();
      const std::size_t from = indices.size();
      second->next_rows(static_cast<int64_t>(target - from), indices);
      for (std::size_t i = from; i < indices.size(); ++i) indices[i] += first_rows;
    }
    void make_second() {
      const PassOptionsScope scope(options);
      if (!second) second = plan->iterator();
    }
    void turn() {
      make_second();
      turned = true;
      // With a table the first pass keeps it alive, and has part of its state.
      if (!rows) first.reset();
    }
    Nest save() const override {
      return Nest::map({{"first", first ? first->save() : Nest()},
                        {"second", second ? second->save() : Nest()},
                        {"turned", state::number(turned)},
                        {"table", state::number(rows != nullptr)}});
    }
    void restore(const Nest& saved) override {
      turned = state::number_in(saved, "turned") != 0;
      const Nest& of_first = state::part(saved, "first");
      const Nest& of_second = state::part(saved, "second");
      if (of_first.kind() != NestKind::kNone) first->restore(of_first);
      if (of_second.kind() != NestKind::kNone) {
        make_second();
        second->restore(of_second);
      }
      if (turned && !second) throw DataLoss("restore iterator: no second dataset, expected one");
      rows = nullptr;
      if (state::number_in(saved, "table") != 0) {
        join();
        if (!rows)
          throw DataLoss("restore iterator: elements in place of rows, expected an equal pipeline");
      }
      if (turned && !rows) first.reset();
    }
    std::unique_ptr<Iterator> first;
    std::unique_ptr<Iterator> second;
    PlanPtr plan;
    PassOptions options;
    std::shared_ptr<Joined> joined;
    bool turned = false;
    std::shared_ptr<const RowTable> rows;
    int64_t first_rows = 0;
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
  std::shared_ptr<Joined> joined_ = std::make_shared<Joined>();
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
