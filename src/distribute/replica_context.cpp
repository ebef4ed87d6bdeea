// The current strategy and replica of each thread, and what a replica can do. The library's one
// thread-local is here.

#include "tutti/distribute/replica_context.h"

#include "collectives/in_process.h"
#include "collectives/rendezvous.h"
#include "distribute/collective_gradients.h"
#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {
namespace {

/// A group of one rank, for threads that are in no strategy.
struct DefaultReplica {
  std::shared_ptr<collectives::Rendezvous> rendezvous =
      std::make_shared<collectives::Rendezvous>(1);
  std::vector<std::unique_ptr<collectives::Communicator>> group =
      collectives::make_in_process_group(rendezvous);
  ReplicaContext context{default_strategy(), 0, 0, *group[0], *rendezvous};
};

}  // namespace

ThreadContext& thread_context() {
  thread_local ThreadContext context;
  return context;
}

ReplicaContext& default_replica_context() {
  thread_local DefaultReplica replica;
  return replica.context;
}

Strategy& get_strategy() {
  const auto& stack = thread_context().stack;
  return stack.empty() ? default_strategy() : *stack.back().strategy;
}

bool has_strategy() { return !get_strategy().is_default(); }

ReplicaContext* get_replica_context() {
  const auto& stack = thread_context().stack;
  return stack.empty() ? &default_replica_context() : stack.back().replica;
}

std::optional<int> get_update_replica_id() {
  const auto& stack = thread_context().stack;
  if (stack.empty() || stack.back().update_replica < 0) return std::nullopt;
  return stack.back().update_replica;
}

bool in_cross_replica_context() { return get_replica_context() == nullptr; }

int ReplicaContext::num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }

void ReplicaContext::check_current(const char* operation) const {
  const ReplicaContext* here = get_replica_context();
  if (here == this) return;
  std::string where = "in cross-replica context";
  if (here != nullptr && &here->strategy_ == &strategy_) {
    where = cat("in replica ", here->replica_id_, " of the same strategy");
  } else if (here != nullptr) {
    where = cat("in a replica of another strategy (", here->strategy_.name(), ")");
  }
  throw FailedPrecondition(
      cat(operation, " [", strategy_.name(), " replica ", replica_id_, "]: called ", where,
          ", expected this replica's own function; call it on get_replica_context() inside run"));
}

namespace {

/// The mean of one is itself, whatever its dtype.
ReduceOp among(int replicas, ReduceOp op) { return replicas == 1 ? ReduceOp::kSum : op; }

}  // namespace

Tensor ReplicaContext::all_reduce(AnyReduceOp op, const Tensor& value,
                                  const CommunicationOptions& options) {
  check_current("all_reduce");
  return differentiable_all_reduce(
      ReplicaCall{*this, strategy_.communication_options().merged_with(options)},
      among(num_replicas_in_sync(), op), value);
}

IndexedSlices ReplicaContext::all_reduce(AnyReduceOp op, const IndexedSlices& value,
                                         const CommunicationOptions& options) {
  check_current("all_reduce");
  return differentiable_all_reduce(
      ReplicaCall{*this, strategy_.communication_options().merged_with(options)},
      among(num_replicas_in_sync(), op), value);
}

Tensor ReplicaContext::all_gather(const Tensor& value, int64_t axis,
                                  const CommunicationOptions& options) {
  check_current("all_gather");
  return differentiable_all_gather(
      ReplicaCall{*this, strategy_.communication_options().merged_with(options)}, value, axis);
}

std::vector<DeviceName> ReplicaContext::devices() const {
  check_current("devices");
  return {strategy_.devices()[static_cast<std::size_t>(local_id_)]};
}

void ReplicaContext::all_reduce_leaves(ReduceOp op,
                                       const std::vector<internal::ReducibleLeaf>& leaves,
                                       const CommunicationOptions& options) {
  check_current("all_reduce");
  op = among(num_replicas_in_sync(), op);
  const ReplicaCall call{*this, strategy_.communication_options().merged_with(options)};
  std::vector<Tensor*> dense;
  std::vector<IndexedSlices*> sparse;
  for (const internal::ReducibleLeaf& leaf : leaves) {
    if (auto* const* tensor = std::get_if<Tensor*>(&leaf)) dense.push_back(*tensor);
    if (auto* const* slices = std::get_if<IndexedSlices*>(&leaf)) sparse.push_back(*slices);
  }
  differentiable_all_reduce(call, op, dense);
  for (IndexedSlices* slices : sparse) *slices = differentiable_all_reduce(call, op, *slices);
}

