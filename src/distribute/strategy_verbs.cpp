// What TensorFlow keeps behind `extended`: moving values between devices, updating variables,
// asking where things are.

#include <algorithm>

#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

// ---- reduce_to, batch_reduce_to, broadcast_to

Mirrored<Tensor> Strategy::reduce_to(AnyReduceOp op, const PerReplica<Tensor>& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) {
  check_cross_replica("reduce_to");
  return cross_device_ops().reduce(op, value, destinations,
                                   communication_options_.merged_with(options));
}

Mirrored<Tensor> Strategy::reduce_to(AnyReduceOp op, const Mirrored<Tensor>& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions&) {
  return broadcast_to(reduce(op, value), destinations);
}

Mirrored<Tensor> Strategy::reduce_to(AnyReduceOp op, const Tensor& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions&) {
  return broadcast_to(reduce(op, value), destinations);
}

Mirrored<IndexedSlices> Strategy::reduce_to(AnyReduceOp op, const PerReplica<IndexedSlices>& value,
                                            const Destinations& destinations,
                                            const CommunicationOptions& options) {
  check_cross_replica("reduce_to");
  return cross_device_ops().reduce(op, value, destinations,
                                   communication_options_.merged_with(options));
}

std::vector<ReductionResult> Strategy::batch_reduce_to(AnyReduceOp op,
                                                       const std::vector<ValueDestinations>& values,
                                                       const CommunicationOptions& options) {
  check_cross_replica("batch_reduce_to");
  return cross_device_ops().batch_reduce(op, values, communication_options_.merged_with(options));
}

Mirrored<Tensor> Strategy::broadcast_to(const Tensor& tensor, const Destinations& destinations) {
  check_cross_replica("broadcast_to");
  return cross_device_ops().broadcast(tensor, destinations);
}

// ---- update contexts

void Strategy::refuse_per_replica(const char* operation, std::size_t components) const {
  throw InvalidArgument(cat(operation, " [", name(), "]: a PerReplica of ", components,
                            " components as an argument, expected a plain or Mirrored value; "
                            "different values would make the variable's components differ, reduce "
                            "it first"));
}

std::vector<int> Strategy::update_copies(const Variable& variable, FunctionRef<void(int)> body) {
  check_cross_replica("update");
  check_owner("update", variable);
  const auto& state = variable.state();
  std::vector<int> copies(static_cast<std::size_t>(num_local_replicas()));
  for (std::size_t r = 0; r < copies.size(); ++r) {
    copies[r] = static_cast<int>(r);
    for (std::size_t earlier = 0; earlier < r; ++earlier) {
      if (state.components[earlier].data_ptr() == state.components[r].data_ptr() &&
          state.own[r] == 0 && state.own[earlier] == 0) {
        copies[r] = static_cast<int>(earlier);
        break;
      }
    }
  }
  for (std::size_t r = 0; r < copies.size(); ++r) {
    if (copies[r] != static_cast<int>(r)) continue;
    ContextGuard context(*this, nullptr, static_cast<int>(r));
    body(static_cast<int>(r));
  }
  return copies;
}

void Strategy::update_devices(const Destinations& devices, FunctionRef<void(int)> body) {
  check_cross_replica("update_non_slot");
  for (const DeviceName& device : devices.devices()) {
    const auto here = std::find(devices_.begin(), devices_.end(), device);
    const int replica = here == devices_.end() ? 0 : static_cast<int>(here - devices_.begin());
    ContextGuard context(*this, nullptr, replica);
    body(replica);
  }
}

// ---- where things are

void Strategy::check_owner(const char* operation, const Variable& variable) const {
  if (variable_created_in_scope(variable)) return;
  throw InvalidArgument(cat(operation, " [", name(), "]: the variable \"", variable.name(),
                            "\" was made under another strategy, expected one of this strategy; "
                            "make it inside scope()"));
}

bool Strategy::variable_created_in_scope(const Variable& variable) const {
  return variable.state().strategy == this;
}

std::vector<DeviceName> Strategy::worker_devices() const {
  if (is_default_)
    throw FailedPrecondition(
        "worker_devices [default strategy]: there are none, expected a strategy; make one");
  return devices_;
}

std::vector<DeviceName> Strategy::parameter_devices() const {
  if (is_default_)
    throw FailedPrecondition(
        "parameter_devices [default strategy]: there are none, expected a strategy; make one");
  return parameter_device_ ? std::vector<DeviceName>{*parameter_device_} : devices_;
}

std::vector<DeviceName> Strategy::non_slot_devices(const std::vector<Variable>& variables) const {
  if (variables.empty())
    throw InvalidArgument(
        cat("non_slot_devices [", name(), "]: no variables, expected at least one"));
  return variables[0].devices();
}

Scope Strategy::colocate_vars_with(const Variable& variable) {
  if (&get_strategy() != this) {
    throw FailedPrecondition(cat("colocate_vars_with [", name(),
                                 "]: called outside this strategy's scope, expected inside; "
                                 "enter scope() first"));
  }
  check_owner("colocate_vars_with", variable);
  return Scope(*this);  // all variables of one strategy live on the same devices
}

}  // namespace tutti::distribute
