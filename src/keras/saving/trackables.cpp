// Models, optimizers and metrics as parts of checkpoints.

#include <algorithm>

#include "distribute/variable_checkpoint.h"
#include "keras/optimizers/rule_optimizer.h"
#include "keras/saving/named_state.h"
#include "keras/saving/weights_file.h"
#include "tutti/keras/model.h"
#include "tutti/keras/optimizers/wrappers.h"

namespace tutti::keras {

// ---- models

/// {"names": strings, "weights": {name: tensor}}.
class ModelState : public SharedTrackable {
 public:
  explicit ModelState(Model& model) : model_(model) {}
  Nest state() const override {
    std::vector<std::string> names;
    std::vector<Variable> weights;
    split(model_, names, weights);
    for (const Variable& weight : weights) warn_of_own_statistics(model_, weight);
    return Nest::map({{"names", names_nest(names)}, {"weights", values_nest(names, weights)}});
  }
  void check_state(const Nest& state) const override {
    required_entry(state, "weights");
    if (model_.built()) values(model_, state);
  }
  void set_state(const Nest& state) override {
    model_.waiting_state_ = std::make_shared<const Nest>(state);
    if (model_.built()) model_.take_waiting_state();
  }
  bool state_taken() const override {
    if (model_.waiting_state_ != nullptr && model_.built()) model_.take_waiting_state();
    return model_.waiting_state_ == nullptr;
  }
  std::shared_ptr<WorkerPeers> peers() const override {
    return tutti::internal::peers_of(model_.strategy());
  }

  static std::vector<std::pair<Variable, Tensor>> values(const Model& model, const Nest& state) {
    std::vector<std::string> names;
    std::vector<Variable> weights;
    {
      // Who asks for the weights takes what waits for them, which may not fit.
      struct Aside {
        std::shared_ptr<const Nest>& waiting;
        std::shared_ptr<const Nest> state = std::exchange(waiting, nullptr);
        ~Aside() { waiting = state; }
      } const aside{model.waiting_state_};
      split(model, names, weights);
    }
    const auto places = places_in_file(names, names_in(state, "names"));
    const auto found = values_for(weights, places, required_entry(state, "weights"));
    std::vector<std::pair<Variable, Tensor>> pairs;
    for (std::size_t i = 0; i < weights.size(); ++i) pairs.emplace_back(weights[i], found[i]);
    return pairs;
  }

 private:
  static void split(const Model& model, std::vector<std::string>& names,
                    std::vector<Variable>& weights) {
    for (auto& [name, weight] : model.named_variables()) {
      names.push_back(name);
      weights.push_back(weight);
    }
    names = unique_names(std::move(names));
  }
  Model& model_;
};

void Model::take_waiting_state() const {
  if (waiting_state_ == nullptr) return;
  distribute::once_for_all_replicas("restore", [&] {
    if (waiting_state_ == nullptr) return;
    try {
      for (const auto& [weight, value] : ModelState::values(*this, *waiting_state_))
        restore({weight}, {value});
      waiting_state_ = nullptr;
    } catch (const Error& error) {
      throw InvalidArgument(cat("restore [", name(), "]: ", error.what(),
                                "; the checkpoint that waited for the model is of another one"));
    }
  });
}

std::shared_ptr<Trackable> trackable(Model& model) { return std::make_shared<ModelState>(model); }

// ---- optimizers

namespace optimizers {
namespace {

Nest scalar(double value) { return Nest(at::scalar_tensor(value, at::kDouble)); }
Nest scalar(int64_t value) { return Nest(at::scalar_tensor(value, at::kLong)); }

/// The optimizer with a formula that it is, or that a LossScaleOptimizer is around; else null.
RuleOptimizer* rule_of(const Optimizer& optimizer) {
  if (optimizer.class_name() == "LossScaleOptimizer")
    return rule_of(LossScaleOptimizer::of(optimizer).inner_optimizer());
  return dynamic_cast<RuleOptimizer*>(&Optimizer::Impl::of(optimizer));
}
/// False where a schedule, or several optimizers, say the rate.
bool has_rate(const Optimizer& optimizer) {
  const RuleOptimizer* rule = rule_of(optimizer);
  return rule != nullptr && !rule->has_schedule();
}
/// Calls that make an update.
int64_t accumulation_steps(const Optimizer& optimizer) {
  return Optimizer::Impl::of(optimizer).accumulation_steps();
}

/// The slot's variables by the names of those that they belong to ("dense/kernel", not
/// "dense/kernel/velocity"); one that belongs to none by its own.
std::vector<std::string> slot_keys(const Optimizer& optimizer, const std::string& slot,
                                   const std::vector<std::string>& names) {
  const std::vector<Variable> variables = optimizer.trainable_variables();
  std::vector<std::string> keys;
  std::vector<bool> used(variables.size());  // several variables may have one name
  for (const Variable& own : optimizer.slots(slot)) {
    std::size_t at = 0;
    while (at < variables.size() &&
           (used[at] || own.name() != cat(variables[at].name(), "/", slot)))
      ++at;
    keys.push_back(at < variables.size() ? names[at] : own.name());
    if (at < variables.size()) used[at] = true;
  }
  return unique_names(std::move(keys));
}

/// {"calls", "denominator", "gradients": {name: tensor}}.
Nest accumulated(const Optimizer& optimizer, const std::vector<std::string>& names) {
  const std::vector<Tensor> sums = optimizer.accumulated_gradients();
  std::map<std::string, Nest> gradients;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].defined()) gradients.emplace(names[i], Nest(sums[i]));
  }
  std::map<std::string, Nest> parts{{"calls", scalar(optimizer.accumulated_steps())},
                                    {"gradients", Nest::map(std::move(gradients))}};
  if (const auto denominator = optimizer.accumulated_denominator())
    parts.emplace("denominator", scalar(*denominator));
  return Nest::map(std::move(parts));
}

