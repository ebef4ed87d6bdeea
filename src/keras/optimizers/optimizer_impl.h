#pragma once
// What an Optimizer handle points to: an optimizer with a formula (rule_optimizer.h), or one around
// others.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keras/json.h"
#include "keras/optimizers/accumulation.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/keras/custom_objects.h"
#include "tutti/keras/optimizers/optimizer.h"

namespace tutti::keras::optimizers {

class Optimizer::Impl {
 public:
  Impl(std::string class_name, std::string name)
      : class_name_(std::move(class_name)), name_(std::move(name)) {}
  virtual ~Impl() = default;
  const std::string& class_name() const { return class_name_; }
  const std::string& name() const { return name_; }

  /// Inside replicas all of them call it.
  virtual void build(const std::vector<Variable>& variables) = 0;
  virtual bool built() const = 0;
  /// Built before. False: there was no gradient, and the options allow it. Collective.
  virtual bool apply(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
                     const ApplyOptions& options) = 0;
  /// Built before. Of the gradients added over the replicas. Collective.
  virtual bool all_finite(const std::vector<Tensor>& gradients,
                          const std::vector<Variable>& variables, bool sum_replicas) = 0;
  /// What scale_loss multiplies by; none: it leaves the loss alone.
  virtual std::optional<double> loss_scale() const = 0;
  /// For an optimizer around it, which scales itself.
  virtual void drop_loss_scale_factor() = 0;

  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(const LearningRate& learning_rate) = 0;
  virtual int64_t iterations() const = 0;
  virtual void set_iterations(int64_t iterations) = 0;
  virtual int64_t accumulation_steps() const = 0;
  virtual int64_t accumulated_steps() const = 0;
  virtual std::vector<Tensor> accumulated_gradients() const = 0;
  virtual std::optional<double> accumulated_denominator() const = 0;
  virtual void set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                         std::optional<double> denominator) = 0;
  virtual void finalize_variable_values() = 0;
  virtual void begin_training() = 0;

  virtual std::vector<Variable> variables() const = 0;
  virtual std::vector<std::string> slot_names() const = 0;
  virtual std::vector<Variable> slots(const std::string& name) const = 0;
  virtual void exclude_from_weight_decay(const ExcludeFromWeightDecay& which) = 0;
  virtual Json config() const = 0;

  static Impl& of(const Optimizer& optimizer) { return optimizer.impl(); }

  /// Of Optimizer::when_built; may be empty.
  std::function<void(Optimizer&)> when_built;
  bool waits() const { return !built() || when_built != nullptr; }

 protected:
  /// FailedPrecondition inside a replica.
  void check_outside(const char* operation) const;

 private:
  std::string class_name_;
  std::string name_;
};

/// {"class_name", "config"} of an optimizer that another one wraps, and back.
Json described(const Optimizer& optimizer);
Optimizer from_description(const Json& json, const CustomObjects& custom_objects);
/// Optimizer::from_config, with the user's own schedules.
Optimizer optimizer_from(const std::string& class_name, const Json& json,
                         const CustomObjects& custom_objects);

/// The wrappers' part of it.
Optimizer loss_scale_from_config(const Json& json, const CustomObjects& custom_objects);
Optimizer multi_from_config(const Json& json, const CustomObjects& custom_objects);

}  // namespace tutti::keras::optimizers
