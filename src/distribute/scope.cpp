// Entering and leaving strategies: guards, set_strategy, and which of them may be inside which.

#include "distribute/context_stack.h"
#include "tutti/base/log.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

Scope::Scope(Strategy& strategy) : strategy_(&strategy) { enter(); }

void Scope::enter() {
  auto& stack = thread_context().stack;
  ReplicaContext* replica = get_replica_context();
  if (replica != nullptr && !replica->strategy().is_default()) {
    throw FailedPrecondition(cat("scope [", strategy_->name(), "]: entered inside replica ",
                                 replica->replica_id_in_sync_group(),
                                 ", expected cross-replica context; enter it outside run"));
  }
  const Strategy& current = get_strategy();
  if (has_strategy() && &current != strategy_) {
    throw FailedPrecondition(cat("scope [", strategy_->name(),
                                 "]: entered inside the scope of another strategy (",
                                 current.name(),
                                 "), expected the same or none; mixing strategies is not possible, "
                                 "leave the other scope first"));
  }
  // Inside the same strategy a scope changes nothing: an update context stays one, and so does a
  // replica of the default strategy.
  ContextEntry entry{strategy_, nullptr};
  if (&current == strategy_ && !stack.empty()) {
    entry = stack.back();
  } else if (strategy_->is_default()) {
    entry.replica = &default_replica_context();
    entry.is_default_mode = true;
  }
  entry.is_set = false;
  entry.scope = this;
  stack.push_back(entry);
  ++times_entered_;
}

void Scope::exit() {
  if (times_entered_ == 0) return;
  auto& stack = thread_context().stack;
  if (stack.empty() || stack.back().scope != this) {
    std::size_t inside = 0;
    while (inside < stack.size() && stack[stack.size() - 1 - inside].scope != this) ++inside;
    throw FailedPrecondition(
        inside == stack.size()
            ? cat("scope [", strategy_->name(),
                  "]: left on a thread where it is not entered, expected the one that entered it")
            : cat("scope [", strategy_->name(), "]: left while ", inside,
                  " scopes entered after it are open, expected the reverse order; leave the inner "
                  "ones first"));
  }
  stack.pop_back();
  --times_entered_;
}

Scope::~Scope() {
  if (times_entered_ == 0) return;
  auto& stack = thread_context().stack;
  bool in_order = true;
  while (times_entered_ > 0 && !stack.empty()) {
    if (stack.back().scope == this) {
      --times_entered_;
    } else {
      in_order = false;
      if (stack.back().scope != nullptr)
        const_cast<Scope*>(stack.back().scope)->times_entered_ -= 1;
    }
    stack.pop_back();
  }
  if (!in_order || times_entered_ > 0) {
    log_line(LogLevel::kError,
             cat("scope [", strategy_->name(),
                 "]: destroyed out of order; scopes opened after it are closed too"));
  }
}

void check_scopes_unmixed(const char* operation) {
  const auto& stack = thread_context().stack;
  if (stack.empty() || stack.back().strategy->is_default()) return;
  for (const ContextEntry& entry : stack) {
    if (!entry.is_default_mode) continue;
    throw FailedPrecondition(
        cat(operation, " [", stack.back().strategy->name(),
            "]: made in a scope that was entered inside the default strategy's "
            "scope, expected one strategy; mixing strategies is not possible, "
            "leave the default strategy's scope first"));
  }
}

void set_strategy(Strategy* strategy) {
  auto& stack = thread_context().stack;
  if (stack.size() > 1 || (stack.size() == 1 && !stack.front().is_set)) {
    throw FailedPrecondition(
        cat("set_strategy [", strategy == nullptr ? "none" : strategy->name(),
            "]: called inside a scope or a replica of ", get_strategy().name(),
            ", expected outside; leave the scope first, or use nested scopes only"));
  }
  stack.clear();
  if (strategy != nullptr && !strategy->is_default()) {
    ContextEntry entry{strategy, nullptr};
    entry.is_set = true;
    stack.push_back(entry);
  }
}

}  // namespace tutti::distribute
