#pragma once
// How one task reaches the coordinator.

#include <functional>
#include <memory>

#include "coordination/coordinator.h"

namespace tutti::coordination {

class Link {
 public:
  /// `reached` is false when the reply is not the coordinator's: its failure says why.
  using Done = std::function<void(bool reached, v1::Reply&& reply)>;

  virtual ~Link() = default;

  /// Asks to be let in. The listener hears the answer and all that follows, from other threads; it
  /// outlives close(). After its on_end() with a failure, join may be called again.
  virtual void join(const v1::JoinRequest& request, Listener& listener) = 0;
  /// Answers by `done`, once, from any thread, within `timeout` but for scheduling.
  virtual void call(const v1::Request& request, Milliseconds timeout, Done done) = 0;
  /// Breaks the connection. Nothing is called any more when it returns.
  virtual void close() = 0;
  /// Of the coordinator, for messages.
  virtual std::string address() const = 0;
};

}  // namespace tutti::coordination
