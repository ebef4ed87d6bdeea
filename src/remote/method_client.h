#pragma once
// Calls of another process's methods, taking and giving nests.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "rpc/remote_channel.h"
#include "tutti/tensor/nest.h"

namespace tutti::remote {

/// What a call came to. A failure says whether it is the method's own or one on the way, after
/// which nobody here knows whether the method ran.
struct Outcome {
  std::optional<tutti::rpc::MessageFailure> failure;
  bool on_the_way = false;
  Nest value;
};

/// A call under way, and then its outcome. Any thread may wait; copies of the pointer are one call.
class PendingCall {
 public:
  /// `what` and `address` are said while someone waits: "waits for ADDRESS: WHAT".
  PendingCall(std::string what, std::string address);
  /// Blocks until the outcome is there, which is soon after the call's deadline at the latest;
  /// says every five seconds whom it waits for.
  const Outcome& wait() const;
  bool is_done() const;
  void cancel();

 private:
  friend class MethodClient;
  void end(Outcome outcome);

  const std::string what_;
  const std::string address_;
  mutable Mutex mutex_;
  mutable ConditionVariable ended_;
  std::optional<Outcome> outcome_ TUTTI_GUARDED_BY(mutex_);
  std::function<void()> cancel_ TUTTI_GUARDED_BY(mutex_);
  bool cancelled_ TUTTI_GUARDED_BY(mutex_) = false;
};

/// Any thread may call.
class MethodClient {
 public:
  /// Connects when first used. Throws as Channel.
  MethodClient(const std::string& address, const tutti::rpc::Security& security)
      : channel_(address, security) {}
  /// Cancels the calls under way.
  ~MethodClient() { channel_.close(); }

  const std::string& address() const { return channel_.address(); }

  /// Sends the tensors from where they lie: they are not to be changed until the outcome is there.
  /// Throws InvalidArgument for a nest that cannot be sent, ResourceExhausted for one too large;
  /// `operation` begins the message.
  std::shared_ptr<PendingCall> call(const std::string& operation, const std::string& method,
                                    const Nest& arguments,
                                    const tutti::rpc::RemoteCallOptions& options);

 private:
  tutti::rpc::RemoteChannel channel_;
};

}  // namespace tutti::remote