/// A state that fits, taken apart.
struct Prepared {
  std::vector<std::pair<std::vector<Variable>, std::vector<Tensor>>> slots;
  std::vector<Tensor> gradients;
  int64_t calls = 0;
  std::optional<double> denominator;
};

void prepare_accumulated(const Optimizer& optimizer, const Nest& state,
                         const std::vector<std::string>& places, Prepared& prepared) {
  const std::vector<Variable> variables = optimizer.trainable_variables();
  prepared.gradients.resize(variables.size());
  const Nest* found = entry_of(state, "accumulated");
  if (found == nullptr) return;
  prepared.calls = integer_in(*found, "calls");
  const int64_t steps = accumulation_steps(optimizer);
  if (prepared.calls < 0 || prepared.calls >= steps) {
    throw InvalidArgument(cat("state: gradients of ", prepared.calls,
                              " calls towards the next update, expected fewer than ", steps,
                              "; make the optimizer with the gradient_accumulation_steps of the "
                              "one that was saved"));
  }
  if (entry_of(*found, "denominator") != nullptr)
    prepared.denominator = number_in(*found, "denominator");
  const Nest& gradients = required_entry(*found, "gradients");
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (entry_of(gradients, places[i]) != nullptr)
      prepared.gradients[i] = values_for({variables[i]}, {places[i]}, gradients)[0];
  }
}

/// Of an optimizer that is built.
Prepared prepare(const Optimizer& optimizer, const Nest& state) {
  Prepared prepared;
  const Nest* slots = entry_of(state, "slots");
  if (slots == nullptr) {
    if (optimizer.gradient_steps() == 0) return prepared;
    throw InvalidArgument(cat("optimizer [", optimizer.name(),
                              "]: the state of one that had made no step, for one "
                              "that has made ",
                              optimizer.gradient_steps(),
                              ", expected slots; make a new optimizer"));
  }
  std::vector<std::string> own = optimizer.slot_names();
  std::sort(own.begin(), own.end());
  if (own != slots->keys()) {
    throw InvalidArgument(cat("optimizer [", optimizer.name(), "]: slots ",
                              join(slots->keys(), ", "), ", expected ", join(own, ", "),
                              "; make an optimizer of the class and options that were saved"));
  }
  const auto names = names_of(optimizer.trainable_variables());
  const auto places = places_in_file(names, names_in(state, "names"));
  for (const std::string& slot : own) {
    std::vector<Variable> variables = optimizer.slots(slot);
    std::vector<std::string> keys = slot_keys(optimizer, slot, names);
    for (std::string& key : keys) {
      const auto at = std::find(names.begin(), names.end(), key) - names.begin();
      if (at < static_cast<std::ptrdiff_t>(names.size()))
        key = places[static_cast<std::size_t>(at)];
    }
    std::vector<Tensor> values = values_for(variables, keys, (*slots)[slot]);
    prepared.slots.emplace_back(std::move(variables), std::move(values));
  }
  prepare_accumulated(optimizer, state, places, prepared);
  return prepared;
}

void apply(Optimizer& optimizer, const Prepared& prepared) {
  for (const auto& [variables, values] : prepared.slots) restore(variables, values);
  if (accumulation_steps(optimizer) > 1 && !prepared.gradients.empty())
    optimizer.set_accumulated_gradients(prepared.gradients, prepared.calls, prepared.denominator);
}

/// {"iterations", "learning_rate", "names": strings, "slots": {slot: {name: tensor}},
/// "accumulated", "evaluating": the weights are those to evaluate with}; while the optimizer is not
/// built, without "names" and what follows.
class OptimizerState : public SharedTrackable {
 public:
  explicit OptimizerState(Optimizer optimizer) : optimizer_(std::move(optimizer)) {}

