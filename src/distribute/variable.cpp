// Creation, reading and assignment of variables: the matrix of synchronization x aggregation x
// context.

#include "tutti/distribute/variable.h"

#include "collectives/local_reduce.h"
#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "tutti/tensor/flat_buffer.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {

using collectives::ReduceOp;
using distribute::Strategy;
using internal::VariableState;

namespace {

Tensor owned_copy(const Tensor& value, c10::Device device) {
  at::NoGradGuard no_grad;
  Tensor copy = zeros_like_dense(value.detach().to(device));
  copy.copy_(value.detach());
  return copy;
}

void check_options(const Tensor& initial, const VariableOptions& options) {
  if (!initial.defined()) {
    throw InvalidArgument(
        cat("Variable [", options.name,
            "]: no initial value, expected a tensor; pass one, e.g. at::zeros({})"));
  }
  if (options.synchronization == VariableSynchronization::kNone) {
    throw InvalidArgument(cat("Variable [", options.name,
                              "]: synchronization NONE, expected ON_WRITE, ON_READ or AUTO"));
  }
  if (options.aggregation == VariableAggregation::kMean && !initial.is_floating_point()) {
    throw InvalidArgument(cat("Variable [", options.name, "]: aggregation MEAN with dtype ",
                              dtype_name(initial.scalar_type()),
                              ", expected a floating dtype; use SUM or ONLY_FIRST_REPLICA"));
  }
}

Tensor aggregated(const VariableState& state, const std::vector<Tensor>& values,
                  const char* operation) {
  switch (state.aggregation) {
    case VariableAggregation::kSum:
      return collectives::local_reduce(ReduceOp::kSum, values);
    case VariableAggregation::kMean:
      return collectives::local_reduce(ReduceOp::kMean, values);
    case VariableAggregation::kOnlyFirstReplica:
      return values[0].detach();
    case VariableAggregation::kNone:
      break;
  }
  throw InvalidArgument(
      cat(operation, " [", state.name,
          "]: an ON_READ variable with aggregation NONE is read across replicas, expected "
          "SUM, MEAN or ONLY_FIRST_REPLICA; read it inside a replica, or take "
          "strategy.local_results(variable)"));
}

}  // namespace

namespace internal {

void VariableState::check_usable(const char* operation) const {
  if (strategy_lifetime.expired()) {
    throw FailedPrecondition(
        cat(operation, " [", name,
            "]: the strategy of this variable is gone, expected it alive; keep it longer than "
            "its variables are used"));
  }
  strategy->check_usable(operation);
}

int VariableState::replica() const {
  const auto& stack = distribute::thread_context().stack;
  if (strategy->is_default())
    return 0;  // where there is no strategy, everybody is its only replica
  if (stack.empty() || stack.back().replica == nullptr || stack.back().strategy != strategy)
    return -1;
  return stack.back().replica->local_replica_id();
}

void VariableState::split_off(std::size_t index) {
  if (own[index] != 0) return;
  at::NoGradGuard no_grad;
  components[index] = owned_copy(components[index], components[index].device());
  leaves[index].set_data(components[index]);
  own[index] = 1;
  shared.store(false, std::memory_order_release);
}

void VariableState::split_all() {
  for (std::size_t i = 0; i < components.size(); ++i) split_off(i);
}

void VariableState::move_to(const Tensor& storage) {
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < components.size(); ++i) {
    components[i] = storage;
    leaves[i].set_data(storage);
  }
}

void VariableState::note_update() {
  updated_at.store(strategy->update_count().fetch_add(1, std::memory_order_acq_rel) + 1,
                   std::memory_order_release);
}

