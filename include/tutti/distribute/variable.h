#pragma once
// Variables: tensors that last, with one component a replica.

#include <c10/core/Scalar.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/values.h"
#include "tutti/tensor/device.h"
#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/tensor.h"
#include "tutti/tensor/trackable.h"

namespace tutti {

namespace distribute {
class Strategy;
}

enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

struct VariableOptions {
  /// Unset: true for floating dtypes, false for ON_READ. Integers and booleans have no gradient:
  /// always false.
  std::optional<bool> trainable = std::nullopt;
  std::string name = "Variable";
  /// AUTO is ON_WRITE where a strategy mirrors variables; NONE is InvalidArgument there.
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  /// MEAN needs a floating dtype where a strategy mirrors variables (InvalidArgument).
  VariableAggregation aggregation = VariableAggregation::kNone;
  /// What an optimizer makes of the value after each update: `constraint(value)`, of the same shape
  /// and dtype, a function of nothing else.
  std::function<Tensor(const Tensor&)> constraint = {};
};

namespace internal {
struct VariableState;
struct VariableRegistry;
}  // namespace internal

/// A handle: copies share the variable. Made under the current strategy of this thread; every
/// replica starts from the same value. Made inside `run` it is one variable for all replicas: each
/// of them must make it, in the same order and under the same name, with replica 0's value.
///
/// Components of a CPU strategy share one storage as long as they are equal by construction; the
/// first assignment inside a replica that may make a NONE variable differ gives each replica its
/// own copy, for good.
///
/// Under CentralStorageStrategy with several replicas there is one copy (AggregatingVariable): what
/// replicas assign is aggregated first, whatever the synchronization, and NONE is InvalidArgument
/// inside replicas.
///
/// Reading and assigning are allowed on any thread that is in a context of the variable's strategy,
/// or in none; in another strategy's context they throw FailedPrecondition. Assignments in a
/// replica with aggregation SUM, MEAN or ONLY_FIRST_REPLICA are collective: every replica must make
/// them, in the same order. Formulas: the matrix of tf.Variable under MirroredStrategy.
class Variable {
 public:
  Variable() = default;
  /// Keeps the strides of `initial_value` when it is dense (kernels stored in another order stay
  /// so).
  explicit Variable(const Tensor& initial_value, const VariableOptions& options = {});

  /// A view of this replica's component (in update context of that component, else outside replicas
  /// of the first one): later assignments show in it, gradients flow to it. An ON_READ variable
  /// outside replicas gives the aggregated value, a copy; with aggregation NONE that is
  /// InvalidArgument. A replica on another device than the only copy gets a copy, with gradient.
  Tensor value() const;
  /// A copy of value(), without gradient.
  Tensor read_value() const;
  operator Tensor() const { return value(); }  // NOLINT: a variable stands where a tensor does

  /// Each returns the value after the assignment, as value() would; what was passed where that
  /// cannot be read. Shape and dtype must be the variable's (InvalidArgument; nothing is changed).
  /// In update context (Strategy::update) only that copy changes, without aggregation.
  ///
  /// ON_READ outside replicas: SUM gives each component value / replicas (integers cut) and has no
  /// assign_add and assign_sub (InvalidArgument); otherwise every component changes alike.
  Tensor assign(const Tensor& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const Tensor& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const Tensor& delta) { return update(Operation::kSub, delta); }
  /// A host number stands for a tensor full of it and is converted to the variable's dtype, which
  /// must hold it (InvalidArgument for 1.5 into an integer). In a replica SUM cannot tell whether
  /// it counts once or once a replica (InvalidArgument unless it is 0); under MEAN numbers that
  /// differ are averaged.
  Tensor assign(const c10::Scalar& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const c10::Scalar& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const c10::Scalar& delta) { return update(Operation::kSub, delta); }
  /// Inside a replica each takes its replica's component; outside replicas components would differ
  /// (InvalidArgument, nothing is changed) unless there is one.
  Tensor assign(const PerReplica<Tensor>& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const PerReplica<Tensor>& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const PerReplica<Tensor>& delta) { return update(Operation::kSub, delta); }
  /// Values that are the same on all replicas; in a replica SUM is ambiguous as for a number
  /// (InvalidArgument). A variable that is ON_READ is taken as its tensor.
  Tensor assign(const Mirrored<Tensor>& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const Mirrored<Tensor>& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const Mirrored<Tensor>& delta) { return update(Operation::kSub, delta); }
  Tensor assign(const Variable& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const Variable& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const Variable& delta) { return update(Operation::kSub, delta); }

  /// Rows of the variable, each changed by the row of `slices` that has its index; duplicates are
  /// applied one after the other. An empty dense_shape stands for the variable's. ON_WRITE only
  /// (Unimplemented for a SyncOnReadVariable). In a replica the slices of all replicas are joined
  /// as the aggregation says (MEAN divides values); min, max and update cannot be joined, so they
  /// need NONE or ONLY_FIRST_REPLICA wherever they are called (Unimplemented otherwise).
  Tensor scatter_add(const IndexedSlices& slices) { return scatter(Scatter::kAdd, slices); }
  Tensor scatter_sub(const IndexedSlices& slices) { return scatter(Scatter::kSub, slices); }
  Tensor scatter_mul(const IndexedSlices& slices) { return scatter(Scatter::kMul, slices); }
  Tensor scatter_div(const IndexedSlices& slices) { return scatter(Scatter::kDiv, slices); }
  Tensor scatter_min(const IndexedSlices& slices) { return scatter(Scatter::kMin, slices); }
  Tensor scatter_max(const IndexedSlices& slices) { return scatter(Scatter::kMax, slices); }
  Tensor scatter_update(const IndexedSlices& slices) { return scatter(Scatter::kUpdate, slices); }

