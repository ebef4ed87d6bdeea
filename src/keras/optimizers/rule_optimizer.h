#pragma once
// An optimizer with a formula of its own, and what it does around it.

#include "keras/optimizers/accumulation.h"
#include "keras/optimizers/optimizer_impl.h"
#include "keras/optimizers/rules.h"

namespace tutti::keras::optimizers {

/// The arguments that all of them have, checked.
struct Frame {
  distribute::GradientClipping clipping;
  std::optional<EmaOptions> ema;
  std::optional<double> loss_scale_factor;
  int64_t accumulation_steps = 1;
};

class RuleOptimizer : public Optimizer::Impl {
 public:
  /// `config` has the arguments, but for the learning rate.
  RuleOptimizer(std::string class_name, std::string name, Json config, std::shared_ptr<Rule> rule,
                const Frame& frame);

  void build(const std::vector<Variable>& variables) override;
  bool built() const override { return update_ != nullptr; }
  bool apply(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
             const ApplyOptions& options) override;
  bool all_finite(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
                  bool sum_replicas) override;
  std::optional<double> loss_scale() const override { return frame_.loss_scale_factor; }
  void drop_loss_scale_factor() override { frame_.loss_scale_factor.reset(); }

  double learning_rate() const override { return rule_->learning_rate(iterations()); }
  void set_learning_rate(const LearningRate& learning_rate) override;
  int64_t iterations() const override;
  void set_iterations(int64_t iterations) override;
  int64_t accumulation_steps() const override { return frame_.accumulation_steps; }
  int64_t accumulated_steps() const override { return accumulation_ ? accumulation_->calls() : 0; }
  std::vector<Tensor> accumulated_gradients() const override;
  std::optional<double> accumulated_denominator() const override;
  void set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                 std::optional<double> denominator) override;
  void finalize_variable_values() override;
  void begin_training() override;

  std::vector<Variable> variables() const override;
  std::vector<std::string> slot_names() const override { return pass_->slot_names(); }
  std::vector<Variable> slots(const std::string& name) const override;
  void exclude_from_weight_decay(const ExcludeFromWeightDecay& which) override;
  Json config() const override;

  /// As a file says that the weights were saved: those to evaluate with.
  void set_evaluating(bool evaluating) { evaluating_ = evaluating; }
  void exclude_by_whole_name(const std::vector<std::string>& names);

 private:
  void make(const std::vector<Variable>& variables);
  bool decays(const Variable& variable) const;
  bool same_order(const std::vector<Variable>& variables) const;
  std::vector<Tensor> sorted(const std::vector<Tensor>& gradients,
                             const std::vector<Variable>& variables) const;
  void move_weights(bool to_evaluate);
  bool apply_sorted(const std::vector<Tensor>& gradients, const ApplyOptions& options);

  Json config_;
  std::shared_ptr<Rule> rule_;
  std::shared_ptr<distribute::UpdateRule> pass_;  // the rule, or what goes around it
  Frame frame_;
  std::vector<std::string> no_decay_names_;   // parts of names
  std::vector<std::string> no_decay_listed_;  // whole names
  std::unique_ptr<distribute::FusedUpdate> update_;
  std::unique_ptr<Accumulation> accumulation_;
  int64_t iterations_before_build_ = 0;
  /// The weights are those to evaluate with (Rule::trains_elsewhere).
  bool evaluating_ = false;
};

/// InvalidArgument for a number below 0.
void check_learning_rate(const std::string& name, const LearningRate& rate);

}  // namespace tutti::keras::optimizers
