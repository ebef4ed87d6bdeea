// group_by_reducer.

#include <map>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_seeds.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

class GroupByReducerPlan : public UnaryPlan {
 public:
  GroupByReducerPlan(PlanPtr input, Reduction reduction, std::shared_ptr<PassSeeds> seeds)
      : UnaryPlan(std::move(input)),
        reduction_(std::make_shared<const Reduction>(std::move(reduction))),
        seeds_(std::move(seeds)) {}
  GroupByReducerPlan(PlanPtr input, std::shared_ptr<const Reduction> reduction,
                     std::shared_ptr<PassSeeds> seeds)
      : UnaryPlan(std::move(input)), reduction_(std::move(reduction)), seeds_(std::move(seeds)) {}
  std::string name() const override { return "group_by_reducer"; }
  std::string arguments() const override { return "function, function"; }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<GroupByReducerPlan>(std::move(inputs[0]), reduction_, seeds_);
  }
  SpecNest element_spec() const override { return spec_.of(*this); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), reduction_, CallSeeds(*seeds_));
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), reduction_, CallSeeds());
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, std::shared_ptr<const Reduction> functions,
         const CallSeeds& calls)
        : input(std::move(input)), functions(std::move(functions)), calls(calls) {}
    std::optional<Nest> next() override {
      at::NoGradGuard no_grad;
      while (!read) {
        auto element = input->next();
        if (element) {
          add(*element);
        } else {
          read = true;
        }
      }
      if (groups.empty()) return std::nullopt;
      const auto group = groups.extract(groups.begin());  // also when finalize throws
      const ElementScope scope(calls.next());
      return functions->finalize(group.mapped());
    }
    void add(const Nest& element) {
      const ElementScope scope(calls.next());
      const int64_t key = functions->key(element);
      const auto found = groups.find(key);
      const Nest before = found == groups.end() ? functions->init(key) : found->second;
      Nest after = functions->reduce(before, element);
      plans::check_state("group_by_reducer", before, after);
      groups[key] = std::move(after);
    }
    Nest save() const override {
      std::vector<int64_t> keys;
      std::vector<Nest> states;
      for (const auto& [key, state] : groups) {
        keys.push_back(key);
        states.push_back(state);
      }
      return Nest::map({{"input", read ? Nest() : input->save()},
                        {"calls", calls.save()},
                        {"keys", state::numbers(keys)},
                        {"states", state::elements(states)},
                        {"read", state::number(read)}});
    }
    void restore(const Nest& saved) override {
      read = state::number_in(saved, "read") != 0;
      if (!read) input->restore(state::part(saved, "input"));
      calls.restore(state::part(saved, "calls"));
      const auto keys = state::numbers_in(saved, "keys");
      auto states = state::elements_in(saved, "states");
      if (keys.size() != states.size())
        throw DataLoss(cat("restore iterator: ", keys.size(), " keys of ", states.size(),
                           " groups, expected one each"));
      groups.clear();
      for (std::size_t i = 0; i < keys.size(); ++i) groups[keys[i]] = std::move(states[i]);
    }
    std::unique_ptr<Iterator> input;
    std::shared_ptr<const Reduction> functions;
    CallSeeds calls;
    std::map<int64_t, Nest> groups;
    bool read = false;  // the whole input
  };
  std::shared_ptr<const Reduction> reduction_;
  std::shared_ptr<PassSeeds> seeds_;
  SeenSpec spec_;
};

}  // namespace

PlanPtr plans::group_by_reducer(PlanPtr input, Reduction reduction) {
  return std::make_shared<GroupByReducerPlan>(std::move(input), std::move(reduction),
                                              PassSeeds::of_function());
}

}  // namespace tutti::data