  const std::string& name() const;
  /// `v`, `v/replica_1`, …: one for each component.
  std::vector<std::string> component_names() const;
  /// "MirroredVariable", "SyncOnReadVariable", "AggregatingVariable", or "Variable" where the
  /// strategy has one plain copy.
  std::string type_name() const;
  /// Devices of the components.
  std::vector<DeviceName> devices() const;
  bool trainable() const;
  void set_trainable(bool trainable);
  VariableSynchronization synchronization() const;
  VariableAggregation aggregation() const;
  const std::function<Tensor(const Tensor&)>& constraint() const;
  at::IntArrayRef sizes() const;
  at::ScalarType dtype() const;
  int64_t numel() const;

  /// A new variable with components of its own that are equal to this one's; only in this
  /// variable's own strategy's scope, or in none when it was made in none (FailedPrecondition).
  /// Inside `run` one for all replicas, as for new variables.
  Variable deep_copy() const;

  /// The components, views without gradient, in replica order; one for an AggregatingVariable.
  std::vector<Tensor> components() const;
  /// True while all components are one storage.
  bool is_shared() const;
  /// The strategy under which it was made (the default one when there was none).
  distribute::Strategy& strategy() const;

  bool defined() const { return state_ != nullptr; }
  bool is_same(const Variable& other) const { return state_ == other.state_; }
  internal::VariableState& state() const;
  explicit Variable(std::shared_ptr<internal::VariableState> state) : state_(std::move(state)) {}

 private:
  enum class Operation { kAssign, kAdd, kSub };
  Tensor update(Operation operation, const Tensor& value);
  Tensor update(Operation operation, const c10::Scalar& value);
  Tensor update(Operation operation, const PerReplica<Tensor>& value);
  Tensor update(Operation operation, const Mirrored<Tensor>& value);
  Tensor update(Operation operation, const Variable& value);
  enum class Scatter { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };
  Tensor scatter(Scatter operation, const IndexedSlices& slices);

  std::shared_ptr<internal::VariableState> state_;
};

/// The variable as a part of a checkpoint: one tensor, whatever the strategy and the number of
/// replicas; of an ON_READ variable the aggregated value.
std::shared_ptr<Trackable> trackable(const Variable& variable);

namespace internal {
enum class Arithmetic { kAdd, kSub, kMul, kDiv, kLt, kLe, kGt, kGe, kEq, kNe };
Tensor arithmetic(Arithmetic operation, const Tensor& a, const Tensor& b);
Tensor operand(
    const c10::Scalar& number);  // gives way to the other side's dtype, as in `tensor + 1`
inline const Tensor& operand(const Tensor& tensor) { return tensor; }
inline Tensor operand(const Variable& variable) { return variable.value(); }

template <class A, class B>
concept VariableOperands = (std::same_as<A, Variable> ||
                            std::same_as<B, Variable>)&&requires(const A& a, const B& b) {
  operand(a);
  operand(b);
};
}  // namespace internal

// A variable in arithmetic is the tensor value(): `v + 1`, `2 * v`, `v < w`, `tensor - v`.
// (LibTorch finds its operators for Tensors only; these are exact for every pair, so that none is
// ambiguous.)
#define TUTTI_VARIABLE_OPERATOR(symbol, name)                                                \
  template <class A, class B>                                                                \
  requires internal::VariableOperands<A, B> Tensor operator symbol(const A& a, const B& b) { \
    return internal::arithmetic(internal::Arithmetic::name, internal::operand(a),            \
                                internal::operand(b));                                       \
  }
TUTTI_VARIABLE_OPERATOR(+, kAdd)
TUTTI_VARIABLE_OPERATOR(-, kSub)
TUTTI_VARIABLE_OPERATOR(*, kMul)
TUTTI_VARIABLE_OPERATOR(/, kDiv)
TUTTI_VARIABLE_OPERATOR(<, kLt)
TUTTI_VARIABLE_OPERATOR(<=, kLe)
TUTTI_VARIABLE_OPERATOR(>, kGt)
TUTTI_VARIABLE_OPERATOR(>=, kGe)
TUTTI_VARIABLE_OPERATOR(==, kEq)
TUTTI_VARIABLE_OPERATOR(!=, kNe)
#undef TUTTI_VARIABLE_OPERATOR
inline Tensor operator-(const Variable& variable) { return variable.value().neg(); }

/// type_name() and `:{`, `  0: Variable(name='v', shape=(), dtype=float32, value=1.0),`, …, `}`;
/// under a strategy of one replica the inner text alone.
std::ostream& operator<<(std::ostream& out, const Variable& variable);

namespace internal {

/// A variable is its own container: the one that every replica returns comes back as it is.
template <template <class> class Wrap>
struct Regroup<Variable, Wrap> {
  using Type = Variable;
  static Type of(std::vector<Variable> results) {
    for (const Variable& variable : results) {
      if (!variable.is_same(results[0])) {
        throw InvalidArgument(cat("regroup: the variables \"", results[0].name(), "\" and \"",
                                  variable.name(),
                                  "\" on different replicas, expected the same one; return their "
                                  "values instead"));
      }
    }
    return results[0];
  }
};

}  // namespace internal

}  // namespace tutti
