#pragma once
// Variables: tensors that last, with one component a replica.

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/values.h"
#include "tutti/tensor/device.h"
#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

namespace distribute {
class Strategy;
}

enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

struct VariableOptions {
  /// Unset: true for floating dtypes, false for ON_READ and for integers.
  std::optional<bool> trainable = std::nullopt;
  std::string name = "Variable";
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
};

namespace internal {
struct VariableState;
}

/// A handle: copies share the variable. Made under the current strategy of this thread; every
/// replica starts from the same value.
///
/// Components of a CPU strategy share one storage as long as they are equal by construction; the
/// first assignment inside a replica that may make a NONE variable differ gives each replica its
/// own copy, for good.
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

  /// A view of this replica's component (of the first one outside replicas): later assignments show
  /// in it, gradients flow to it. An ON_READ variable outside replicas gives the aggregated value,
  /// a copy; with aggregation NONE that is InvalidArgument.
  Tensor value() const;
  /// A copy of value(), without gradient.
  Tensor read_value() const;
  operator Tensor() const { return value(); }  // NOLINT: a variable stands where a tensor does

  /// Each returns the value after the assignment, as value() would. Shape and dtype must be the
  /// variable's (InvalidArgument). In update context (Strategy::update) only that copy changes.
  Tensor assign(const Tensor& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const Tensor& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const Tensor& delta) { return update(Operation::kSub, delta); }
  /// A host number is the same on all replicas: it is used as it is under MEAN; under SUM in a
  /// replica it is ambiguous (InvalidArgument) unless it is 0.
  Tensor assign(double value) { return update(Operation::kAssign, value); }
  Tensor assign_add(double delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(double delta) { return update(Operation::kSub, delta); }

  /// Inside a replica each takes its replica's component; outside replicas components would differ
  /// (InvalidArgument, nothing is changed).
  Tensor assign(const PerReplica<Tensor>& value) { return update(Operation::kAssign, value); }
  Tensor assign_add(const PerReplica<Tensor>& delta) { return update(Operation::kAdd, delta); }
  Tensor assign_sub(const PerReplica<Tensor>& delta) { return update(Operation::kSub, delta); }

  /// Rows of the variable, each changed by the row of `slices` that has its index; duplicates are
  /// applied one after the other. ON_WRITE only (Unimplemented for ON_READ). In a replica the
  /// slices of all replicas are joined as the aggregation says (MEAN divides values); min, max and
  /// update cannot be joined, so they need NONE or ONLY_FIRST_REPLICA (Unimplemented otherwise).
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
  at::IntArrayRef sizes() const;
  at::ScalarType dtype() const;
  int64_t numel() const;

  /// A new variable of the current strategy with equal components; only in this variable's own
  /// strategy's scope, or in none when it was made in none (FailedPrecondition).
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
  Tensor update(Operation operation, double value);
  Tensor update(Operation operation, const PerReplica<Tensor>& value);
  enum class Scatter { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };
  Tensor scatter(Scatter operation, const IndexedSlices& slices);

  std::shared_ptr<internal::VariableState> state_;
};

// A variable in arithmetic is the tensor value(): `v + 1`, `2 * v`, `v < w`, `-v`. (LibTorch finds
// its operators for Tensors only.)
Tensor operator+(const Variable& a, const Tensor& b);
Tensor operator-(const Variable& a, const Tensor& b);
Tensor operator*(const Variable& a, const Tensor& b);
Tensor operator/(const Variable& a, const Tensor& b);

/// `MirroredVariable:{`, `  0: Variable(name='v', shape=(), dtype=float32, value=1.0),`, …, `}`;
/// one replica: the inner text alone.
std::ostream& operator<<(std::ostream& out, const Variable& variable);

}  // namespace tutti
