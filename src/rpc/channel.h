#pragma once
// A gRPC channel to one server, with what every call of ours has: a deadline and the token.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "rpc/limits.h"
#include "rpc/security.h"

namespace tutti::rpc {

class Channel {
 public:
  /// Connects when first used, and again after a break. Throws as check_security and, for files
  /// that cannot be used, as TokenFile. A proxy in the environment is not used.
  Channel(const std::string& address, const Security& security);

  const std::shared_ptr<grpc::Channel>& grpc() const { return channel_; }
  const std::string& address() const { return address_; }

  /// Gives a call its deadline, by a clock that no one sets, and the token.
  void prepare(grpc::ClientContext& context, std::chrono::milliseconds timeout) const;
  /// The token alone: for a stream that lives as long as its task, and is watched otherwise.
  void prepare_stream(grpc::ClientContext& context) const;

 private:
  std::string address_;
  std::unique_ptr<TokenFile> token_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tutti::rpc
