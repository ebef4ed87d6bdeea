// Assignment: the matrix of synchronization x aggregation x context.

#include <bit>
#include <cmath>
#include <limits>

#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {

using distribute::Strategy;
using internal::VariableKind;
using internal::VariableState;

namespace internal {

void VariableState::write_one(std::size_t index, FunctionRef<void(Tensor&)> write) {
  // In update context the copy is written for all that share it.
  if (kind == VariableKind::kMirrored && components.size() > 1 && !in_update_context())
    split_off(index);
  write(components[index]);
  note_update();
}

void VariableState::write_all(FunctionRef<void(Tensor&)> write) {
  if (shared.load(std::memory_order_acquire)) {
    write(components[0]);
  } else {
    split_all();  // some may still have one storage: it would be written once for each
    for (Tensor& component : components) write(component);
  }
  note_update();
}

void VariableState::check_aggregation(const char* operation) const {
  if (kind != VariableKind::kAggregating || aggregation != VariableAggregation::kNone) return;
  throw InvalidArgument(
      cat(operation, " [", name,
          "]: aggregation NONE inside a replica while all replicas share one copy, expected SUM, "
          "MEAN or ONLY_FIRST_REPLICA; make the variable with an aggregation"));
}

void check_one_variable(const char* operation, const std::vector<const VariableState*>& states) {
  if (distribute::WorkerGroup* workers = states[0]->strategy->workers()) {
    bool one = true;
    for (const VariableState* state : states) one = one && state == states[0];
    if (one) return workers->agree(operation, cat("of ", described_to_workers(*states[0])));
  }
  for (std::size_t r = 1; r < states.size(); ++r) {
    if (states[r] == states[0]) continue;
    throw InvalidArgument(cat(operation, ": of \"", states[0]->name, "\" on replica 0, of \"",
                              states[r]->name, "\" on replica ", r,
                              ", expected one variable; assign in the same order on all replicas"));
  }
}

}  // namespace internal