std::shared_ptr<VariableState> make_variable_state(const Tensor& initial_value,
                                                   const VariableOptions& options,
                                                   Strategy& strategy, std::vector<Tensor> leaves) {
  check_options(initial_value, options);
  auto state = std::make_shared<VariableState>();
  const bool on_read = options.synchronization == VariableSynchronization::kOnRead;
  state->name = options.name;
  state->synchronization =
      on_read ? VariableSynchronization::kOnRead : VariableSynchronization::kOnWrite;
  state->aggregation = options.aggregation;
  state->trainable = options.trainable.value_or(!on_read && initial_value.is_floating_point()) &&
                     initial_value.is_floating_point();
  state->strategy = &strategy;
  state->strategy_lifetime = strategy.lifetime();
  const auto& devices = strategy.devices();
  const bool share = !on_read && devices[0].kind == DeviceName::Kind::kCpu;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    state->components.push_back(share && i > 0
                                    ? state->components[0]
                                    : owned_copy(initial_value, devices[i].torch_device()));
    if (i < leaves.size()) {
      at::NoGradGuard no_grad;
      leaves[i].set_data(state->components[i]);
      state->leaves.push_back(leaves[i]);
    } else {
      Tensor leaf = state->components[i].detach();
      leaf.requires_grad_(state->trainable);
      state->leaves.push_back(leaf);
    }
  }
  state->shape = initial_value.sizes().vec();
  state->dtype = initial_value.scalar_type();
  state->own.assign(devices.size(), share ? 0 : 1);
  state->shared.store(share, std::memory_order_release);
  return state;
}

}  // namespace internal

Variable::Variable(const Tensor& initial_value, const VariableOptions& options) {
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  Strategy& strategy = distribute::get_strategy();
  distribute::check_scopes_unmixed("Variable");
  if (replica == nullptr || strategy.is_default()) {
    state_ = internal::make_variable_state(initial_value, options, strategy);
    return;
  }
  // Made inside a replica: all replicas make it together, with replica 0's value.
  using StatePtr = std::shared_ptr<VariableState>;
  state_ = replica->merge_call(
      [&options](Strategy& merged, const PerReplica<Tensor>& initial) -> StatePtr {
        return internal::make_variable_state(initial[0], options, merged);
      },
      initial_value);
}

VariableState& Variable::state() const {
  if (state_ == nullptr)
    throw FailedPrecondition(
        "Variable: an empty handle, expected a variable; construct it with a tensor");
  return *state_;
}

Tensor Variable::value() const {
  VariableState& state = this->state();
  state.check_usable("value");
  const int replica = state.replica();
  if (replica >= 0) return state.leaves[static_cast<std::size_t>(replica)];
  if (state.on_read()) {
    at::NoGradGuard no_grad;
    return aggregated(state, state.components, "value").clone();
  }
  return state.leaves[0];
}

Tensor Variable::read_value() const {
  at::NoGradGuard no_grad;
  return value().detach().clone();
}

namespace {

enum class Op { kAssign, kAdd, kSub };

void apply(Tensor& component, Op op, const Tensor& value) {
  switch (op) {
    case Op::kAssign:
      component.copy_(value);
      break;
    case Op::kAdd:
      component.add_(value);
      break;
    case Op::kSub:
      component.sub_(value);
      break;
  }
}

const char* op_name(Op op) {
  return op == Op::kAssign ? "assign" : op == Op::kAdd ? "assign_add" : "assign_sub";
}

void apply_everywhere(VariableState& state, Op op, const Tensor& value) {
  if (state.shared.load(std::memory_order_acquire)) {
    apply(state.components[0], op, value);
  } else {
    state.split_all();  // some may still have one storage: it would be written once for each
    for (Tensor& component : state.components) apply(component, op, value.to(component.device()));
  }
  state.note_update();
}

void check_value(const VariableState& state, Op op, const Tensor& value) {
  if (value.defined() && value.sizes() == at::IntArrayRef(state.shape) &&
      value.scalar_type() == state.dtype)
    return;
  throw InvalidArgument(
      cat(op_name(op), " [", state.name, "]: a value ",
          value.defined() ? cat(dtype_name(value.scalar_type()), " ", shape_text(value.sizes()))
                          : "undefined",
          ", expected ", dtype_name(state.dtype), " ", shape_text(state.shape),
          ", the variable's; reshape or convert it"));
}

void update_in_replica(VariableState& state, int replica, Op op, const Tensor& value,
                       bool literal) {
  const auto index = static_cast<std::size_t>(replica);
  if (state.on_read() || state.components.size() == 1 ||
      state.aggregation == VariableAggregation::kNone) {
    if (!state.on_read() && state.components.size() > 1) state.split_off(index);
    apply(state.components[index], op, value);
    state.note_update();
    return;
  }
  distribute::get_replica_context()->merge_call(
      [&](Strategy&, const PerReplica<Tensor>& values) {
        const std::vector<Tensor> parts(values.values().begin(), values.values().end());
        apply_everywhere(state, op, literal ? parts[0] : aggregated(state, parts, op_name(op)));
      },
      value);
}

void update_across_replicas(VariableState& state, Op op, const Tensor& value) {
  if (!state.on_read()) return apply_everywhere(state, op, value);
  if (state.aggregation == VariableAggregation::kSum) {
    if (op != Op::kAssign) {
      throw InvalidArgument(
          cat(op_name(op), " [", state.name,
              "]: an ON_READ variable with aggregation SUM outside replicas, expected assign; "
              "it is unclear how the change is shared among the replicas"));
    }
    const auto replicas = static_cast<double>(state.strategy->num_replicas_in_sync());
    apply_everywhere(state, op, (value / replicas).to(value.scalar_type()));
    return;
  }
  apply_everywhere(state, op, value);
}

}  // namespace

