#pragma once
// StrategyExtended: the members of a strategy that TensorFlow keeps behind `extended`.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

/// A view: every member is the strategy's own. Copy freely; it must not outlive the strategy.
class StrategyExtended {
 public:
  explicit StrategyExtended(Strategy& strategy) : strategy_(&strategy) {}

  template <class Value>
  auto reduce_to(AnyReduceOp op, const Value& value, const Destinations& destinations,
                 const CommunicationOptions& options = {}) const {
    return strategy_->reduce_to(op, value, destinations, options);
  }
  auto batch_reduce_to(AnyReduceOp op, const std::vector<ValueDestinations>& values,
                       const CommunicationOptions& options = {}) const {
    return strategy_->batch_reduce_to(op, values, options);
  }
  auto broadcast_to(const Tensor& tensor, const Destinations& destinations) const {
    return strategy_->broadcast_to(tensor, destinations);
  }
  template <class Fn, class... Args>
  auto update(const Variable& variable, Fn&& fn, Args&&... args) const {
    return strategy_->update(variable, std::forward<Fn>(fn), std::forward<Args>(args)...);
  }
  template <class Fn, class... Args>
  auto update_ungrouped(const Variable& variable, Fn&& fn, Args&&... args) const {
    return strategy_->update_ungrouped(variable, std::forward<Fn>(fn), std::forward<Args>(args)...);
  }
  template <class Fn, class... Args>
  auto update_non_slot(const Destinations& colocate_with, Fn&& fn, Args&&... args) const {
    return strategy_->update_non_slot(colocate_with, std::forward<Fn>(fn),
                                      std::forward<Args>(args)...);
  }
  auto non_slot_devices(const std::vector<Variable>& variables) const {
    return strategy_->non_slot_devices(variables);
  }
  Tensor read_var(const Variable& variable) const { return strategy_->read_var(variable); }
  [[nodiscard]] Scope colocate_vars_with(const Variable& variable) const {
    return strategy_->colocate_vars_with(variable);
  }
  bool variable_created_in_scope(const Variable& variable) const {
    return strategy_->variable_created_in_scope(variable);
  }
  template <class Value>
  auto value_container(const Value& value) const {
    return strategy_->value_container(value);
  }
  auto worker_devices() const { return strategy_->worker_devices(); }
  auto parameter_devices() const { return strategy_->parameter_devices(); }
  template <class Fn, class... Args>
  auto call_for_each_replica(Fn&& fn, Args&&... args) const {
    return strategy_->run(std::forward<Fn>(fn), std::forward<Args>(args)...);
  }
  /// False: only a TPU needs shapes that never change.
  bool require_static_shapes() const { return false; }

 private:
  Strategy* strategy_;
};

inline StrategyExtended Strategy::extended() { return StrategyExtended(*this); }

}  // namespace tutti::distribute
