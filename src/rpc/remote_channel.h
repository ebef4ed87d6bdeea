#pragma once
// The calling side of remote.proto as bytes; no gRPC in sight, as in remote_server.h.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rpc/message.h"
#include "rpc/security.h"

namespace tutti::rpc {

/// What came back: a message, or why none did (the server's own errors are in the message).
struct RemoteReply {
  std::optional<MessageFailure> failure;
  Pieces message;
};

struct RemoteCallOptions {
  std::chrono::milliseconds timeout{0};
  /// True: a server that is not there yet is waited for, until the deadline. False: Unavailable
  /// at once.
  bool wait_for_ready = true;
};

/// One server. Any thread may call.
class RemoteChannel {
 public:
  /// Connects when first used. Throws as Channel.
  RemoteChannel(const std::string& address, const Security& security);
  /// As close().
  ~RemoteChannel();

  const std::string& address() const;

  /// Sends the pieces from where they lie. `done` is called once, on a thread of gRPC's (on this
  /// one when the channel is closed), and must neither block nor throw. What is returned cancels
  /// the call; it may be called at any time, and does nothing once the reply is there.
  std::function<void()> call(Pieces message, const RemoteCallOptions& options,
                             std::function<void(RemoteReply)> done);
  /// Cancels the calls under way, waits until each has said so, and refuses later ones.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::rpc
