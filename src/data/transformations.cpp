// Transformations that look at one element at a time.

#include "data/element_scope.h"
#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "data/pass_seeds.h"
#include "tutti/base/log.h"
#include "tutti/data/dataset.h"

namespace tutti::data::plans {
namespace {

/// A plan that calls a function of the user for each element.
template <class Function, class Pass>
class CallingPlan : public UnaryPlan {
 public:
  CallingPlan(PlanPtr input, Function function, std::shared_ptr<PassSeeds> seeds)
      : UnaryPlan(std::move(input)), function_(std::move(function)), seeds_(std::move(seeds)) {}
  std::string arguments() const override { return "function"; }
  bool runs_functions() const override { return true; }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), function_, CallSeeds(*seeds_));
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), function_, CallSeeds());
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }

 protected:
  Function function_;
  std::shared_ptr<PassSeeds> seeds_;
};

template <class Function>
struct CallingPass : Iterator {
  CallingPass(std::unique_ptr<Iterator> input, Function function, const CallSeeds& calls)
      : input(std::move(input)), function(std::move(function)), calls(calls) {}
  auto call(const Nest& element) {
    at::NoGradGuard no_grad;
    const ElementScope scope(calls.next());
    return function(element);
  }
  Nest save() const override {
    return Nest::map({{"input", input->save()}, {"calls", calls.save()}});
  }
  void restore(const Nest& saved) override {
    input->restore(state::part(saved, "input"));
    calls.restore(state::part(saved, "calls"));
  }
  std::unique_ptr<Iterator> input;
  Function function;
  CallSeeds calls;
};

struct MapPass : CallingPass<NestFunction> {
  using CallingPass::CallingPass;
  std::optional<Nest> next() override {
    const auto element = input->next();
    if (!element) return std::nullopt;
    return call(*element);
  }
};

class MapPlan : public CallingPlan<NestFunction, MapPass> {
 public:
  using CallingPlan::CallingPlan;
  std::string name() const override { return "map"; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<MapPlan>(std::move(inputs[0]), function_, seeds_);
  }
  SpecNest element_spec() const override { return mapped_spec(*this, spec_); }
  Nest element_at(int64_t index) const override {
    const Nest element = plans::element_at(input(), index);
    const ElementScope scope(ElementCall{0, index});
    return function_(element);
  }

 private:
  SeenSpec spec_;
};

struct FilterPass : CallingPass<NestPredicate> {
  using CallingPass::CallingPass;
  std::optional<Nest> next() override {
    for (;;) {
      auto element = input->next();
      if (!element || call(*element)) return element;
    }
  }
};

class FilterPlan : public CallingPlan<NestPredicate, FilterPass> {
 public:
  using CallingPlan::CallingPlan;
  std::string name() const override { return "filter"; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<FilterPlan>(std::move(inputs[0]), function_, seeds_);
  }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
};

class TakePlan : public PassPlan {
 public:
  TakePlan(PlanPtr input, int64_t count) : PassPlan(std::move(input)), count_(count) {}
  std::string name() const override { return "take"; }
  std::string arguments() const override { return cat(count_); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<TakePlan>(std::move(inputs[0]), count_);
  }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    if (count_ < 0) return size;
    if (size == kInfinite) return count_;
    if (size == kUnknown) return count_ == 0 ? 0 : kUnknown;
    return std::min(size, count_);
  }
  Nest element_at(int64_t index) const override { return plans::element_at(input(), index); }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), count_);
  }
  struct Pass : ForwardingIterator {
    Pass(std::unique_ptr<Iterator> input, int64_t count)
        : ForwardingIterator(std::move(input)), left(count) {}
    std::optional<Nest> next() override {
      if (left == 0) return std::nullopt;
      auto element = input().next();  // one that throws does not count
      if (element && left > 0) --left;
      return element;
    }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      const int64_t wanted = left < 0 ? count : std::min(count, left);
      if (wanted <= 0) return;
      read_rows(input(), wanted, indices, [this](int64_t given) {
        if (left > 0) left -= given;
      });
    }
    Nest save() const override {
      return Nest::map({{"input", input().save()}, {"left", state::number(left)}});
    }
    void restore(const Nest& saved) override {
      input().restore(state::part(saved, "input"));
      left = state::number_in(saved, "left", -1);
    }
    int64_t left;
  };
  int64_t count_;
};

