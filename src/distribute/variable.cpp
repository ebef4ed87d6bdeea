// Creation and reading of variables, and what is known about them. Assignment: variable_assign.cpp,
// variable_scatter.cpp.

#include "tutti/distribute/variable.h"

#include <algorithm>

#include "collectives/local_reduce.h"
#include "distribute/context_stack.h"
#include "distribute/variable_registry.h"
#include "distribute/variable_state.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/flat_buffer.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {

using collectives::ReduceOp;
using distribute::Strategy;
using internal::VariableKind;
using internal::VariableState;
using StatePtr = std::shared_ptr<VariableState>;

namespace {

Tensor owned_copy(const Tensor& value, c10::Device device) {
  at::NoGradGuard no_grad;
  Tensor copy = zeros_like_dense(value.detach().to(device));
  copy.copy_(value.detach());
  return copy;
}

void check_options(const Tensor& initial, const VariableOptions& options,
                   const Strategy& strategy) {
  auto refuse = [&](const auto&... parts) {
    throw InvalidArgument(cat("Variable [", options.name, "]: ", parts...));
  };
  if (!initial.defined())
    refuse("no initial value, expected a tensor; pass one, e.g. at::zeros({})");
  if (options.synchronization < VariableSynchronization::kAuto ||
      options.synchronization > VariableSynchronization::kOnRead)
    refuse("synchronization ", static_cast<int>(options.synchronization),
           ", expected AUTO, ON_WRITE, ON_READ or NONE");
  if (options.aggregation < VariableAggregation::kNone ||
      options.aggregation > VariableAggregation::kOnlyFirstReplica)
    refuse("aggregation ", static_cast<int>(options.aggregation),
           ", expected NONE, SUM, MEAN or ONLY_FIRST_REPLICA");
  if (!strategy.mirrors_variables() || strategy.parameter_device()) return;
  if (options.synchronization == VariableSynchronization::kNone)
    refuse("synchronization NONE under ", strategy.name(), ", expected ON_WRITE, ON_READ or AUTO");
  if (options.aggregation == VariableAggregation::kMean && !initial.is_floating_point())
    refuse("aggregation MEAN with dtype ", dtype_name(initial.scalar_type()),
           ", expected a floating dtype; use SUM or ONLY_FIRST_REPLICA");
}

VariableKind kind_for(const Strategy& strategy, VariableSynchronization synchronization) {
  if (!strategy.mirrors_variables()) return VariableKind::kPlain;
  if (strategy.parameter_device())
    return strategy.num_local_replicas() > 1 ? VariableKind::kAggregating : VariableKind::kPlain;
  return synchronization == VariableSynchronization::kOnRead ? VariableKind::kSyncOnRead
                                                             : VariableKind::kMirrored;
}

std::string component_name(const VariableState& state, std::size_t index) {
  return index == 0 ? state.name : cat(state.name, "/replica_", index);
}

/// Makes a variable on behalf of all replicas, which meet for it; `make` runs once.
StatePtr make_together(distribute::ReplicaContext& replica, const char* operation,
                       const std::string& name, FunctionRef<StatePtr()> make) {
  const int id = replica.local_replica_id();
  try {
    return replica.merge_call_named(
        operation,
        [&](Strategy&, const PerReplica<std::string>& names) -> StatePtr {
          for (std::size_t r = 1; r < names.size(); ++r) {
            if (names[r] == names[0]) continue;
            throw InvalidArgument(cat("replica 0 makes the variable \"", names[0], "\", replica ",
                                      r, " makes \"", names[r],
                                      "\" at the same place, expected one name; make variables in "
                                      "the same order on all replicas"));
          }
          return make();
        },
        name);
  } catch (const Error& error) {
    // Whatever happened, say which variable was being made: others may have been made before.
    throw_error(error.code(), cat(operation, " [", name, ", replica ", id, "]: ", error.what()));
  }
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
  if (stack.empty() || stack.back().strategy != strategy) return -1;
  if (stack.back().update_replica >= 0) return stack.back().update_replica;
  return stack.back().replica == nullptr ? -1 : stack.back().replica->local_replica_id();
}

bool VariableState::in_update_context() const {
  const auto& stack = distribute::thread_context().stack;
  return !stack.empty() && stack.back().strategy == strategy && stack.back().update_replica >= 0;
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

namespace {

/// The reduction of this worker's `values`, and over the workers.
Tensor reduced(const Strategy& strategy, ReduceOp op, const std::vector<Tensor>& values) {
  distribute::WorkerGroup* workers = strategy.workers();
  if (workers == nullptr || workers->reads_locally()) return collectives::local_reduce(op, values);
  Tensor sum = collectives::local_reduce(ReduceOp::kSum, values).contiguous();
  workers->all_reduce(sum, ReduceOp::kSum, workers->options());
  if (op == ReduceOp::kMean) sum.div_(static_cast<double>(strategy.num_replicas_in_sync()));
  return sum;
}

}  // namespace

Tensor VariableState::aggregated(const char* operation, const std::vector<Tensor>& values) const {
  auto refuse = [&](const auto&... parts) {
    throw InvalidArgument(cat(operation, " [", name, "]: ", parts...));
  };
  switch (aggregation) {
    case VariableAggregation::kSum:
      if (dtype == at::kBool && has_others())
        refuse("aggregation SUM of bool, expected numbers; use ONLY_FIRST_REPLICA, or int32");
      return reduced(*strategy, ReduceOp::kSum, values);
    case VariableAggregation::kMean:
      if (!at::isFloatingType(dtype) && has_others())
        refuse("aggregation MEAN of ", dtype_name(dtype),
               ", expected a floating dtype; use SUM or ONLY_FIRST_REPLICA");
      return reduced(*strategy, ReduceOp::kMean, values);
    case VariableAggregation::kOnlyFirstReplica:
      return values[0].detach();
    case VariableAggregation::kNone:
      refuse(
          "an ON_READ variable with aggregation NONE is read across replicas, expected "
          "SUM, MEAN or ONLY_FIRST_REPLICA; read it inside a replica, or take "
          "strategy.local_results(variable)");
  }
  return Tensor();
}

namespace {

/// Without the numbers of automatic names ("dense_1"): a worker may have made other models before.
std::string unnumbered(const std::string& name) {
  std::string plain;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    const std::size_t last = part.find_last_not_of("0123456789");
    if (last != std::string::npos && last + 1 < part.size() && part[last] == '_') part.resize(last);
    plain += part + (end < name.size() ? "/" : "");
    begin = end + 1;
  }
  return plain;
}

}  // namespace

std::string described_to_workers(const VariableState& state) {
  return cat("\"", unnumbered(state.name), "\", ", dtype_name(state.dtype), " ",
             shape_text(state.shape));
}

// By the enumerators' order; check_options has seen that they are of the enumeration.
const char* name_of(VariableSynchronization synchronization) {
  constexpr const char* kNames[] = {"AUTO", "NONE", "ON_WRITE", "ON_READ"};
  return kNames[static_cast<std::size_t>(synchronization)];
}
const char* name_of(VariableAggregation aggregation) {
  constexpr const char* kNames[] = {"NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"};
  return kNames[static_cast<std::size_t>(aggregation)];
}

Tensor agreed_initial_value(const Tensor& mine, const VariableOptions& options,
                            const Strategy& strategy) {
  distribute::WorkerGroup* workers = strategy.workers();
  if (workers == nullptr || !mine.defined()) return mine;
  workers->agree("Variable", cat("\"", unnumbered(options.name), "\": ",
                                 dtype_name(mine.scalar_type()), " ", shape_text(mine.sizes()),
                                 ", synchronization ", name_of(options.synchronization),
                                 ", aggregation ", name_of(options.aggregation)));
  return workers->of_first(mine);
}

StatePtr make_variable_state(const Tensor& initial_value, const VariableOptions& options,
                             Strategy& strategy, std::vector<Tensor> leaves) {
  check_options(initial_value, options, strategy);
  auto state = std::make_shared<VariableState>();
  const bool on_read = options.synchronization == VariableSynchronization::kOnRead;
  state->name = options.name;
  state->kind = kind_for(strategy, options.synchronization);
  state->synchronization = options.synchronization;
  if (state->kind == VariableKind::kMirrored)
    state->synchronization = VariableSynchronization::kOnWrite;
  state->aggregation = options.aggregation;
  state->constraint = options.constraint;
  state->trainable = options.trainable.value_or(!on_read && initial_value.is_floating_point()) &&
                     initial_value.is_floating_point();
  state->strategy = &strategy;
  state->strategy_lifetime = strategy.lifetime();
  const auto& devices = strategy.devices();
  const auto& parameter_device = strategy.parameter_device();
  const bool share = state->kind == VariableKind::kAggregating ||
                     (!state->on_read() && devices[0].kind == DeviceName::Kind::kCpu);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const c10::Device device = (parameter_device ? *parameter_device : devices[i]).torch_device();
    state->components.push_back(share && i > 0 ? state->components[0]
                                               : owned_copy(initial_value, device));
    if (devices[i].torch_device() != device) state->copied_to_replicas = true;
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
  strategy.variables().add(state);
  return state;
}

}  // namespace internal

