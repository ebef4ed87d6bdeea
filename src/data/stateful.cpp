// Transformations that remember something of the elements before.

#include <cstring>
#include <unordered_set>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_seeds.h"
#include "tutti/base/log.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

class ScanPlan : public UnaryPlan {
 public:
  ScanPlan(PlanPtr input, Nest initial, NestScan function, std::shared_ptr<PassSeeds> seeds)
      : UnaryPlan(std::move(input)),
        initial_(std::move(initial)),
        function_(std::move(function)),
        seeds_(std::move(seeds)) {}
  std::string name() const override { return "scan"; }
  std::string arguments() const override { return cat(spec_of(initial_), ", function"); }
  bool runs_functions() const override { return true; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ScanPlan>(std::move(inputs[0]), initial_, function_, seeds_);
  }
  SpecNest element_spec() const override { return mapped_spec(*this, spec_); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), initial_, function_, CallSeeds(*seeds_));
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), initial_, function_, CallSeeds());
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, Nest initial, NestScan function, const CallSeeds& calls)
        : input(std::move(input)),
          carried(std::move(initial)),
          function(std::move(function)),
          calls(calls) {}
    std::optional<Nest> next() override {
      auto element = input->next();
      if (!element) return std::nullopt;
      at::NoGradGuard no_grad;
      const ElementScope scope(calls.next());
      auto [after, output] = function(carried, *element);
      plans::check_state("scan", carried, after);
      carried = std::move(after);
      return std::move(output);
    }
    Nest save() const override {
      return Nest::map(
          {{"input", input->save()}, {"calls", calls.save()}, {"state", state::element(carried)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      calls.restore(state::part(saved, "calls"));
      carried = state::element_in(saved, "state");
    }
    std::unique_ptr<Iterator> input;
    Nest carried;
    NestScan function;
    CallSeeds calls;
  };
  Nest initial_;
  NestScan function_;
  std::shared_ptr<PassSeeds> seeds_;
  SeenSpec spec_;
};

class TakeWhilePlan : public PassPlan {
 public:
  TakeWhilePlan(PlanPtr input, NestPredicate predicate)
      : PassPlan(std::move(input)), predicate_(std::move(predicate)) {}
  std::string name() const override { return "take_while"; }
  std::string arguments() const override { return "function"; }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<TakeWhilePlan>(std::move(inputs[0]), predicate_);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), predicate_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, NestPredicate predicate)
        : input(std::move(input)), predicate(std::move(predicate)) {}
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      auto element = input->next();
      if (!element) return std::nullopt;
      at::NoGradGuard no_grad;
      done = !predicate(*element);
      return done ? std::nullopt : std::move(element);
    }
    Nest save() const override {
      return Nest::map({{"input", input->save()}, {"done", state::number(done)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      done = state::number_in(saved, "done") != 0;
    }
    std::unique_ptr<Iterator> input;
    NestPredicate predicate;
    bool done = false;
  };
  NestPredicate predicate_;
};

void append_number(std::string& text, int64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

/// Equal exactly for equal elements.
std::string key_of(const Nest& element) {
  std::string key;
  if (element.is_strings()) {
    for (int64_t size : element.strings().sizes()) append_number(key, size);
    for (const std::string& text : element.strings().values()) {
      append_number(key, static_cast<int64_t>(text.size()));
      key += text;
    }
    return key;
  }
  if (!element.is_leaf() ||
      !at::isIntegralType(element.leaf().scalar_type(), /*includeBool=*/true)) {
    throw InvalidArgument(cat("unique: an element ", spec_of(element),
                              ", expected one component of integers, bools or strings; make a key "
                              "of it with map"));
  }
  const Tensor values = element.leaf().cpu().contiguous();
  append_number(key, static_cast<int64_t>(values.scalar_type()));
  for (int64_t size : values.sizes()) append_number(key, size);
  key.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  return key;
}

class UniquePlan : public PassPlan {
 public:
  using PassPlan::PassPlan;
  std::string name() const override { return "unique"; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<UniquePlan>(std::move(inputs[0]));
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass));
  }
  struct Pass : Iterator {
    explicit Pass(std::unique_ptr<Iterator> input) : input(std::move(input)) {}
    std::optional<Nest> next() override {
      for (;;) {
        auto element = input->next();
        if (!element || seen.insert(key_of(*element)).second) return element;
      }
    }
    Nest save() const override {
      return Nest::map(
          {{"input", input->save()},
           {"seen", Nest(StringTensor(std::vector<std::string>(seen.begin(), seen.end())))}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      const Nest& keys = state::part(saved, "seen");
      if (!keys.is_strings())
        throw DataLoss("restore iterator: no keys of elements, expected those of unique");
      seen.clear();
      for (const std::string& key : keys.strings().values()) seen.insert(key);
    }
    std::unique_ptr<Iterator> input;
    std::unordered_set<std::string> seen;
  };
};

class IgnoreErrorsPlan : public PassPlan {
 public:
  IgnoreErrorsPlan(PlanPtr input, const IgnoreErrorsOptions& options)
      : PassPlan(std::move(input)), options_(options) {}
  std::string name() const override { return "ignore_errors"; }
  std::string arguments() const override { return options_.log_warning ? "log_warning=true" : ""; }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    return size <= 0 ? size : kUnknown;
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<IgnoreErrorsPlan>(std::move(inputs[0]), options_);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), input().cardinality(), options_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t size, const IgnoreErrorsOptions& options)
        : input(std::move(input)), most_alike(std::max(kMostAlike, size)), options(options) {}
    std::optional<Nest> next() override {
      for (;;) {
        try {
          auto element = input->next();
          alike = 0;
          return element;
        } catch (const std::exception& error) {
          ignore(error.what());
        }
      }
    }
    // A source that does not move on says the same for ever.
    void ignore(const std::string& what) {
      if (options.log_warning) log_warning("ignore_errors: an element is left out: ", what);
      alike = what == last ? alike + 1 : 1;
      last = what;
      if (alike <= most_alike) return;
      alike = 0;
      throw FailedPrecondition(cat("ignore_errors: ", most_alike, " times in a row: ", what,
                                   "; expected a source that goes on behind what it cannot read"));
    }
    Nest save() const override { return input->save(); }
    void restore(const Nest& saved) override { input->restore(saved); }
    static constexpr int64_t kMostAlike = 10000;
    std::unique_ptr<Iterator> input;
    int64_t most_alike;
    IgnoreErrorsOptions options;
    std::string last;
    int64_t alike = 0;
  };
  IgnoreErrorsOptions options_;
};

