#include <algorithm>
#include <cmath>

#include "distribute/variable_state.h"
#include "keras/optimizers/optimizer_impl.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/strategy.h"
#include "tutti/keras/optimizers/wrappers.h"

namespace tutti::keras::optimizers {
namespace {

constexpr const char* kClass = "LossScaleOptimizer";
constexpr const char* kCounter = "step_counter";
constexpr const char* kScale = "dynamic_scale";

/// The scale and its counter are variables, so that they are saved as slots are. They are written
/// while all replicas wait.
class LossScale : public Optimizer::Impl {
 public:
  LossScale(const Optimizer& inner, const LossScaleOptimizerOptions& options)
      : Impl(kClass, options.name), inner_(inner), options_(options) {
    if (inner.class_name() == kClass) {
      throw InvalidArgument(cat("LossScaleOptimizer [", options.name,
                                "]: around another LossScaleOptimizer, expected an optimizer that "
                                "does not scale"));
    }
    if (!(options.initial_scale > 0) || options.dynamic_growth_steps < 1) {
      throw InvalidArgument(cat("LossScaleOptimizer [", options.name, "]: initial_scale ",
                                options.initial_scale, ", dynamic_growth_steps ",
                                options.dynamic_growth_steps,
                                ", expected a positive number and at least 1"));
    }
    own().drop_loss_scale_factor();
  }

  const Optimizer& inner() const { return inner_; }
  double scale() const {
    return scale_.defined() ? scale_.value().item<double>() : options_.initial_scale;
  }
  int64_t counter() const { return counter_.defined() ? counter_.value().item<int64_t>() : 0; }
  void expect_unscaled() { unscaled() = 1; }

  void build(const std::vector<Variable>& variables) override {
    own().build(variables);
    if (scale_.defined()) return;
    distribute::once_for_all_replicas("loss scale build", [&] { make(variables); });
  }
  bool built() const override { return own().built() && scale_.defined(); }

  bool apply(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
             const ApplyOptions& options) override {
    ApplyOptions inside = options;
    char& taken_back = unscaled();
    if (taken_back == 0) inside.scale /= scale();
    taken_back = 0;
    const bool finite = own().all_finite(gradients, variables, options.sum_replicas);
    const bool any = finite && own().apply(gradients, variables, inside);
    distribute::once_for_all_replicas("loss scale", [&] { note(finite); });
    return any || !finite;
  }
  bool all_finite(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
                  bool sum_replicas) override {
    return own().all_finite(gradients, variables, sum_replicas);
  }
  std::optional<double> loss_scale() const override { return scale(); }
  void drop_loss_scale_factor() override {}

  double learning_rate() const override { return own().learning_rate(); }
  void set_learning_rate(const LearningRate& rate) override { own().set_learning_rate(rate); }
  int64_t iterations() const override { return own().iterations(); }
  void set_iterations(int64_t iterations) override { own().set_iterations(iterations); }
  int64_t accumulation_steps() const override { return own().accumulation_steps(); }
  int64_t accumulated_steps() const override { return own().accumulated_steps(); }
  std::vector<Tensor> accumulated_gradients() const override {
    return own().accumulated_gradients();
  }
  std::optional<double> accumulated_denominator() const override {
    return own().accumulated_denominator();
  }
  void set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                 std::optional<double> denominator) override {
    own().set_accumulated_gradients(gradients, calls, denominator);
  }
  void finalize_variable_values() override { own().finalize_variable_values(); }
  void begin_training() override { own().begin_training(); }
  std::vector<Variable> variables() const override { return own().variables(); }
  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names = own().slot_names();
    names.emplace_back(kCounter);
    names.emplace_back(kScale);
    return names;
  }
  std::vector<Variable> slots(const std::string& name) const override {
    if (name != kCounter && name != kScale) return own().slots(name);
    if (!scale_.defined()) return {};
    return {name == kScale ? scale_ : counter_};
  }
  void exclude_from_weight_decay(const ExcludeFromWeightDecay& which) override {
    own().exclude_from_weight_decay(which);
  }
  Json config() const override {
    return {{"name", name()},
            {"inner_optimizer", described(inner_)},
            {"initial_scale", options_.initial_scale},
            {"dynamic_growth_steps", options_.dynamic_growth_steps}};
  }

 private:
  Impl& own() const { return Impl::of(inner_); }