Variable::Variable(const Tensor& initial_value, const VariableOptions& options) {
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  Strategy& strategy = distribute::get_strategy();
  distribute::check_scopes_unmixed("Variable");
  auto make = [&] {
    check_options(initial_value, options, strategy);
    return internal::make_variable_state(
        internal::agreed_initial_value(initial_value, options, strategy), options, strategy);
  };
  if (replica == nullptr || strategy.is_default()) {
    state_ = make();
    return;
  }
  check_options(initial_value, options, strategy);
  state_ = make_together(*replica, "Variable", options.name, make);
}

Variable Variable::deep_copy() const {
  const VariableState& original = state();
  original.check_usable("deep_copy");
  if (&distribute::get_strategy() != original.strategy) {
    throw FailedPrecondition(cat("deep_copy [", original.name, "]: called outside the scope of ",
                                 original.strategy->name(),
                                 ", the variable's strategy, expected inside; enter its scope()"));
  }
  auto make = [&]() -> StatePtr {
    VariableOptions options{.trainable = original.trainable,
                            .name = original.name,
                            .synchronization = original.synchronization,
                            .aggregation = original.aggregation};
    // Components that have parted part again; the others stay one storage, that of `shared`.
    const auto own = std::find(original.own.begin(), original.own.end(), 0);
    const std::size_t shared =
        own == original.own.end() ? 0 : static_cast<std::size_t>(own - original.own.begin());
    StatePtr copy =
        internal::make_variable_state(original.components[shared], options, *original.strategy);
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < copy->components.size(); ++i) {
      if (original.own[i] == 0) continue;
      copy->split_off(i);
      copy->components[i].copy_(original.components[i]);
    }
    return copy;
  };
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || original.strategy->is_default()) return Variable(make());
  return Variable(make_together(*replica, "deep_copy", original.name, make));
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
  if (replica >= 0) {
    const Tensor& leaf = state.leaves[static_cast<std::size_t>(replica)];
    if (!state.copied_to_replicas || state.in_update_context()) return leaf;
    return leaf.to(state.strategy->devices()[static_cast<std::size_t>(replica)].torch_device());
  }
  if (state.on_read()) {
    at::NoGradGuard no_grad;
    return state.aggregated("value", state.components).clone();
  }
  return state.leaves[0];
}