class AssertCardinalityPlan : public PassPlan {
 public:
  AssertCardinalityPlan(PlanPtr input, int64_t expected)
      : PassPlan(std::move(input)), expected_(expected) {}
  std::string name() const override { return "assert_cardinality"; }
  std::string arguments() const override { return cat(expected_); }
  int64_t cardinality() const override { return expected_; }
  Nest element_at(int64_t index) const override { return plans::element_at(input(), index); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<AssertCardinalityPlan>(std::move(inputs[0]), expected_);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), expected_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t expected)
        : input(std::move(input)), expected(expected) {}
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      auto element = input->next();
      done = !element;
      if (element && expected >= 0 && count == expected) {
        done = true;
        fail("more");
      }
      if (!element && count != expected) fail(cat("only ", count));
      count += element ? 1 : 0;
      return element;
    }
    [[noreturn]] void fail(const std::string& found) const {
      throw FailedPrecondition(cat("assert_cardinality: the dataset has ", found,
                                   " elements, expected ",
                                   expected == kInfinite ? "no end" : cat(expected)));
    }
    Nest save() const override {
      return Nest::map({{"input", input->save()},
                        {"count", state::number(count)},
                        {"done", state::number(done)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      count = state::number_in(saved, "count", 0);
      done = state::number_in(saved, "done") != 0;
    }
    std::unique_ptr<Iterator> input;
    int64_t expected;
    int64_t count = 0;
    bool done = false;
  };
  int64_t expected_;
};

}  // namespace

PlanPtr plans::scan(PlanPtr input, Nest initial_state, NestScan function) {
  return std::make_shared<ScanPlan>(std::move(input), std::move(initial_state), std::move(function),
                                    PassSeeds::of_function());
}
PlanPtr plans::take_while(PlanPtr input, NestPredicate predicate) {
  return std::make_shared<TakeWhilePlan>(std::move(input), std::move(predicate));
}
PlanPtr plans::unique(PlanPtr input) { return std::make_shared<UniquePlan>(std::move(input)); }
PlanPtr plans::ignore_errors(PlanPtr input, const IgnoreErrorsOptions& options) {
  return std::make_shared<IgnoreErrorsPlan>(std::move(input), options);
}
PlanPtr plans::assert_cardinality(PlanPtr input, int64_t expected) {
  if (expected < 0 && expected != kInfinite)
    throw InvalidArgument(
        cat("assert_cardinality: ", expected, " elements, expected kInfinite (-1), 0 or more"));
  return std::make_shared<AssertCardinalityPlan>(std::move(input), expected);
}

}  // namespace tutti::data