class SkipPlan : public PassPlan {
 public:
  SkipPlan(PlanPtr input, int64_t count) : PassPlan(std::move(input)), count_(count) {}
  std::string name() const override { return "skip"; }
  std::string arguments() const override { return cat(count_); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<SkipPlan>(std::move(inputs[0]), count_);
  }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    if (count_ < 0) return 0;
    return size < 0 ? size : std::max<int64_t>(0, size - count_);
  }
  Nest element_at(int64_t index) const override {
    return plans::element_at(input(), index + count_);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), count_);
  }
  struct Pass : ForwardingIterator {
    Pass(std::unique_ptr<Iterator> input, int64_t count)
        : ForwardingIterator(std::move(input)), left(count) {}
    std::optional<Nest> next() override {
      drop();
      return left < 0 ? std::nullopt : input().next();
    }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      drop();
      if (left >= 0) input().next_rows(count, indices);
    }
    void drop() {
      if (left > 0 && input().table() != nullptr) {
        std::vector<int64_t> dropped;
        do {
          dropped.clear();
          read_rows(input(), std::min<int64_t>(left, 4096), dropped,
                    [this](int64_t given) { left -= given; });
          if (dropped.empty()) left = 0;
        } while (left > 0);
      }
      for (; left > 0; --left) {
        if (!input().next()) break;
      }
      if (left > 0) left = 0;
    }
    Nest save() const override {
      return Nest::map({{"input", input().save()}, {"left", state::number(left)}});
    }
    void restore(const Nest& saved) override {
      input().restore(state::part(saved, "input"));
      left = state::number_in(saved, "left", -1);
    }
    int64_t left;
  };
  int64_t count_;
};

class ShardPlan : public PassPlan {
 public:
  ShardPlan(PlanPtr input, int64_t num_shards, int64_t index)
      : PassPlan(std::move(input)), num_shards_(num_shards), index_(index) {}
  std::string name() const override { return "shard"; }
  std::string arguments() const override { return cat(num_shards_, ", ", index_); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ShardPlan>(std::move(inputs[0]), num_shards_, index_);
  }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    return size < 0 ? size : size <= index_ ? 0 : (size - index_ + num_shards_ - 1) / num_shards_;
  }
  Nest element_at(int64_t index) const override {
    return plans::element_at(input(), index_ + index * num_shards_);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), num_shards_, index_);
  }
  struct Pass : ForwardingIterator {
    Pass(std::unique_ptr<Iterator> input, int64_t num_shards, int64_t index)
        : ForwardingIterator(std::move(input)), num_shards(num_shards), until(index) {}
    std::optional<Nest> next() override {
      for (; until > 0; --until) {
        if (!input().next()) return std::nullopt;
      }
      until = num_shards - 1;
      return input().next();
    }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      std::vector<int64_t> some;
      for (; count > 0; --count) {
        some.clear();
        const int64_t wanted = until + 1;
        // As in next(): one that throws counts as the shard's own, but not as one in front of it.
        read_rows(input(), wanted, some, [&](int64_t given) {
          until = given < wanted - 1 ? until - given : num_shards - 1;
        });
        if (static_cast<int64_t>(some.size()) < wanted) return;
        indices.push_back(some.back());
      }
    }
    Nest save() const override {
      return Nest::map({{"input", input().save()}, {"until", state::number(until)}});
    }
    void restore(const Nest& saved) override {
      input().restore(state::part(saved, "input"));
      until = state::number_in(saved, "until", 0, num_shards - 1);
    }
    int64_t num_shards;
    int64_t until;
  };
  int64_t num_shards_, index_;
};

