// What TensorFlow keeps behind `extended`: moving values between devices, updating variables,
// asking where things are.

#include <algorithm>
#include <cstring>

#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "tutti/distribute/extended.h"

namespace tutti::distribute {
namespace {

std::string join_keys(const std::map<std::string, MultiStepContext::Output>& outputs) {
  std::vector<std::string> keys;
  for (const auto& [key, output] : outputs) keys.push_back(key);
  return join(keys, ", ");
}

}  // namespace

// ---- reduce_to, batch_reduce_to, broadcast_to

Mirrored<Tensor> Strategy::reduce_to(AnyReduceOp op, const PerReplica<Tensor>& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) {
  check_cross_replica("reduce_to");
  check_components("reduce_to", value.size());
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
  check_components("reduce_to", value.size());
  return cross_device_ops().reduce(op, value, destinations,
                                   communication_options_.merged_with(options));
}

std::vector<ReductionResult> Strategy::batch_reduce_to(AnyReduceOp op,
                                                       const std::vector<ValueDestinations>& values,
                                                       const CommunicationOptions& options) {
  check_cross_replica("batch_reduce_to");
  for (const ValueDestinations& item : values) {
    std::visit([this](const auto& value) { check_components("batch_reduce_to", value.size()); },
               item.value);
  }
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
  check_cross_replica("update", "use get_replica_context()->update");
  check_owner("update", variable);
  const auto& state = variable.state();
  std::vector<int> copies(static_cast<std::size_t>(num_local_replicas()), 0);
  for (std::size_t r = 0; r < std::min(copies.size(), state.components.size()); ++r) {
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
  check_cross_replica("update_non_slot", "call it inside merge_call");
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
  if (&get_strategy() != this || !in_cross_replica_context()) {
    throw FailedPrecondition(cat("colocate_vars_with [", name(),
                                 "]: called outside this strategy's scope, expected inside; "
                                 "enter scope() first"));
  }
  check_owner("colocate_vars_with", variable);
  return Scope(*this);  // all variables of one strategy live on the same devices
}

// ---- steps and host data

MultiStepContext::MultiStepContext(const std::map<std::string, Tensor>& initial)
    : outputs_(initial.begin(), initial.end()) {}

void MultiStepContext::set_last_step_output(const std::string& name, const Tensor& output,
                                            std::optional<AnyReduceOp> op) {
  ReplicaContext* replica = get_replica_context();
  if (replica == nullptr) {
    outputs_[name] = op ? get_strategy().reduce(*op, output) : output;
    return;
  }
  if (!op) {
    throw InvalidArgument(cat("set_last_step_output [", name,
                              "]: no reduction inside a replica, expected SUM or MEAN; pass it, or "
                              "set the output outside run"));
  }
  replica->merge_call(
      [&](Strategy& strategy, const PerReplica<Tensor>& outputs) {
        outputs_[name] = strategy.reduce(*op, outputs);
      },
      output);
}

void MultiStepContext::set_last_step_output(const std::string& name,
                                            const PerReplica<Tensor>& output,
                                            std::optional<AnyReduceOp> op) {
  if (op) {
    outputs_[name] = get_strategy().reduce(*op, output);
  } else {
    outputs_[name] = output;
  }
}

const Tensor& MultiStepContext::last_step_output(const std::string& name) const {
  const auto found = outputs_.find(name);
  if (found == outputs_.end())
    throw NotFound(
        cat("last_step_output [", name, "]: not set, expected one of ", join_keys(outputs_)));
  if (const auto* tensor = std::get_if<Tensor>(&found->second)) return *tensor;
  throw InvalidArgument(cat("last_step_output [", name,
                            "]: a PerReplica, expected one tensor; set it with a reduction, or "
                            "take it from last_step_outputs()"));
}

namespace internal {

Tensor host_copy(const void* data, at::ScalarType dtype, std::vector<int64_t> sizes) {
  Tensor copy = at::empty(sizes, dtype);
  if (copy.numel() > 0) std::memcpy(copy.mutable_data_ptr(), data, copy.nbytes());
  return copy;
}

Tensor host_copy(const Tensor& tensor) {
  if (!tensor.defined())
    throw InvalidArgument("make_numpy_dataset: an undefined tensor, expected an array of rows");
  return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace internal

}  // namespace tutti::distribute