Tensor Variable::read_value() const {
  at::NoGradGuard no_grad;
  return value().detach().clone();
}

const std::string& Variable::name() const { return state().name; }
std::vector<std::string> Variable::component_names() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < state().num_components(); ++i)
    names.push_back(component_name(state(), i));
  return names;
}
std::string Variable::type_name() const {
  switch (state().kind) {
    case VariableKind::kMirrored:
      return "MirroredVariable";
    case VariableKind::kSyncOnRead:
      return "SyncOnReadVariable";
    case VariableKind::kAggregating:
      return "AggregatingVariable";
    case VariableKind::kPlain:
      break;
  }
  return "Variable";
}
bool Variable::trainable() const { return state().trainable; }
void Variable::set_trainable(bool trainable) {
  VariableState& state = this->state();
  state.trainable = trainable && at::isFloatingType(state.dtype);
  for (Tensor& leaf : state.leaves) leaf.requires_grad_(state.trainable);
}
VariableSynchronization Variable::synchronization() const { return state().synchronization; }
VariableAggregation Variable::aggregation() const { return state().aggregation; }
const std::function<Tensor(const Tensor&)>& Variable::constraint() const {
  return state_->constraint;
}
at::IntArrayRef Variable::sizes() const { return state().shape; }
at::ScalarType Variable::dtype() const { return state().dtype; }
int64_t Variable::numel() const { return c10::multiply_integers(state().shape); }
std::vector<DeviceName> Variable::devices() const {
  const Strategy& owner = strategy();
  return owner.parameter_device() ? std::vector<DeviceName>{*owner.parameter_device()}
                                  : owner.devices();
}
std::vector<Tensor> Variable::components() const {
  const VariableState& state = this->state();
  if (state.kind == VariableKind::kAggregating) return {state.components[0]};
  return state.components;
}
bool Variable::is_shared() const { return state().shared.load(std::memory_order_acquire); }
Strategy& Variable::strategy() const {
  state().check_usable("strategy");
  return *state().strategy;
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  const VariableState& state = variable.state();
  auto line = [&](std::size_t i) {
    const Tensor& value = state.components[i];
    return cat("Variable(name='", component_name(state, i), "', shape=", shape_text(value.sizes()),
               ", dtype=", dtype_name(value.scalar_type()), ", value=", values_to_string(value),
               ")");
  };
  if (state.components.size() == 1) return out << line(0);
  out << variable.type_name() << ":{\n";
  for (std::size_t i = 0; i < state.num_components(); ++i)
    out << "  " << i << ": " << line(i) << (i + 1 < state.num_components() ? ",\n" : "\n");
  return out << "}";
}

}  // namespace tutti
