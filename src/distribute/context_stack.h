#pragma once
// What the current thread is doing for which strategy: TensorFlow's stack of modes.

#include <vector>

#include "tutti/distribute/replica_context.h"

namespace tutti::distribute {

struct ContextEntry {
  Strategy* strategy;
  ReplicaContext* replica;  ///< null in cross-replica context
  /// Local replica whose component an update works on; -1 elsewhere.
  int update_replica = -1;
  /// Pushed by set_strategy: no guard pops it.
  bool is_set = false;
};

struct ThreadContext {
  std::vector<ContextEntry> stack;  ///< empty: the default strategy's replica context
  int open_tapes = 0;
};

/// This thread's state: the one thread-local of the library.
ThreadContext& thread_context();

/// Pushes an entry and pops it again, whatever happens in between.
class ContextGuard {
 public:
  ContextGuard(Strategy& strategy, ReplicaContext* replica, int update_replica = -1) {
    thread_context().stack.push_back({&strategy, replica, update_replica});
  }
  ~ContextGuard() { thread_context().stack.pop_back(); }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
};

/// The strategy that is there when there is none: one replica on the calling thread.
Strategy& default_strategy();
/// This thread's replica context of the default strategy.
ReplicaContext& default_replica_context();

}  // namespace tutti::distribute
