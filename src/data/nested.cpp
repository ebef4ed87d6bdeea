// flat_map and interleave, one element after the other.

#include "data/nested.h"

#include <algorithm>

#include "data/iterator_state.h"

namespace tutti::data {
namespace {

PlanPtr called(const PlanFunction& function, const Nest& argument) {
  at::NoGradGuard no_grad;
  PlanPtr plan = function(argument);
  if (!plan) throw InvalidArgument("flat_map: the function gave no dataset, expected one");
  return plan;
}

bool reads_files(const Plan& plan) {
  return plan.files() != nullptr || plan.function_reads_files() ||
         std::any_of(plan.inputs().begin(), plan.inputs().end(),
                     [](const PlanPtr& input) { return reads_files(*input); });
}

class FlatMapPlan : public NestedPlan {
 public:
  FlatMapPlan(PlanPtr input, PlanFunction function, std::shared_ptr<PassSeeds> seeds)
      : NestedPlan("flat_map", std::move(input), std::move(function), std::move(seeds)) {}
  std::string arguments() const override { return "function"; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<FlatMapPlan>(std::move(inputs[0]), function(), seeds());
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), opener());
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), InnerOpener(function()));
  }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, InnerOpener opener)
        : input(std::move(input)), opener(std::move(opener)) {}
    std::optional<Nest> next() override {
      for (;;) {
        if (inner) {
          if (auto element = inner->pass->next()) return element;
          inner.reset();
        }
        auto argument = input->next();
        if (!argument) return std::nullopt;
        inner = opener.open_next(std::move(*argument));
      }
    }
    Nest save() const override {
      return Nest::map({{"input", input->save()},
                        {"calls", opener.save()},
                        {"inner", inner ? inner->save() : Nest()}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      opener.restore(state::part(saved, "calls"));
      inner.reset();
      const Nest& open = state::part(saved, "inner");
      if (open.kind() != NestKind::kNone) inner = opener.reopen(open);
    }
    std::unique_ptr<Iterator> input;
    InnerOpener opener;
    std::optional<OpenInner> inner;
  };
};

class InterleavePlan : public NestedPlan {
 public:
  InterleavePlan(PlanPtr input, PlanFunction function, const InterleaveShape& shape,
                 std::shared_ptr<PassSeeds> seeds)
      : NestedPlan("interleave", std::move(input), std::move(function), std::move(seeds)),
        shape_(shape) {}
  std::string arguments() const override { return shape_.text(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<InterleavePlan>(std::move(inputs[0]), function(), shape_, seeds());
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), opener(), shape_);
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), InnerOpener(function()), shape_);
  }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, InnerOpener opener, const InterleaveShape& shape)
        : input(std::move(input)),
          opener(std::move(opener)),
          block_length(shape.block_length),
          lanes(shape.cycle_length) {}
    std::optional<Nest> next() override {
      // A lane that is empty and stays so is passed by; all of them in a row: the end.
      for (std::size_t passed = 0; passed < lanes.size();) {
        std::optional<OpenInner>& lane = lanes[turn];
        if (!lane && !ended) {
          auto argument = input->next();
          if (argument) {
            lane = opener.open_next(std::move(*argument));
          } else {
            ended = true;
          }
        }
        if (!lane) {
          ++passed;
          advance();
          continue;
        }
        passed = 0;
        if (auto element = lane->pass->next()) {
          if (++taken == block_length) advance();
          return element;
        }
        lane.reset();
        advance();
      }
      return std::nullopt;
    }
    void advance() {
      turn = (turn + 1) % lanes.size();
      taken = 0;
    }
    Nest save() const override {
      std::vector<Nest> open;
      for (const auto& lane : lanes) open.push_back(lane ? lane->save() : Nest());
      return Nest::map({{"input", input->save()},
                        {"calls", opener.save()},
                        {"lanes", Nest::list(std::move(open))},
                        {"turn", state::number(static_cast<int64_t>(turn))},
                        {"taken", state::number(taken)},
                        {"ended", state::number(ended)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      opener.restore(state::part(saved, "calls"));
      const Nest& open = state::part(saved, "lanes");
      if (open.size() != lanes.size())
        throw DataLoss(cat("restore iterator: interleave of ", open.size(), " datasets, expected ",
                           lanes.size()));
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        lanes[i].reset();
        if (open.items()[i].kind() != NestKind::kNone) lanes[i] = opener.reopen(open.items()[i]);
      }
      const auto last = static_cast<int64_t>(lanes.size()) - 1;
      turn = static_cast<std::size_t>(state::number_in(saved, "turn", 0, last));
      taken = state::number_in(saved, "taken", 0, block_length - 1);
      ended = state::number_in(saved, "ended") != 0;
    }
    std::unique_ptr<Iterator> input;
    InnerOpener opener;
    int64_t block_length;
    std::vector<std::optional<OpenInner>> lanes;
    std::size_t turn = 0;
    int64_t taken = 0;  // of the block
    bool ended = false;
  };
  InterleaveShape shape_;
};

}  // namespace

