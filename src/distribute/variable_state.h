#pragma once
// What a Variable handle points to.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/distribute/strategy.h"
#include "tutti/distribute/variable.h"

namespace tutti::internal {

/// TensorFlow's class of variable.
enum class VariableKind {
  kPlain,        ///< one component, for the only replica: every rule below is an assignment
  kMirrored,     ///< ON_WRITE
  kSyncOnRead,   ///< ON_READ
  kAggregating,  ///< one component for several replicas
};

/// `components[r]` is replica r's storage, without gradient; while `shared` they are all one
/// tensor. `leaves[r]` is replica r's alias of it, on which autograd hangs its gradient, so that
/// replicas with one storage still have gradients apart. Aliases share the version counter of their
/// storage: a write between a forward and its backward is noticed. An aggregating variable has an
/// entry for each replica too, shared for ever.
struct VariableState {
  std::string name;
  bool trainable = false;
  VariableKind kind = VariableKind::kPlain;
  VariableSynchronization synchronization = VariableSynchronization::kOnWrite;
  VariableAggregation aggregation = VariableAggregation::kNone;
  std::function<Tensor(const Tensor&)> constraint;
  distribute::Strategy* strategy = nullptr;
  std::weak_ptr<void> strategy_lifetime;
  std::vector<int64_t> shape;  // these two never change: any replica may read them at any time
  at::ScalarType dtype = at::kFloat;
  std::vector<Tensor> components;
  std::vector<Tensor> leaves;
  std::vector<char>
      own;  // 1: component r is replica r's alone; entry r is touched by replica r only
  std::atomic<bool> shared{false};
  bool in_arena = false;
  bool copied_to_replicas = false;  ///< aggregating, and some replica is on another device
  std::atomic<uint64_t> updated_at{
      0};  ///< Strategy::update_count() of the last write by an optimizer or an assignment

  /// Throws FailedPrecondition when the strategy is gone or another one is current.
  void check_usable(const char* operation) const;
  /// The local replica whose component this thread works on: its own, or that of the update
  /// context; -1 elsewhere.
  int replica() const;
  bool in_update_context() const;
  /// More than one replica, in whatever process.
  bool has_others() const { return components.size() > 1 || strategy->workers() != nullptr; }
  /// True when replicas make an assignment together, as the aggregation says.
  bool is_collective() const {
    return has_others() &&
           (kind == VariableKind::kAggregating ||
            (kind == VariableKind::kMirrored && aggregation != VariableAggregation::kNone));
  }
  /// Components that the user sees.
  std::size_t num_components() const {
    return kind == VariableKind::kAggregating ? 1 : components.size();
  }

  /// Gives replica `index` a copy of its own, on its own thread: the others may be reading the old
  /// storage, which is not written again, and their own entries, which are not touched. Not for
  /// aggregating variables.
  void split_off(std::size_t index);
  /// Gives every replica that has none a copy of its own. Only while no replica uses the variable.
  void split_all();
  /// Points everything at `storage`, which holds the same values; handed-out tensors follow.
  void move_to(const Tensor& storage);
  void note_update();

  /// Calls `write(component)` on replica `index`'s component, split off before when the others may
  /// keep their values. In that replica's context, or in update context of its copy.
  void write_one(std::size_t index, FunctionRef<void(Tensor&)> write);
  /// Calls `write(component)` once for each copy. Only while no replica uses the variable.
  void write_all(FunctionRef<void(Tensor&)> write);
  /// `values` of all local replicas, and those of other workers, as the aggregation says; a new
  /// tensor, but for ONLY_FIRST_REPLICA, which is values[0]: of this worker, without the others.
  Tensor aggregated(const char* operation, const std::vector<Tensor>& values) const;
  /// Aggregating variables cannot be assigned in a replica when the aggregation is NONE.
  void check_aggregation(const char* operation) const;
  bool on_read() const { return kind == VariableKind::kSyncOnRead; }
};

/// Makes a variable whose replica r has `parameters[r]` itself as its leaf.
std::shared_ptr<VariableState> make_variable_state(const Tensor& initial_value,
                                                   const VariableOptions& options,
                                                   distribute::Strategy& strategy,
                                                   std::vector<Tensor> leaves = {});

/// What the variable begins with: the chief's value, when all workers make the same variable,
/// InvalidArgument otherwise.
Tensor agreed_initial_value(const Tensor& mine, const VariableOptions& options,
                            const distribute::Strategy& strategy);

/// What workers compare of it: they may have numbered automatic names in other ways.
std::string described_to_workers(const VariableState& state);

/// Throws InvalidArgument unless all replicas brought the same variable to `operation`.
void check_one_variable(const char* operation, const std::vector<const VariableState*>& states);

}  // namespace tutti::internal
