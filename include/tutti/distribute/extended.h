#pragma once
// StrategyExtended: the members of a strategy that TensorFlow keeps behind `extended`.

#include <c10/core/ScalarType.h>

#include <any>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

/// What the function of Strategy::run_steps_on_iterator leaves behind. Set inside a replica, every
/// replica must make the same call.
class MultiStepContext {
 public:
  using Output = std::variant<Tensor, PerReplica<Tensor>>;
  /// `initial`: the outputs before the first step.
  explicit MultiStepContext(const std::map<std::string, Tensor>& initial = {});

  /// Keeps the last step's `output`, reduced when there is an `op`: inside a replica each replica
  /// brings its own and an op is needed (InvalidArgument).
  void set_last_step_output(const std::string& name, const Tensor& output,
                            std::optional<AnyReduceOp> op = std::nullopt);
  void set_last_step_output(const std::string& name, const PerReplica<Tensor>& output,
                            std::optional<AnyReduceOp> op = std::nullopt);
  const std::map<std::string, Output>& last_step_outputs() const { return outputs_; }
  /// A reduced or plain one. NotFound; InvalidArgument when it is a PerReplica.
  const Tensor& last_step_output(const std::string& name) const;

  /// Keeps anything else; inside a replica a vector with one value a local replica.
  template <class T>
  void set_non_tensor_output(const std::string& name, const T& output) {
    ReplicaContext* replica = get_replica_context();
    if (replica == nullptr) {
      non_tensor_outputs_[name] = output;
      return;
    }
    replica->merge_call(
        [&](Strategy& strategy, const auto& outputs) {
          non_tensor_outputs_[name] = strategy.local_results(outputs);
        },
        output);
  }
  /// By name; std::any_cast says what was kept.
  const std::map<std::string, std::any>& non_tensor_outputs() const { return non_tensor_outputs_; }

 private:
  std::map<std::string, Output> outputs_;
  std::map<std::string, std::any> non_tensor_outputs_;
};

namespace internal {

/// A tensor with a copy of what is at `data`.
Tensor host_copy(const void* data, at::ScalarType dtype, std::vector<int64_t> sizes);
Tensor host_copy(const Tensor& tensor);

/// Host arrays as tensors of their own: contiguous ranges of numbers become one-dimensional.
template <class T>
auto host_tensors(const T& value) {
  [[maybe_unused]] auto convert = [](const auto& item) { return host_tensors(item); };
  if constexpr (std::is_same_v<T, Tensor>) {
    return host_copy(value);
  } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
    const std::vector<char> bytes(value.begin(), value.end());
    return host_copy(bytes.data(), at::kBool, {static_cast<int64_t>(bytes.size())});
  } else if constexpr (requires {
                         c10::CppTypeToScalarType<std::decay_t<decltype(*value.data())>>::value;
                       }) {
    return host_copy(value.data(),
                     c10::CppTypeToScalarType<std::decay_t<decltype(*value.data())>>::value,
                     {static_cast<int64_t>(value.size())});
  } else if constexpr (tutti::internal::kIsMap<T>) {
    std::map<std::string, decltype(convert(value.begin()->second))> tensors;
    for (const auto& [key, item] : value) tensors.emplace(key, convert(item));
    return tensors;
  } else if constexpr (tutti::internal::kIsTuple<T>) {
    return std::apply(
        [&convert](const auto&... items) {
          return std::tuple<decltype(convert(items))...>(convert(items)...);
        },
        value);
  } else {
    static_assert(tutti::internal::kIsTuple<T>,
                  "make_numpy_dataset: expected vectors, spans or arrays of numbers, tensors, or "
                  "tuples and string maps of them");
  }
}

}  // namespace internal

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
  template <class... Arrays>
  auto make_numpy_dataset(const Arrays&... arrays) const {
    return strategy_->make_numpy_dataset(arrays...);
  }
  template <class Fn, class Iterator>
  MultiStepContext run_steps_on_iterator(Fn&& fn, Iterator& iterator, int64_t iterations = 1,
                                         const std::map<std::string, Tensor>& initial = {}) const;
  /// False: only a TPU needs shapes that never change.
  bool require_static_shapes() const { return false; }

 private:
  Strategy* strategy_;
};

inline StrategyExtended Strategy::extended() { return StrategyExtended(*this); }

template <class... Arrays>
auto Strategy::make_numpy_dataset(const Arrays&... arrays) const {
  return data::from_tensor_slices(internal::host_tensors(arrays)...);
}

template <class Fn, class Iterator>
MultiStepContext Strategy::run_steps_on_iterator(Fn&& fn, Iterator& iterator, int64_t iterations,
                                                 const std::map<std::string, Tensor>& initial) {
  check_cross_replica("run_steps_on_iterator");
  if (iterations < 0) {
    throw InvalidArgument(cat("run_steps_on_iterator [", name(), "]: ", iterations,
                              " iterations, expected 0 or more"));
  }
  Scope scope(*this);
  MultiStepContext context(initial);
  for (int64_t i = 0; i < iterations; ++i) fn(context, iterator.get_next());
  return context;
}

template <class Fn, class Iterator>
MultiStepContext StrategyExtended::run_steps_on_iterator(
    Fn&& fn, Iterator& iterator, int64_t iterations,
    const std::map<std::string, Tensor>& initial) const {
  return strategy_->run_steps_on_iterator(std::forward<Fn>(fn), iterator, iterations, initial);
}

}  // namespace tutti::distribute
