#pragma once
// A server of remote.proto's calls as bytes. What it needs of gRPC stays in the source, so that
// units that see LibTorch may include it.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "rpc/message.h"
#include "rpc/security.h"

namespace tutti::rpc {

/// A call that has come in and waits for its answer. One that is let go without an answer gets
/// Internal. Members may be called from any thread.
class IncomingCall {
 public:
  virtual ~IncomingCall() = default;
  /// The message, in the memory in which it came; stays as long as its pieces.
  virtual const Pieces& request() const = 0;
  /// The caller has gone, has given up, or the server ends: the answer is for nobody.
  virtual bool is_cancelled() const = 0;
  /// Until the caller's deadline; not negative.
  virtual std::chrono::milliseconds time_left() const = 0;
  /// The caller's address, for messages.
  virtual std::string peer() const = 0;
  /// Answers; the pieces are sent from where they lie. The first answer counts.
  virtual void reply(Pieces message) = 0;
};

/// Is called on gRPC's own threads and must not block.
using OnCall = std::function<void(std::shared_ptr<IncomingCall>)>;

class RemoteServer {
 public:
  /// Listens; throws as RpcServer.
  RemoteServer(const std::string& address, const Security& security, OnCall on_call);
  /// As shutdown().
  ~RemoteServer();

  /// host:port with the port that was chosen.
  const std::string& address() const;
  /// Takes no new calls, cancels those under way and waits until each has its answer.
  void shutdown();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::rpc
