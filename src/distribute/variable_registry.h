#pragma once
// Which variables a strategy has.

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "tutti/tensor/tensor.h"

namespace tutti::internal {

struct VariableState;

/// Weak: a variable dies with its last handle. One of each strategy, which dies with it.
struct VariableRegistry {
  void add(const std::shared_ptr<VariableState>& state);
  /// The living variable of which `tensor` is a component or leaf, or null. Inside a replica only
  /// that replica's are looked at: the others may be changing theirs.
  std::shared_ptr<VariableState> find(const Tensor& tensor);

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<VariableState>> states_ TUTTI_GUARDED_BY(mutex_);
  std::size_t prune_at_ TUTTI_GUARDED_BY(mutex_) = 64;  // dead ones go when there are so many
};

}  // namespace tutti::internal