void ReplicaContext::all_gather_leaves(const std::vector<internal::ReducibleLeaf>& leaves,
                                       int64_t axis, const CommunicationOptions& options) {
  check_current("all_gather");
  for (const internal::ReducibleLeaf& leaf : leaves) {
    if (std::holds_alternative<IndexedSlices*>(leaf)) {
      throw Unimplemented(cat("all_gather [", strategy_.name(), " replica ", replica_id_,
                              "]: IndexedSlices, expected tensors; all_reduce joins their rows"));
    }
  }
  for (const internal::ReducibleLeaf& leaf : leaves) {
    Tensor& tensor = *std::get<Tensor*>(leaf);
    tensor = all_gather(tensor, axis, options);
  }
}

void ReplicaContext::merge(const char* operation, const std::type_info& type, void* payload,
                           FunctionRef<void(std::span<void* const>)> merged,
                           FunctionRef<void(void*)> take) {
  check_current(operation);
  const auto timeout = collectives::kDefaultTimeout;
  rendezvous_.meet(local_id_, {operation, payload, /*number=*/0, &type}, timeout);
  if (local_id_ == 0) {
    std::vector<void*> payloads;
    for (int i = 0; i < rendezvous_.size(); ++i)
      payloads.push_back(const_cast<void*>(rendezvous_.call_of(i).payload));
    ContextGuard cross_replica(strategy_, nullptr);
    at::NoGradGuard no_grad;
    merged(payloads);
  }
  // Everybody waits for the merged result, then for everybody to have taken their part of it.
  void* first = const_cast<void*>(rendezvous_.call_of(0).payload);
  rendezvous_.leave(local_id_, timeout);
  take(first);
  rendezvous_.meet(local_id_, {operation, payload, /*number=*/0, &type}, timeout);
  rendezvous_.leave(local_id_, timeout);
}

void ReplicaContext::update_component(const Variable& variable, FunctionRef<void()> body) {
  check_current("update");
  tutti::internal::VariableState& state = variable.state();
  state.check_usable("update");
  if (state.strategy != &strategy_) {
    throw InvalidArgument(cat("update [", strategy_.name(), "]: the variable \"", variable.name(),
                              "\" was made under ", state.strategy->name(),
                              ", expected one of this strategy; make it inside scope()"));
  }
  if (state.kind == tutti::internal::VariableKind::kAggregating) {
    throw InvalidArgument(cat("update [", strategy_.name(), "]: the variable \"", variable.name(),
                              "\" has one copy for all replicas, expected one a replica; assign "
                              "with an aggregation, or call strategy.update in merge_call"));
  }
  // Replicas may pass different arguments: from here on this one has a copy of its own.
  if (state.components.size() > 1) state.split_off(static_cast<std::size_t>(local_id_));
  ContextGuard update(strategy_, nullptr, local_id_);
  body();
}

void ReplicaContext::call_once_for_all(const char* operation, FunctionRef<void()> once) {
  merge(
      operation, typeid(void), nullptr, [&](std::span<void* const>) { once(); }, [](void*) {});
}

void once_for_all_replicas(const char* operation, FunctionRef<void()> once) {
  ReplicaContext* replica = get_replica_context();
  const auto& stack = thread_context().stack;
  if (replica == nullptr || stack.empty() || stack.back().is_default_mode) return once();
  replica->call_once_for_all(operation, once);
}

at::Generator& ReplicaContext::generator() const { return strategy_.generator(local_id_); }

namespace internal {
Tensor detached(const Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() ? tensor.detach() : tensor;
}
void check_not_in_replica(const char* operation) {
  ReplicaContext* context = get_replica_context();
  if (context == nullptr || context->strategy().is_default()) return;
  throw InvalidArgument(cat(operation, " [replica ", context->replica_id_in_sync_group(),
                            "]: called inside a replica, expected outside; take the step before "
                            "run and pass it as an argument"));
}
}  // namespace internal

}  // namespace tutti::distribute

namespace tutti::internal {

std::size_t current_component(std::size_t size) {
  const auto& stack = distribute::thread_context().stack;
  if (stack.empty() || stack.back().replica == nullptr) return 0;
  const auto replica = static_cast<std::size_t>(stack.back().replica->local_replica_id());
  return replica < size ? replica : 0;
}

}  // namespace tutti::internal