/// One pass after another. Rows stay rows only as long as every pass has the same table: not those
/// of a pass that fills a cache, which another pass may fill before it.
class RepeatPlan : public UnaryPlan {
 public:
  RepeatPlan(PlanPtr input, int64_t count) : UnaryPlan(std::move(input)), count_(count) {}
  std::string name() const override { return "repeat"; }
  std::string arguments() const override { return cat(count_); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<RepeatPlan>(std::move(inputs[0]), count_);
  }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    if (size == 0 || count_ == 0) return 0;
    if (count_ < 0) return size == kUnknown ? kUnknown : kInfinite;
    int64_t total = 0;
    if (size < 0) return size;
    return __builtin_mul_overflow(size, count_, &total) ? INT64_MAX : total;
  }
  Nest element_at(int64_t index) const override {
    const int64_t size = input().cardinality();
    return plans::element_at(input(), size > 0 ? index % size : index);
  }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(*this); }

 private:
  struct Pass : Iterator {
    explicit Pass(const RepeatPlan& plan)
        : plan(plan.shared()), options(current_pass_options()), left(plan.count_) {
      if (left != 0) current = this->plan->iterator();
      if (left > 0) --left;
      if (current) rows = columns_of(*current);
    }
    std::optional<Nest> next() override {
      while (!ended()) {
        auto element = current->next();
        if (element) {
          any = true;
          return element;
        }
        again();
      }
      return std::nullopt;
    }
    const RowTable* table() const override { return rows; }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      const std::size_t target = indices.size() + static_cast<std::size_t>(count);
      while (!ended() && indices.size() < target) {
        const std::size_t before = indices.size();
        current->next_rows(static_cast<int64_t>(target - before), indices);
        any = any || indices.size() > before;
        if (indices.size() < target) again();
      }
    }
    bool ended() const { return done || !current; }
    void again() {  // an empty input ends at once instead of turning for ever
      if (left == 0 || !any) {
        done = true;
        // With a table the last pass has part of what is to be saved: its rows.
        if (rows == nullptr) current.reset();
        return;
      }
      const PassOptionsScope scope(options);
      current = plan->iterator();
      any = false;
      if (left > 0) --left;
      // The pass that fills a cache has no columns, the later ones read the cache's.
      if (rows == nullptr) rows = columns_of(*current);
      if (columns_of(*current) != rows) throw Internal("repeat: another table in a later pass");
    }
    Nest save() const override {
      return Nest::map({{"current", current ? current->save() : Nest()},
                        {"left", state::number(left)},
                        {"any", state::number(any)},
                        {"table", state::number(rows != nullptr)},
                        {"done", state::number(done)}});
    }
    void restore(const Nest& saved) override {
      left = state::number_in(saved, "left", -1);
      any = state::number_in(saved, "any") != 0;
      done = state::number_in(saved, "done") != 0;
      const Nest& pass = state::part(saved, "current");
      rows = nullptr;
      if (pass.kind() == NestKind::kNone) return current.reset();
      if (!current) throw DataLoss("restore iterator: a pass of repeat(0), expected none");
      current->restore(pass);
      if (state::number_in(saved, "table") != 0) rows = columns_of(*current);
    }
    PlanPtr plan;
    PassOptions options;
    int64_t left;
    std::unique_ptr<Iterator> current;
    const RowTable* rows = nullptr;
    bool any = false;
    bool done = false;
  };
  PlanPtr shared() const { return inputs()[0]; }
  int64_t count_;
};

