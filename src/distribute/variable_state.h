#pragma once
// What a Variable handle points to.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tutti/distribute/strategy.h"
#include "tutti/distribute/variable.h"

namespace tutti::internal {

/// `components[r]` is replica r's storage, without gradient; while `shared` they are all one
/// tensor. `leaves[r]` is replica r's alias of it, on which autograd hangs its gradient, so that
/// replicas with one storage still have gradients apart. Aliases share the version counter of their
/// storage: a write between a forward and its backward is noticed.
struct VariableState {
  std::string name;
  bool trainable = false;
  VariableSynchronization synchronization = VariableSynchronization::kOnWrite;
  VariableAggregation aggregation = VariableAggregation::kNone;
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
  std::atomic<uint64_t> updated_at{
      0};  ///< Strategy::update_count() of the last write by an optimizer or an assignment

  /// Throws FailedPrecondition when the strategy is gone or another one is current.
  void check_usable(const char* operation) const;
  /// This thread's replica among the local ones, or -1 outside the strategy's replicas.
  int replica() const;
  /// Gives replica `index` a copy of its own, on its own thread: the others may be reading the old
  /// storage, which is not written again, and their own entries, which are not touched.
  void split_off(std::size_t index);
  /// Gives every replica that has none a copy of its own. Only while no replica uses the variable.
  void split_all();
  /// Points everything at `storage`, which holds the same values; handed-out tensors follow.
  void move_to(const Tensor& storage);
  void note_update();
  bool on_read() const { return synchronization == VariableSynchronization::kOnRead; }
};

/// Makes a variable whose replica r has `parameters[r]` itself as its leaf.
std::shared_ptr<VariableState> make_variable_state(const Tensor& initial_value,
                                                   const VariableOptions& options,
                                                   distribute::Strategy& strategy,
                                                   std::vector<Tensor> leaves = {});

}  // namespace tutti::internal
