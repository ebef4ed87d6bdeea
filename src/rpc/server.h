#pragma once
// One listening gRPC server.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rpc/security.h"

namespace tutti::rpc {

class RpcServer {
 public:
  /// Listens at `address` (port 0: a free one) for `services`, which must outlive this. Throws as
  /// check_security, AlreadyExists when another program listens there, Unavailable when the address
  /// cannot be listened at. No other server can share the port.
  RpcServer(const std::string& address, const Security& security,
            const std::vector<grpc::Service*>& services);
  /// Ends all calls at once.
  ~RpcServer();

  /// host:port with the port that was chosen.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  /// Takes no new calls, gives those that run `grace`, then ends them. May be called again.
  void shutdown(std::chrono::milliseconds grace);

 private:
  std::string address_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tutti::rpc