namespace {

enum class Op { kAssign, kAdd, kSub };

const char* op_name(Op op) {
  return op == Op::kAssign ? "assign" : op == Op::kAdd ? "assign_add" : "assign_sub";
}

/// What one replica brings to an assignment that all make together.
struct Part {
  const VariableState* state;
  Tensor value;
  bool literal;
};

void apply(Tensor& component, Op op, const Tensor& value) {
  Tensor from = value.to(component.device());
  // A view of the variable itself in another layout would be read while it is written.
  if (from.is_alias_of(component) && !from.is_same(component)) from = from.clone();
  switch (op) {
    case Op::kAssign:
      component.copy_(from);
      break;
    case Op::kAdd:
      component.add_(from);
      break;
    case Op::kSub:
      component.sub_(from);
      break;
  }
}

void check_arithmetic(const VariableState& state, Op op) {
  if (op == Op::kAssign || state.dtype != at::kBool) return;
  throw InvalidArgument(cat(op_name(op), " [", state.name,
                            "]: a bool variable, expected numbers; use assign, or an int32 one"));
}

void check_value(const VariableState& state, Op op, const Tensor& value) {
  check_arithmetic(state, op);
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

/// True when a variable of `dtype` can hold the number, integers without loss.
bool holds(at::ScalarType dtype, const c10::Scalar& number) {
  if (at::isComplexType(dtype)) return true;
  if (number.isComplex()) return false;
  if (at::isFloatingType(dtype)) return true;
  constexpr double kTwoTo63 = 9223372036854775808.0;
  int64_t integer = 0;
  if (number.isFloatingPoint()) {
    const double value = number.toDouble();
    if (!(value >= -kTwoTo63 && value < kTwoTo63) || value != std::trunc(value)) return false;
    integer = static_cast<int64_t>(value);
  } else {
    integer = number.isBoolean() ? static_cast<int64_t>(number.toBool()) : number.toLong();
  }
  auto within = [integer](auto type) {
    using Limits = std::numeric_limits<decltype(type)>;
    return integer >= static_cast<int64_t>(Limits::min()) &&
           integer <= static_cast<int64_t>(Limits::max());
  };
  switch (dtype) {
    case at::kBool:
      return integer == 0 || integer == 1;
    case at::kByte:
      return within(uint8_t());
    case at::kChar:
      return within(int8_t());
    case at::kShort:
      return within(int16_t());
    case at::kInt:
      return within(int32_t());
    default:
      return true;
  }
}

/// The number as a tensor of no dimensions that stands for one of the variable's shape.
Tensor literal_tensor(const VariableState& state, Op op, const c10::Scalar& number) {
  check_arithmetic(state, op);
  if (!holds(state.dtype, number)) {
    throw InvalidArgument(
        cat(op_name(op), " [", state.name, "]: the number ", number.toDouble(),
            " for a variable of ", dtype_name(state.dtype),
            ", expected one that it can hold; round it, or use a floating dtype"));
  }
  return at::scalar_tensor(number, at::TensorOptions(state.dtype));
}

bool is_ambiguous_in_sum(const VariableState& state) {
  return state.replica() >= 0 && !state.in_update_context() && state.is_collective() &&
         state.aggregation == VariableAggregation::kSum;
}

[[noreturn]] void refuse_in_sum(const VariableState& state, Op op, const std::string& what) {
  throw InvalidArgument(cat(op_name(op), " [", state.name, "]: ", what,
                            " inside a replica of a variable with aggregation SUM, expected a "
                            "tensor; it is unclear whether it counts once or once a replica"));
}

/// Whether every worker brings the same number, here `value` when `number_here`.
bool is_one_number(distribute::WorkerGroup& workers, bool number_here, const Tensor& value) {
  std::vector<int64_t> mine{0, 0};
  if (number_here) mine = {1, std::bit_cast<int64_t>(value.to(at::kDouble).item<double>())};
  for (const std::vector<int64_t>& other : workers.exchange(mine))
    number_here = number_here && other == mine;
  return number_here;
}

Tensor aggregated(const VariableState& state, Op op, const std::vector<Part>& parts) {
  std::vector<const VariableState*> states;
  std::vector<Tensor> values;
  bool same_number = true;
  bool any_literal = false;
  for (const Part& part : parts) {
    states.push_back(part.state);
    values.push_back(part.value.to(parts[0].value.device()));
    any_literal = any_literal || part.literal;
    same_number = same_number && part.literal && part.value.equal(parts[0].value);
  }
  internal::check_one_variable(op_name(op), states);
  if (distribute::WorkerGroup* workers = state.strategy->workers())
    same_number = is_one_number(*workers, same_number, values[0]);
  if (same_number) return values[0];
  if (any_literal) {  // a number on one replica, a tensor on another
    for (Tensor& value : values) value = value.expand(state.shape).contiguous();
  }
  Tensor total = state.aggregated(op_name(op), values);
  distribute::WorkerGroup* workers = state.strategy->workers();
  if (workers != nullptr && state.aggregation == VariableAggregation::kOnlyFirstReplica)
    total = workers->of_first(total);
  return total;
}

void update_in_replica(VariableState& state, int replica, Op op, const Tensor& value,
                       bool literal) {
  if (state.in_update_context() || !state.is_collective()) {
    state.write_one(static_cast<std::size_t>(replica),
                    [&](Tensor& component) { apply(component, op, value); });
    return;
  }
  state.check_aggregation(op_name(op));
  distribute::get_replica_context()->merge_call_named(
      op_name(op),
      [&](Strategy&, const PerReplica<Part>& parts) {
        const Tensor total = aggregated(state, op, parts.values());
        state.write_all([&](Tensor& component) { apply(component, op, total); });
      },
      Part{&state, value, literal});
}

void update_across_replicas(VariableState& state, Op op, const Tensor& value) {
  Tensor share = value;
  if (state.on_read() && state.aggregation == VariableAggregation::kSum) {
    if (op != Op::kAssign) {
      throw InvalidArgument(
          cat(op_name(op), " [", state.name,
              "]: an ON_READ variable with aggregation SUM outside replicas, expected assign; "
              "it is unclear how the change is shared among the replicas"));
    }
    const auto replicas = static_cast<int64_t>(state.strategy->num_replicas_in_sync());
    if (state.dtype == at::kBool && replicas > 1) {
      throw InvalidArgument(
          cat("assign [", state.name,
              "]: an ON_READ variable of bool with aggregation SUM outside replicas, expected "
              "numbers; assign it inside replicas, or use ONLY_FIRST_REPLICA"));
    }
    if (replicas > 1) {
      share = at::isFloatingType(state.dtype) ? value / replicas
                                              : at::div(value, replicas, /*rounding_mode=*/"trunc");
    }
  }
  state.write_all([&](Tensor& component) { apply(component, op, share); });
}

void update_here(VariableState& state, Op op, const Tensor& value, bool literal) {
  at::NoGradGuard no_grad;
  const int replica = state.replica();
  if (replica >= 0) {
    update_in_replica(state, replica, op, value, literal);
  } else {
    update_across_replicas(state, op, value);
  }
}

/// True where an assignment is possible but a read is not.
bool cannot_be_read(const VariableState& state) {
  return state.replica() < 0 && state.on_read() && state.aggregation == VariableAggregation::kNone;
}

template <class T>
const T& component_here(const VariableState& state, Op op, const DistributedValues<T>& value) {
  if (value.size() != state.components.size()) {
    throw InvalidArgument(cat(op_name(op), " [", state.name, "]: a value of ", value.size(),
                              " components, expected ", state.components.size(),
                              ", one a replica of the variable's strategy"));
  }
  return value[static_cast<std::size_t>(std::max(0, state.replica()))];
}

}  // namespace

Tensor Variable::update(Operation operation, const Tensor& value) {
  VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  check_value(state, op, value);
  const Tensor detached = value.detach();
  update_here(state, op, detached, /*literal=*/false);
  return cannot_be_read(state) ? detached : this->value();
}

Tensor Variable::update(Operation operation, const c10::Scalar& value) {
  VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  const Tensor tensor = literal_tensor(state, op, value);
  if (value.toDouble() != 0 && is_ambiguous_in_sum(state))
    refuse_in_sum(state, op, cat("the number ", value.toDouble()));
  update_here(state, op, tensor, /*literal=*/true);
  return cannot_be_read(state) ? tensor.expand(state.shape) : this->value();
}

Tensor Variable::update(Operation operation, const PerReplica<Tensor>& value) {
  const VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  if (state.replica() < 0 && state.strategy->num_replicas_in_sync() > 1) {
    throw InvalidArgument(
        cat(op_name(op), " [", state.name, "]: a PerReplica of ", value.size(),
            " components outside replicas, expected one value for all; assign it inside run, where "
            "each replica takes its own, or reduce it first"));
  }
  return update(operation, component_here(state, op, value));
}

Tensor Variable::update(Operation operation, const Mirrored<Tensor>& value) {
  const VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  if (is_ambiguous_in_sum(state)) refuse_in_sum(state, op, "a Mirrored value");
  return update(operation, component_here(state, op, value));
}

Tensor Variable::update(Operation operation, const Variable& value) {
  const VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  if (!value.state().on_read() && is_ambiguous_in_sum(state))
    refuse_in_sum(state, op, cat("the variable \"", value.name(), "\""));
  return update(operation, value.value());
}

}  // namespace tutti
