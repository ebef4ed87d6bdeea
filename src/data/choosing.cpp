// Datasets that are chosen from, and elements that are.

#include <algorithm>
#include <numeric>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_seeds.h"
#include "tutti/data/element_types.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

using Passes = std::vector<std::unique_ptr<Iterator>>;

/// An index drawn with these weights; they do not add up to 0.
std::size_t draw(RandomBits& random, const std::vector<double>& weights) {
  double left = random.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    left -= weights[i];
    if (left < 0) break;
  }
  return last;  // the last one with a weight, should rounding leave something
}

Nest saved_passes(const Passes& passes) {
  std::vector<Nest> states;
  for (const auto& pass : passes) states.push_back(pass->save());
  return Nest::list(std::move(states));
}

void restore_passes(const Nest& saved, Passes& passes) {
  const Nest& states = state::part(saved, "inputs");
  if (states.size() != passes.size())
    throw DataLoss(cat("restore iterator: ", states.size(), " datasets, expected ", passes.size()));
  for (std::size_t i = 0; i < passes.size(); ++i) passes[i]->restore(states.items()[i]);
}

/// Of several datasets one of which gives the next element.
class ChoicePlan : public Plan {
 public:
  using Plan::Plan;
  SpecNest element_spec() const override { return common_spec(name().c_str(), datasets()); }
  std::optional<int64_t> batch_size() const override {
    const auto all = datasets();
    const auto size = all[0]->batch_size();
    for (const PlanPtr& dataset : all) {
      if (dataset->batch_size() != size) return std::nullopt;
    }
    return size;
  }

 protected:
  virtual std::vector<PlanPtr> datasets() const = 0;
  Passes passes(bool preview) const {
    Passes passes;
    for (const PlanPtr& input : inputs())
      passes.push_back(preview ? input->preview() : input->iterator());
    return passes;
  }
};

class SamplePlan : public ChoicePlan {
 public:
  SamplePlan(std::vector<PlanPtr> inputs, const SampleOptions& options)
      : ChoicePlan(std::move(inputs)),
        options_(options),
        seeds_(std::make_shared<PassSeeds>(
            ShuffleOptions{options.seed, options.rerandomize_each_iteration})) {}
  std::string name() const override { return "sample_from_datasets"; }
  std::string arguments() const override {
    return cat("weights=[", join(options_.weights, ", "), "]", optional_text("seed", options_.seed),
               options_.stop_on_empty_dataset ? ", stop_on_empty_dataset=true" : "",
               options_.rerandomize_each_iteration ? ", rerandomize_each_iteration=true" : "");
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    auto plan = std::make_shared<SamplePlan>(std::move(inputs), options_);
    plan->seeds_ = seeds_;
    return plan;
  }
  int64_t cardinality() const override {
    int64_t total = 0;
    bool known = true, all_infinite = true, any_infinite = false;
    for (const PlanPtr& input : inputs()) {
      const int64_t size = input->cardinality();
      any_infinite = any_infinite || size == kInfinite;
      all_infinite = all_infinite && size == kInfinite;
      known = known && size >= 0;
      total += size;
    }
    if (options_.stop_on_empty_dataset) return all_infinite ? kInfinite : kUnknown;
    return any_infinite ? kInfinite : known ? total : kUnknown;
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(passes(false), options_, seeds_->next());
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(passes(true), options_, 0);
  }

 private:
  std::vector<PlanPtr> datasets() const override { return inputs(); }

  struct Pass : Iterator {
    Pass(Passes passes, const SampleOptions& options, uint64_t seed)
        : passes(std::move(passes)),
          weights(options.weights),
          stop_on_empty(options.stop_on_empty_dataset),
          random(seed) {}
    std::optional<Nest> next() override {
      while (left > 0) {
        const std::size_t chosen = draw(random, weights);
        if (auto element = passes[chosen]->next()) return element;
        weights[chosen] = 0;
        left = stop_on_empty ? 0 : left - 1;
      }
      return std::nullopt;
    }
    Nest save() const override {
      std::vector<Nest> ended;
      for (double weight : weights) ended.push_back(state::number(weight == 0));
      return Nest::map({{"inputs", saved_passes(passes)},
                        {"ended", Nest::list(std::move(ended))},
                        {"left", state::number(static_cast<int64_t>(left))},
                        {"random", state::random_bits(random)}});
    }
    void restore(const Nest& saved) override {
      restore_passes(saved, passes);
      const auto most = static_cast<int64_t>(passes.size());
      left = static_cast<std::size_t>(state::number_in(saved, "left", 0, most));
      const Nest& ended = state::part(saved, "ended");
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (state::number_in(Nest::map({{"ended", ended[i]}}), "ended") != 0) weights[i] = 0;
      }
      state::set_random_bits(saved, "random", random);
    }
    Passes passes;
    std::vector<double> weights;  // 0: has ended
    bool stop_on_empty;
    RandomBits random;
    std::size_t left = weights.size();
  };
  SampleOptions options_;  // one weight above 0 for each input
  std::shared_ptr<PassSeeds> seeds_;
};

