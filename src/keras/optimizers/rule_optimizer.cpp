#include "keras/optimizers/rule_optimizer.h"

#include <algorithm>

#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::optimizers {

void check_learning_rate(const std::string& name, const LearningRate& rate) {
  if (rate.schedule() || rate.at(0) >= 0) return;
  throw InvalidArgument(
      cat("optimizer [", name, "]: learning_rate ", rate.at(0), ", expected 0 or more"));
}

RuleOptimizer::RuleOptimizer(std::string class_name, std::string name, Json config,
                             std::shared_ptr<Rule> rule, const Frame& frame)
    : Impl(std::move(class_name), std::move(name)),
      config_(std::move(config)),
      rule_(std::move(rule)),
      pass_(frame.ema ? with_average(rule_, *frame.ema) : rule_),
      frame_(frame) {}

bool RuleOptimizer::decays(const Variable& variable) const {
  const auto contains = [&](const std::string& part) {
    return variable.name().find(part) != std::string::npos;
  };
  return std::none_of(no_decay_names_.begin(), no_decay_names_.end(), contains) &&
         std::find(no_decay_listed_.begin(), no_decay_listed_.end(), variable.name()) ==
             no_decay_listed_.end();
}

void RuleOptimizer::make(const std::vector<Variable>& variables) {
  std::vector<bool> decay;
  for (const Variable& variable : variables) decay.push_back(decays(variable));
  auto made = std::make_unique<distribute::FusedUpdate>(variables, pass_, frame_.clipping, decay);
  made->set_iterations(iterations_before_build_);
  if (frame_.accumulation_steps > 1)
    accumulation_ = std::make_unique<Accumulation>(name(), frame_.accumulation_steps, variables);
  update_ = std::move(made);
}

void RuleOptimizer::build(const std::vector<Variable>& variables) {
  if (update_ == nullptr)
    return distribute::once_for_all_replicas("optimizer build", [&] { make(variables); });
  if (same_order(variables)) return;
  throw FailedPrecondition(
      cat("optimizer [", name(),
          "]: built a second time, with other variables; make an optimizer for each set"));
}

bool RuleOptimizer::same_order(const std::vector<Variable>& variables) const {
  const auto& own = update_->variables();
  if (own.size() != variables.size()) return false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!own[i].is_same(variables[i])) return false;
  }
  return true;
}

/// The gradients in the order of the variables that it was built with.
std::vector<Tensor> RuleOptimizer::sorted(const std::vector<Tensor>& gradients,
                                          const std::vector<Variable>& variables) const {
  const auto& own = update_->variables();
  std::vector<Tensor> all(own.size());
  for (std::size_t i = 0; i < variables.size(); ++i) {
    std::size_t at = 0;
    while (at < own.size() && !own[at].is_same(variables[i])) ++at;
    if (at == own.size()) {
      throw InvalidArgument(
          cat("apply_gradients [", name(), "]: the variable ", variables[i].name(),
              ", expected one of the ", own.size(),
              " with which the optimizer was built; make an optimizer for each set of variables"));
    }
    all[at] = gradients[i];
  }
  return all;
}

bool RuleOptimizer::apply_sorted(const std::vector<Tensor>& gradients,
                                 const ApplyOptions& options) {
  if (accumulation_) return accumulation_->apply(gradients, options, *update_);
  double scale = options.scale;
  if (options.denominator) {
    const distribute::ReplicaContext* context = distribute::get_replica_context();
    const auto& own = update_->variables();
    const bool inside =
        context != nullptr && !own.empty() && &context->strategy() == &own[0].strategy();
    scale /= divisor_over_replicas(*options.denominator, inside);
  }
  return update_->apply(gradients, {options.sum_replicas, scale, options.may_be_empty});
}

bool RuleOptimizer::apply(const std::vector<Tensor>& gradients,
                          const std::vector<Variable>& variables, const ApplyOptions& options) {
  if (evaluating_)
    distribute::once_for_all_replicas("begin_training", [&] { move_weights(false); });
  ApplyOptions own = options;
  if (frame_.loss_scale_factor) own.scale /= *frame_.loss_scale_factor;
  return same_order(variables) ? apply_sorted(gradients, own)
                               : apply_sorted(sorted(gradients, variables), own);
}

bool RuleOptimizer::all_finite(const std::vector<Tensor>& gradients,
                               const std::vector<Variable>& variables, bool sum_replicas) {
  return same_order(variables) ? update_->all_finite(gradients, sum_replicas)
                               : update_->all_finite(sorted(gradients, variables), sum_replicas);
}

