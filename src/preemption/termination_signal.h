#pragma once
// SIGTERM as a call on an ordinary thread.

#include <functional>
#include <memory>

namespace tutti::preemption {

/// While one lives, SIGTERM does not end the process but has a thread call `action`, each one's.
/// The handler itself posts a semaphore, and calls a handler of the user's that it replaced. With
/// the last one that handler, or the default, is back, unless another handler has come since: that
/// one keeps the one that it replaced. Any thread but that of an action.
class TerminationSignal {
 public:
  explicit TerminationSignal(std::function<void()> action);
  /// The action does not run any more.
  ~TerminationSignal();
  TerminationSignal(const TerminationSignal&) = delete;
  TerminationSignal& operator=(const TerminationSignal&) = delete;

 private:
  std::function<void()> action_;
};

}  // namespace tutti::preemption