PlanPtr FirstInner::of(const Plan& input, const PlanFunction& function) const {
  {
    MutexLock lock(mutex_);
    if (seen_) return plan_;
  }
  // Without the lock: this runs functions of the user.
  const auto first = input.preview()->next();
  PlanPtr found = first ? called(function, *first) : nullptr;
  MutexLock lock(mutex_);
  if (!seen_) plan_ = std::move(found);
  seen_ = true;
  return plan_;
}

SpecNest FirstInner::spec(const char* operation, const Plan& input,
                          const PlanFunction& function) const {
  const PlanPtr inner = of(input, function);
  if (!inner)
    throw FailedPrecondition(
        cat("element_spec [", operation,
            "]: the dataset is empty, expected an element to make a dataset of; fill the source"));
  return inner->element_spec();
}

std::optional<int64_t> FirstInner::batch_size(const Plan& input,
                                              const PlanFunction& function) const {
  try {
    const PlanPtr inner = of(input, function);
    return inner ? inner->batch_size() : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // a pass will say what is wrong
  }
}

bool FirstInner::reads_files(const Plan& input, const PlanFunction& function) const {
  try {
    const PlanPtr inner = of(input, function);
    return inner && data::reads_files(*inner);
  } catch (const std::exception&) {
    return false;
  }
}

OpenInner InnerOpener::open(Nest argument, const ElementCall& call) const {
  PlanPtr plan;
  {
    const ElementScope scope(call);
    plan = called(function_, argument);
  }
  if (preview_) return {std::move(argument), call, plan->preview()};
  const PassOptionsScope options(options_);
  return {std::move(argument), call, begin_pass(plan)};
}

OpenInner InnerOpener::reopen(const Nest& saved) const {
  const std::vector<int64_t> call = state::numbers_in(saved, "call");
  if (call.size() != 2) throw DataLoss("restore iterator: no call, expected a seed and a number");
  OpenInner inner = open(state::element_in(saved, "argument"),
                         ElementCall{static_cast<uint64_t>(call[0]), call[1]});
  inner.pass->restore(state::part(saved, "pass"));
  return inner;
}

Nest OpenInner::save() const {
  return Nest::map({{"argument", state::element(argument)},
                    {"call", state::numbers({static_cast<int64_t>(call.seed), call.index})},
                    {"pass", pass->save()}});
}

InterleaveShape::InterleaveShape(const InterleaveOptions& options)
    : cycle_length(0), block_length(options.block_length) {
  constexpr int64_t kDefaultCycle = 4;
  int64_t cycle = options.cycle_length.value_or(kDefaultCycle);
  if (cycle == kAutotune) cycle = kDefaultCycle;
  if (cycle < 1 || block_length < 1)
    throw InvalidArgument(cat("interleave: cycle_length ", cycle, " and block_length ",
                              block_length, ", expected at least 1"));
  cycle_length = static_cast<std::size_t>(cycle);
}

std::string InterleaveShape::text() const {
  return cat("function, cycle_length=", cycle_length,
             block_length == 1 ? "" : cat(", block_length=", block_length));
}

PlanPtr interleave_one_by_one(PlanPtr input, PlanFunction function,
                              const InterleaveOptions& options, std::shared_ptr<PassSeeds> seeds) {
  return std::make_shared<InterleavePlan>(std::move(input), std::move(function),
                                          InterleaveShape(options), std::move(seeds));
}

PlanPtr plans::flat_map(PlanPtr input, PlanFunction function) {
  return std::make_shared<FlatMapPlan>(std::move(input), std::move(function),
                                       PassSeeds::of_function());
}

PlanPtr plans::interleave(PlanPtr input, PlanFunction function, const InterleaveOptions& options) {
  if (options.num_parallel_calls)
    return parallel_interleave(std::move(input), std::move(function), options);
  warn_of_deterministic("interleave", options.deterministic);
  return interleave_one_by_one(std::move(input), std::move(function), options,
                               PassSeeds::of_function());
}

}  // namespace tutti::data
