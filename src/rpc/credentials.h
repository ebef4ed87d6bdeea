#pragma once
// gRPC's credentials from our files.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "rpc/security.h"

namespace tutti::rpc {

/// The metadata that carries the token.
constexpr char kTokenKey[] = "tutti-token";
constexpr int kKeepAliveEveryMs = 10'000;
constexpr int kKeepAliveTimeoutMs = 20'000;

/// Mutual TLS, or, without its files, loopback only.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Security& security);

/// The same, with one check before every method of every service: that of the token, where there is
/// a file of it.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const Security& security);

}  // namespace tutti::rpc