Tensor Variable::update(Operation operation, const Tensor& value) {
  VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  check_value(state, op, value);
  {
    at::NoGradGuard no_grad;
    const Tensor detached = value.detach();
    const int replica = state.replica();
    if (replica >= 0) {
      update_in_replica(state, replica, op, detached, /*literal=*/false);
    } else {
      update_across_replicas(state, op, detached);
    }
    if (replica < 0 && state.on_read() && state.aggregation == VariableAggregation::kNone)
      return detached;  // it cannot be read here
  }
  return this->value();
}

Tensor Variable::update(Operation operation, double value) {
  VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  const int replica = state.replica();
  const Tensor& like = state.components[static_cast<std::size_t>(std::max(0, replica))];
  const Tensor tensor = at::full(state.shape, value, like.options());
  if (replica < 0) return update(operation, tensor);
  if (!state.on_read() && state.aggregation == VariableAggregation::kSum &&
      state.components.size() > 1 && value != 0) {
    throw InvalidArgument(
        cat(op_name(op), " [", state.name, "]: the number ", value,
            " inside a replica of a variable with aggregation SUM, "
            "expected a tensor; it is unclear whether it counts once or once a replica"));
  }
  {
    at::NoGradGuard no_grad;
    update_in_replica(state, replica, op, tensor, /*literal=*/true);
  }
  return this->value();
}

const std::string& Variable::name() const { return state().name; }
bool Variable::trainable() const { return state().trainable; }
void Variable::set_trainable(bool trainable) {
  VariableState& state = this->state();
  state.trainable = trainable;
  for (Tensor& leaf : state.leaves) leaf.requires_grad_(trainable && leaf.is_floating_point());
}
VariableSynchronization Variable::synchronization() const { return state().synchronization; }
VariableAggregation Variable::aggregation() const { return state().aggregation; }
at::IntArrayRef Variable::sizes() const { return state().shape; }
at::ScalarType Variable::dtype() const { return state().dtype; }
int64_t Variable::numel() const { return c10::multiply_integers(state().shape); }
std::vector<DeviceName> Variable::devices() const {
  const Strategy& owner = *state().strategy;
  return owner.parameter_device() ? std::vector<DeviceName>{*owner.parameter_device()}
                                  : owner.devices();
}
std::vector<Tensor> Variable::components() const { return state().components; }
bool Variable::is_shared() const { return state().shared.load(std::memory_order_acquire); }
Strategy& Variable::strategy() const {
  state().check_usable("strategy");
  return *state().strategy;
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  const VariableState& state = variable.state();
  auto line = [&](std::size_t i) {
    const Tensor& value = state.components[i];
    return cat("Variable(name='", state.name, i == 0 ? "" : cat("/replica_", i),
               "', shape=", shape_text(value.sizes()), ", dtype=", dtype_name(value.scalar_type()),
               ", value=", values_to_string(value), ")");
  };
  if (state.components.size() == 1) return out << line(0);
  out << (state.on_read() ? "SyncOnReadVariable:{\n" : "MirroredVariable:{\n");
  for (std::size_t i = 0; i < state.components.size(); ++i) {
    out << "  " << i << ": " << line(i) << (i + 1 < state.components.size() ? ",\n" : "\n");
  }
  return out << "}";
}

}  // namespace tutti