  void make(const std::vector<Variable>& variables) {
    distribute::Strategy& strategy =
        variables.empty() ? distribute::get_strategy() : variables[0].strategy();
    at::NoGradGuard no_grad;
    const auto variable = [&](const char* what, const Tensor& initial) {
      return Variable(tutti::internal::make_variable_state(
          initial, {.trainable = false, .name = cat(name(), "/", what)}, strategy));
    };
    counter_ = variable(kCounter, at::zeros({}, at::kLong));
    scale_ = variable(kScale, at::full({}, options_.initial_scale, at::kFloat));
  }

  /// While all replicas wait.
  void note(bool finite) {
    const double old = scale_.state().components[0].item<double>();
    const int64_t steps =
        finite ? counter_.state().components[0].item<int64_t>() + 1 : options_.dynamic_growth_steps;
    double now = old;
    if (!finite) now = old > 1 ? std::max(old / 2, 1.0) : old;
    if (finite && steps >= options_.dynamic_growth_steps &&
        std::isfinite(static_cast<float>(old * 2)))
      now = old * 2;
    write(counter_, steps >= options_.dynamic_growth_steps ? 0.0 : static_cast<double>(steps));
    if (now != old) write(scale_, now);
  }
  static void write(const Variable& variable, double value) {
    at::NoGradGuard no_grad;
    variable.state().write_all([&](Tensor& component) { component.fill_(value); });
  }

  /// Of this thread's replica.
  char& unscaled() {
    distribute::ReplicaContext* replica = distribute::get_replica_context();
    if (unscaled_.empty()) {
      distribute::once_for_all_replicas("loss scale build", [&] {
        const int count = replica == nullptr ? 1 : replica->strategy().num_local_replicas();
        unscaled_.resize(static_cast<std::size_t>(count));
      });
    }
    const auto index =
        static_cast<std::size_t>(replica == nullptr ? 0 : replica->local_replica_id());
    return unscaled_[std::min(index, unscaled_.size() - 1)].value;
  }

  struct alignas(64) Flag {
    char value = 0;
  };
  Optimizer inner_;
  LossScaleOptimizerOptions options_;
  Variable counter_;
  Variable scale_;
  std::vector<Flag> unscaled_;  // by replica: its next gradients have no scale in them
};

LossScale& impl_of(const Optimizer& optimizer) {
  return static_cast<LossScale&>(Optimizer::Impl::of(optimizer));
}

}  // namespace

LossScaleOptimizer::LossScaleOptimizer(const Optimizer& inner_optimizer,
                                       const LossScaleOptimizerOptions& options)
    : Optimizer(std::make_shared<LossScale>(inner_optimizer, options)) {}

LossScaleOptimizer LossScaleOptimizer::of(const Optimizer& optimizer) {
  if (optimizer.class_name() != kClass) {
    throw InvalidArgument(cat("LossScaleOptimizer::of [", optimizer.name(), "]: of class ",
                              optimizer.class_name(), ", expected LossScaleOptimizer"));
  }
  LossScaleOptimizer same{std::shared_ptr<Impl>()};
  static_cast<Optimizer&>(same) = optimizer;
  return same;
}

Optimizer LossScaleOptimizer::inner_optimizer() const { return impl_of(*this).inner(); }
double LossScaleOptimizer::dynamic_scale() const { return impl_of(*this).scale(); }
int64_t LossScaleOptimizer::step_counter() const { return impl_of(*this).counter(); }

std::vector<Tensor> LossScaleOptimizer::get_unscaled_gradients(
    const std::vector<Tensor>& gradients) const {
  LossScale& own = impl_of(*this);
  own.expect_unscaled();
  const double scale = own.scale();
  std::vector<Tensor> result;
  for (const Tensor& gradient : gradients)
    result.push_back(gradient.defined() ? gradient / scale : gradient);
  return result;
}

Optimizer loss_scale_from_config(const Json& json, const CustomObjects& custom_objects) {
  LossScaleOptimizerOptions options;
  options.initial_scale = member<double>(json, "initial_scale", options.initial_scale);
  options.dynamic_growth_steps =
      member<int64_t>(json, "dynamic_growth_steps", options.dynamic_growth_steps);
  options.name = member<std::string>(json, "name", options.name);
  if (!json.contains("inner_optimizer")) {
    throw InvalidArgument(
        "optimizer: a LossScaleOptimizer without inner optimizer, expected "
        "{\"inner_optimizer\": {\"class_name\", \"config\"}}; construct it around one");
  }
  return LossScaleOptimizer(from_description(json["inner_optimizer"], custom_objects), options);
}

}  // namespace tutti::keras::optimizers