class ChoosePlan : public ChoicePlan {
 public:
  /// The last input gives the choices.
  ChoosePlan(std::vector<PlanPtr> inputs, const ChooseOptions& options)
      : ChoicePlan(std::move(inputs)), options_(options) {}
  std::string name() const override { return "choose_from_datasets"; }
  std::string arguments() const override {
    return options_.stop_on_empty_dataset ? "" : "stop_on_empty_dataset=false";
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ChoosePlan>(std::move(inputs), options_);
  }
  int64_t cardinality() const override {
    const auto all = datasets();
    const bool endless = std::all_of(all.begin(), all.end(), [](const PlanPtr& dataset) {
      return dataset->cardinality() == kInfinite;
    });
    const int64_t choices = inputs().back()->cardinality();
    return endless || choices == 0 ? choices : kUnknown;
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(passes(false), options_);
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(passes(true), options_);
  }

 private:
  std::vector<PlanPtr> datasets() const override { return {inputs().begin(), inputs().end() - 1}; }

  struct Pass : Iterator {
    Pass(Passes passes, const ChooseOptions& options)
        : passes(std::move(passes)), stop_on_empty(options.stop_on_empty_dataset) {}
    std::optional<Nest> next() override {
      while (!done) {
        const auto choice = passes.back()->next();
        if (!choice) break;
        const int64_t index = internal::one_integer("choose_from_datasets", choice->leaf());
        const auto count = static_cast<int64_t>(passes.size()) - 1;
        if (index < 0 || index >= count)
          throw InvalidArgument(cat("choose_from_datasets: dataset ", index, " of ", count,
                                    ", expected a number from 0 to below ", count));
        if (auto element = passes[static_cast<std::size_t>(index)]->next()) return element;
        done = stop_on_empty;
      }
      done = true;
      return std::nullopt;
    }
    Nest save() const override {
      return Nest::map({{"inputs", saved_passes(passes)}, {"done", state::number(done)}});
    }
    void restore(const Nest& saved) override {
      restore_passes(saved, passes);
      done = state::number_in(saved, "done") != 0;
    }
    Passes passes;
    bool stop_on_empty;
    bool done = false;
  };
  ChooseOptions options_;
};

class ResamplePlan : public UnaryPlan {
 public:
  ResamplePlan(PlanPtr input, NestToNumber class_of, std::vector<double> target,
               const ResampleOptions& options)
      : UnaryPlan(std::move(input)),
        class_of_(std::move(class_of)),
        target_(std::move(target)),
        options_(options),
        seeds_(std::make_shared<PassSeeds>(ShuffleOptions{options.seed, true})) {}
  std::string name() const override { return "rejection_resample"; }
  std::string arguments() const override {
    return cat("function, [", join(target_, ", "), "]",
               options_.initial_dist
                   ? cat(", initial_dist=[", join(*options_.initial_dist, ", "), "]")
                   : "",
               optional_text("seed", options_.seed));
  }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    return size == 0 || size == kInfinite ? size : kUnknown;
  }
  SpecNest element_spec() const override {
    return SpecNest::tuple({TensorSpec{{}, at::kLong}, input().element_spec()});
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    auto plan = std::make_shared<ResamplePlan>(std::move(inputs[0]), class_of_, target_, options_);
    plan->seeds_ = seeds_;
    return plan;
  }
  Nest save_seeds() const override { return seeds_->save(); }
  void restore_seeds(const Nest& state) const override { seeds_->restore(state); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), *this, seeds_->next());
  }
  std::unique_ptr<Iterator> preview() const override {
    return std::make_unique<Pass>(input().preview(), *this, 0);
  }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, const ResamplePlan& plan, uint64_t seed)
        : input(std::move(input)),
          class_of(plan.class_of_),
          target(plan.target_),
          estimates(!plan.options_.initial_dist),
          initial(estimates ? std::vector<double>(target.size(), kSmoothing)
                            : *plan.options_.initial_dist),
          random(seed) {}
    std::optional<Nest> next() override {
      for (;;) {
        auto element = input->next();
        if (!element) return std::nullopt;
        const std::size_t label = class_in_range(*element);
        if (estimates) initial[label] += 1;
        if (random.uniform() * most_wanted() < wanted(label))
          return Nest::tuple({state::number(static_cast<int64_t>(label)), std::move(*element)});
      }
    }
    std::size_t class_in_range(const Nest& element) {
      at::NoGradGuard no_grad;
      const int64_t label = class_of(element);
      if (label < 0 || label >= static_cast<int64_t>(target.size()))
        throw InvalidArgument(cat("rejection_resample: an element of class ", label, " of ",
                                  target.size(), ", expected one that target_dist has"));
      return static_cast<std::size_t>(label);
    }
    /// How many times more frequent the class is to become; a class that should not occur at all
    /// says nothing.
    double wanted(std::size_t label) const {
      return initial[label] > 0 ? target[label] / initial[label] : 0;
    }
    double most_wanted() const {
      double most = 0;
      for (std::size_t label = 0; label < target.size(); ++label)
        most = std::max(most, wanted(label));
      return most;
    }
    Nest save() const override {
      const at::ArrayRef<double> seen(initial);
      return Nest::map({{"input", input->save()},
                        {"initial", Nest(at::tensor(seen, at::kDouble))},
                        {"random", state::random_bits(random)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      const Nest& seen = state::part(saved, "initial");
      if (!seen.is_leaf() || seen.leaf().numel() != static_cast<int64_t>(initial.size()))
        throw DataLoss("restore iterator: another number of classes, expected those of the plan");
      const Tensor values = seen.leaf().to(at::kDouble).contiguous();
      std::copy_n(values.const_data_ptr<double>(), initial.size(), initial.begin());
      state::set_random_bits(saved, "random", random);
    }
    static constexpr double kSmoothing = 10;
    std::unique_ptr<Iterator> input;
    NestToNumber class_of;
    std::vector<double> target;
    bool estimates;
    std::vector<double> initial;  // in proportion
    RandomBits random;
  };
  NestToNumber class_of_;
  std::vector<double> target_;
  ResampleOptions options_;
  std::shared_ptr<PassSeeds> seeds_;
};

void check_weights(const char* operation, const char* what, const std::vector<double>& weights) {
  double total = 0;
  for (double weight : weights) {
    if (!(weight >= 0)) total = -1;
    if (total >= 0) total += weight;
  }
  if (!(total > 0))
    throw InvalidArgument(cat(operation, ": ", what, " [", join(weights, ", "),
                              "], expected none below 0 and one above"));
}

}  // namespace

