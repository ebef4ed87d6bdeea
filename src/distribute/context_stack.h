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
  /// The guard that pushed this entry; null for what run, merge_call and update push.
  const Scope* scope = nullptr;
  /// Nothing but the default strategy's scope is open: this counts as being in no context.
  bool is_default_mode = false;
};

struct ThreadContext {
  std::vector<ContextEntry> stack;  ///< empty: the default strategy's replica context
  int open_tapes = 0;
  bool in_layer_call = false;  ///< of keras: a layer or model is at work
};

/// This thread's state: the one thread-local of the library.
ThreadContext& thread_context();

/// Pushes an entry and pops it again, whatever happens in between.
class ContextGuard {
 public:
  ContextGuard(Strategy& strategy, ReplicaContext* replica, int update_replica = -1) {
    thread_context().stack.push_back(
        {.strategy = &strategy, .replica = replica, .update_replica = update_replica});
  }
  ~ContextGuard() { thread_context().stack.pop_back(); }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
};

/// Throws FailedPrecondition when the current strategy's scope was entered inside the default
/// strategy's: what is made there would belong to both.
void check_scopes_unmixed(const char* operation);

/// The strategy that is there when there is none: one replica on the calling thread.
Strategy& default_strategy();
/// This thread's replica context of the default strategy.
ReplicaContext& default_replica_context();

}  // namespace tutti::distribute