class EnumeratePlan : public PassPlan {
 public:
  EnumeratePlan(PlanPtr input, int64_t start) : PassPlan(std::move(input)), start_(start) {}
  std::string name() const override { return "enumerate"; }
  std::string arguments() const override { return start_ == 0 ? "" : cat("start=", start_); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<EnumeratePlan>(std::move(inputs[0]), start_);
  }
  SpecNest element_spec() const override {
    return SpecNest::tuple({TensorSpec{{}, at::kLong}, input().element_spec()});
  }
  Nest element_at(int64_t index) const override {
    return Nest::tuple(
        {Nest(at::scalar_tensor(start_ + index, at::kLong)), plans::element_at(input(), index)});
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), start_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t start) : input(std::move(input)), number(start) {}
    std::optional<Nest> next() override {
      auto element = input->next();
      if (!element) return std::nullopt;
      return Nest::tuple({Nest(at::scalar_tensor(number++, at::kLong)), std::move(*element)});
    }
    Nest save() const override {
      return Nest::map({{"input", input->save()}, {"number", state::number(number)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      number = state::number_in(saved, "number");
    }
    std::unique_ptr<Iterator> input;
    int64_t number;
  };
  int64_t start_;
};

class OptionsPlan : public UnaryPlan {
 public:
  OptionsPlan(PlanPtr input, const Options& options)
      : UnaryPlan(std::move(input)),
        options_(options),
        merged_(this->input().options().merge(options)) {}
  std::string name() const override { return "with_options"; }
  std::string arguments() const override { return options_.to_string(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<OptionsPlan>(std::move(inputs[0]), options_);
  }
  int64_t num_rows() const override { return input().num_rows(); }
  Options options() const override { return merged_; }
  Nest element_at(int64_t index) const override { return plans::element_at(input(), index); }
  std::unique_ptr<Iterator> iterator() const override { return input().iterator(); }

 private:
  Options options_;
  Options merged_;
};

void warn_of_other_elements(const char* operation, const Plan& input, int64_t count) {
  if (count <= 0 || !input.reshuffles()) return;
  log_once(LogLevel::kWarning, "data/reshuffled_part",
           cat(operation, " directly behind ", input.name(),
               ": the order is another one in each pass, so each pass gets other elements. For a "
               "split into two sets that stay the same, shuffle with reshuffle_each_iteration = "
               "false and a seed"));
}

}  // namespace

PlanPtr map(PlanPtr input, NestFunction function, const MapOptions& options) {
  if (options.num_parallel_calls)
    return parallel_map(std::move(input), std::move(function), options);
  warn_of_deterministic("map", options.deterministic);
  return map_one_by_one(std::move(input), std::move(function), PassSeeds::of_function());
}
PlanPtr filter(PlanPtr input, NestPredicate predicate) {
  return std::make_shared<FilterPlan>(std::move(input), std::move(predicate),
                                      PassSeeds::of_function());
}
PlanPtr enumerate(PlanPtr input, int64_t start) {
  return std::make_shared<EnumeratePlan>(std::move(input), start);
}
PlanPtr with_options(PlanPtr input, const Options& options) {
  check_options(options);
  return std::make_shared<OptionsPlan>(std::move(input), options);
}

PlanPtr take(PlanPtr input, int64_t count) {
  if (count < -1)
    throw InvalidArgument(cat("take: ", count, " elements, expected -1 (all), 0 or more"));
  warn_of_other_elements("take", *input, count);
  return std::make_shared<TakePlan>(std::move(input), count);
}
PlanPtr skip(PlanPtr input, int64_t count) {
  if (count < -1)
    throw InvalidArgument(cat("skip: ", count, " elements, expected -1 (all), 0 or more"));
  warn_of_other_elements("skip", *input, count);
  return std::make_shared<SkipPlan>(std::move(input), count);
}
PlanPtr repeat(PlanPtr input, int64_t count) {
  if (count < -1)
    throw InvalidArgument(cat("repeat: ", count, " times, expected -1 (for ever), 0 or more"));
  return std::make_shared<RepeatPlan>(std::move(input), count);
}
PlanPtr shard(PlanPtr input, int64_t num_shards, int64_t index) {
  if (num_shards == kShardHint && index == kShardHint) return shard_hint(std::move(input));
  if (num_shards < 1 || index < 0 || index >= num_shards) {
    throw InvalidArgument(cat("shard: index ", index, " of ", num_shards,
                              " shards, expected an index from 0 to below the number of shards"));
  }
  return std::make_shared<ShardPlan>(std::move(input), num_shards, index);
}

}  // namespace tutti::data::plans

tutti::data::PlanPtr tutti::data::map_one_by_one(PlanPtr input,
                                                 std::function<Nest(const Nest&)> function,
                                                 std::shared_ptr<PassSeeds> seeds) {
  return std::make_shared<plans::MapPlan>(std::move(input), std::move(function), std::move(seeds));
}
