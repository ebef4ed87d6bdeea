#include "rpc/server.h"

#include <grpcpp/resource_quota.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rpc/address.h"
#include "rpc/channel.h"
#include "rpc/credentials.h"
#include "rpc/grpc_log.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::rpc {
namespace {

constexpr std::size_t kMostBytesInFlight = std::size_t{1} << 30;

/// Why nothing can listen at `address`, by trying it: gRPC's own answer is a log line.
int listening_error(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
      0) {
    return EADDRNOTAVAIL;
  }
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int file = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(file, at->ai_addr, at->ai_addrlen) != 0 || ::listen(file, 1) != 0) error = errno;
    ::close(file);
  }
  ::freeaddrinfo(found);
  return error;
}

[[noreturn]] void refuse_address(const Address& address) {
  const int error = listening_error(address);
  const std::string where = to_string(address);
  if (error == EADDRINUSE || error == 0) {
    const std::string owner = owner_of_port(address.port);
    throw AlreadyExists(cat("listen [", where, "]: port ", address.port, " is in use",
                            owner.empty() ? "" : cat(" by ", owner),
                            ", expected a free one; stop that program, or name another port"));
  }
  throw Unavailable(cat("listen [", where, "]: ", std::strerror(error),
                        ", expected an address of this host and a port that this user may open"));
}

}  // namespace

RpcServer::RpcServer(const std::string& address, const Security& security,
                     const std::vector<grpc::Service*>& services) {
  take_over_grpc_log();
  Address where = parse_address(address);
  check_security("listen", address, security);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, server_credentials(security), &port_);
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.SetMaxSendMessageSize(kMostMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepAliveEveryMs / 2);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  grpc::ResourceQuota quota("tutti");
  builder.SetResourceQuota(quota.Resize(kMostBytesInFlight));
  for (grpc::Service* service : services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (!server_ || port_ == 0) refuse_address(where);
  where.port = port_;
  address_ = to_string(where);
}

RpcServer::~RpcServer() { shutdown(std::chrono::milliseconds(0)); }

void RpcServer::shutdown(std::chrono::milliseconds grace) {
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_millis(grace.count(), GPR_TIMESPAN)));
  server_->Wait();
}

}  // namespace tutti::rpc