PlanPtr plans::sample_from_datasets(std::vector<PlanPtr> inputs, const SampleOptions& options) {
  constexpr const char* kOperation = "sample_from_datasets";
  if (inputs.empty())
    throw InvalidArgument("sample_from_datasets: no datasets, expected at least one");
  std::vector<double> weights = options.weights;
  if (weights.empty()) weights.assign(inputs.size(), 1.0 / static_cast<double>(inputs.size()));
  if (weights.size() != inputs.size()) {
    throw InvalidArgument(cat(kOperation, ": ", weights.size(), " weights for ", inputs.size(),
                              " datasets, expected one for each"));
  }
  check_weights(kOperation, "weights", weights);
  common_spec(kOperation, inputs);
  SampleOptions of_used = options;
  of_used.weights.clear();
  std::vector<PlanPtr> used;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (weights[i] == 0) continue;
    used.push_back(inputs[i]);
    of_used.weights.push_back(weights[i]);
  }
  if (used.size() == 1) return used[0];
  return std::make_shared<SamplePlan>(std::move(used), of_used);
}

PlanPtr plans::choose_from_datasets(std::vector<PlanPtr> inputs, PlanPtr choices,
                                    const ChooseOptions& options) {
  constexpr const char* kOperation = "choose_from_datasets";
  if (inputs.empty())
    throw InvalidArgument("choose_from_datasets: no datasets, expected at least one");
  const SpecNest choice = choices->element_spec();
  if (!choice.is_leaf() || choice.leaf() != TensorSpec{{}, at::kLong})
    throw InvalidArgument(
        cat(kOperation, ": choices ", choice, ", expected int64 scalars; convert them with map"));
  common_spec(kOperation, inputs);
  inputs.push_back(std::move(choices));
  return std::make_shared<ChoosePlan>(std::move(inputs), options);
}

PlanPtr plans::rejection_resample(PlanPtr input, NestToNumber class_of,
                                  std::vector<double> target_dist, const ResampleOptions& options) {
  constexpr const char* kOperation = "rejection_resample";
  check_weights(kOperation, "target_dist", target_dist);
  if (options.initial_dist) {
    check_weights(kOperation, "initial_dist", *options.initial_dist);
    if (options.initial_dist->size() != target_dist.size()) {
      throw InvalidArgument(cat(kOperation, ": initial_dist of ", options.initial_dist->size(),
                                " classes and target_dist of ", target_dist.size(),
                                ", expected the same ones"));
    }
    for (std::size_t i = 0; i < target_dist.size(); ++i) {
      if (target_dist[i] > 0 && (*options.initial_dist)[i] == 0)
        throw InvalidArgument(cat(kOperation, ": class ", i,
                                  " is wanted but does not occur by initial_dist, expected a "
                                  "number above 0"));
    }
  }
  return std::make_shared<ResamplePlan>(std::move(input), std::move(class_of),
                                        std::move(target_dist), options);
}

}  // namespace tutti::data