void RuleOptimizer::set_learning_rate(const LearningRate& learning_rate) {
  check_learning_rate(name(), learning_rate);
  if (rule_->schedule() && !learning_rate.schedule()) {
    throw InvalidArgument(
        cat("set_learning_rate [", name(),
            "]: a number for an optimizer with a schedule, expected a schedule: it says the rate; "
            "construct the optimizer with a number to set numbers later"));
  }
  rule_->set_learning_rate(learning_rate);
}

int64_t RuleOptimizer::iterations() const {
  return update_ ? update_->iterations() : iterations_before_build_;
}
void RuleOptimizer::set_iterations(int64_t iterations) {
  if (update_) {
    update_->set_iterations(iterations);
  } else {
    iterations_before_build_ = iterations;
  }
}

std::vector<Tensor> RuleOptimizer::accumulated_gradients() const {
  check_outside("accumulated_gradients");
  return accumulation_ ? accumulation_->sums() : std::vector<Tensor>{};
}
std::optional<double> RuleOptimizer::accumulated_denominator() const {
  check_outside("accumulated_denominator");
  return accumulation_ ? accumulation_->denominator() : std::nullopt;
}
void RuleOptimizer::set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                              std::optional<double> denominator) {
  check_outside("set_accumulated_gradients");
  if (accumulation_ == nullptr) {
    throw FailedPrecondition(
        cat("set_accumulated_gradients [", name(), "]: the optimizer ",
            built() ? "has no gradient_accumulation_steps" : "is not built",
            ", expected one that is built and accumulates; call build() first"));
  }
  accumulation_->restore(gradients, calls, denominator);
}

void RuleOptimizer::finalize_variable_values() {
  check_outside("finalize_variable_values");
  if (!update_) return;
  if (frame_.ema) {
    std::vector<Variable> variables = update_->variables();
    const auto averages = update_->slots(kAverage);
    for (std::size_t i = 0; i < variables.size(); ++i)
      variables[i].assign(averages[i].read_value());
    return;
  }
  if (rule_->trains_elsewhere() && !evaluating_ && update_->iterations() > 0) move_weights(true);
}
void RuleOptimizer::begin_training() {
  check_outside("begin_training");
  if (update_ && evaluating_) move_weights(false);
}

/// Only while no replica uses the variables.
void RuleOptimizer::move_weights(bool to_evaluate) {
  at::NoGradGuard no_grad;
  std::vector<std::vector<Variable>> slots;
  for (const std::string& name : rule_->slot_names()) slots.push_back(update_->slots(name));
  std::vector<Variable> variables = update_->variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    std::vector<Tensor> components = variables[i].components();
    if (variables[i].is_shared()) components.resize(1);
    for (std::size_t r = 0; r < components.size(); ++r) {
      std::vector<Tensor> own;
      for (const auto& column : slots) own.push_back(column[i].components()[r]);
      components[r].copy_(to_evaluate ? rule_->to_evaluate(components[r], own)
                                      : rule_->to_train(components[r], own));
    }
  }
  evaluating_ = to_evaluate;
}

std::vector<Variable> RuleOptimizer::variables() const {
  return update_ ? update_->variables() : std::vector<Variable>{};
}
std::vector<Variable> RuleOptimizer::slots(const std::string& name) const {
  return update_ ? update_->slots(name) : std::vector<Variable>{};
}

void RuleOptimizer::exclude_from_weight_decay(const ExcludeFromWeightDecay& which) {
  std::vector<std::string> listed;
  for (const Variable& variable : which.var_list) listed.push_back(variable.name());
  exclude_by_whole_name(listed);
  no_decay_names_.insert(no_decay_names_.end(), which.var_names.begin(), which.var_names.end());
}
void RuleOptimizer::exclude_by_whole_name(const std::vector<std::string>& names) {
  if (built())
    throw FailedPrecondition(
        "exclude_from_weight_decay: the optimizer is built, expected the call before its first "
        "update");
  no_decay_listed_.insert(no_decay_listed_.end(), names.begin(), names.end());
}

Json RuleOptimizer::config() const {
  Json json = config_;
  if (const auto& schedule = rule_->schedule()) {
    json["learning_rate"] = {{"class_name", schedule->class_name()},
                             {"config", Json::parse(schedule->config())}};
  } else {
    json["learning_rate"] = rule_->learning_rate(0);
  }
  json["loss_scale_factor"] = frame_.loss_scale_factor ? Json(*frame_.loss_scale_factor) : Json();
  if (!no_decay_names_.empty()) json["exclude_from_weight_decay"] = no_decay_names_;
  if (!no_decay_listed_.empty()) json["exclude_variables_from_weight_decay"] = no_decay_listed_;
  if (evaluating_) json["evaluating"] = true;
  return json;
}

}  // namespace tutti::keras::optimizers