  Nest state() const override {
    std::map<std::string, Nest> parts{{"iterations", scalar(optimizer_.iterations())}};
    if (has_rate(optimizer_)) parts.emplace("learning_rate", scalar(optimizer_.learning_rate()));
    if (!optimizer_.built()) return Nest::map(std::move(parts));
    const RuleOptimizer* rule = rule_of(optimizer_);
    if (rule != nullptr && rule->evaluating()) parts.emplace("evaluating", scalar(int64_t{1}));
    const auto names = names_of(optimizer_.trainable_variables());
    parts.emplace("names", names_nest(names));
    std::map<std::string, Nest> slots;
    for (const std::string& slot : optimizer_.slot_names())
      slots.emplace(slot, values_nest(slot_keys(optimizer_, slot, names), optimizer_.slots(slot)));
    parts.emplace("slots", Nest::map(std::move(slots)));
    if (optimizer_.accumulated_steps() > 0)
      parts.emplace("accumulated", accumulated(optimizer_, names));
    return Nest::map(std::move(parts));
  }

  void check_state(const Nest& state) const override {
    if (integer_in(state, "iterations") < 0)
      throw InvalidArgument(
          cat("state [iterations]: ", integer_in(state, "iterations"), ", expected 0 or more"));
    if (entry_of(state, "learning_rate") != nullptr && !(number_in(state, "learning_rate") >= 0))
      throw InvalidArgument(cat("state [learning_rate]: ", number_in(state, "learning_rate"),
                                ", expected 0 or more"));
    if (optimizer_.built()) prepare(optimizer_, state);
  }

  void set_state(const Nest& state) override {
    *waits_ = false;
    optimizer_.when_built(nullptr);
    if (RuleOptimizer* rule = rule_of(optimizer_))
      rule->set_evaluating(entry_of(state, "evaluating") != nullptr);
    // The first step asks which step it is before it builds.
    optimizer_.set_iterations(integer_in(state, "iterations"));
    if (entry_of(state, "learning_rate") != nullptr && has_rate(optimizer_))
      optimizer_.set_learning_rate(number_in(state, "learning_rate"));
    if (optimizer_.built()) return apply(optimizer_, prepare(optimizer_, state));
    if (entry_of(state, "slots") == nullptr) return;
    *waits_ = true;
    optimizer_.when_built([state, waits = waits_](Optimizer& built) {
      try {
        apply(built, prepare(built, state));
      } catch (const Error& error) {
        throw InvalidArgument(cat("restore [", built.name(), "]: ", error.what(),
                                  "; the checkpoint that waited for the optimizer is of another "
                                  "one"));
      }
      *waits = false;
    });
  }
  bool state_taken() const override { return !*waits_; }
  std::shared_ptr<WorkerPeers> peers() const override {
    if (!optimizer_.built()) return nullptr;
    return tutti::internal::peers_of(optimizer_.trainable_variables());
  }

 private:
  Optimizer optimizer_;
  std::shared_ptr<bool> waits_ = std::make_shared<bool>(false);
};

}  // namespace

std::shared_ptr<Trackable> trackable(const Optimizer& optimizer) {
  if (!optimizer.defined())
    throw InvalidArgument("trackable: an empty optimizer handle, expected an optimizer");
  return std::make_shared<OptimizerState>(optimizer);
}

}  // namespace optimizers

// ---- metrics

namespace metrics {
namespace {

/// {"names": strings, "values": {name: tensor}}; both empty before the first update of a metric
/// whose state has the size of its data.
class MetricState : public SharedTrackable {
 public:
  explicit MetricState(const Metric& metric) : metric_(metric) {}
  Nest state() const override {
    const std::vector<Variable> variables = metric_.variables();
    const auto names = names_of(variables);
    return Nest::map({{"names", names_nest(names)}, {"values", values_nest(names, variables)}});
  }
  void check_state(const Nest& state) const override {
    const bool none = names_in(state, "names").empty();
    required_entry(state, "values");
    if (metric_.impl_pointer()->built() && !none) values(*metric_.impl_pointer(), state);
  }
  void set_state(const Nest& state) override {
    *waits_ = false;
    const auto& impl = metric_.impl_pointer();
    if (names_in(state, "names").empty()) {
      impl->when_built(nullptr);
      return metric_.reset_state();
    }
    if (impl->built()) return restore(impl->variables(), values(*impl, state));
    *waits_ = true;
    // The action lives in the metric, so that a pointer to it is enough.
    impl->when_built([own = impl.get(), state, waits = waits_] {
      restore(own->variables(), values(*own, state));
      *waits = false;
    });
  }
  bool state_taken() const override { return !*waits_; }
  std::shared_ptr<WorkerPeers> peers() const override {
    return tutti::internal::peers_of(metric_.variables());
  }

 private:
  static std::vector<Tensor> values(const Metric::Impl& metric, const Nest& state) {
    const auto places = places_in_file(names_of(metric.variables()), names_in(state, "names"));
    return values_for(metric.variables(), places, required_entry(state, "values"));
  }
  Metric metric_;
  std::shared_ptr<bool> waits_ = std::make_shared<bool>(false);
};

}  // namespace

std::shared_ptr<Trackable> trackable(const Metric& metric) {
  if (!metric.defined())
    throw InvalidArgument("trackable: an empty metric handle, expected a metric");
  return std::make_shared<MetricState>(metric);
}

}  // namespace metrics
}  // namespace tutti::keras
