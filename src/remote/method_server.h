#pragma once
// Methods by name, taking and giving nests, served to other processes.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remote/call_pool.h"
#include "rpc/remote_server.h"
#include "tutti/remote/rpc.h"
#include "tutti/tensor/nest.h"

namespace tutti::remote {

using distribute::rpc::CallContext;
using Method = std::function<Nest(const CallContext& context, const Nest& arguments)>;

struct MethodServerOptions {
  std::string address;
  tutti::rpc::Security security = {};
  std::size_t threads = 0;
  std::size_t most_waiting = 4096;  // calls above it are refused
};

/// Serves from its construction to its destruction. Methods run on the pool's threads, several
/// at once, the same one too.
class MethodServer {
 public:
  /// Throws as RpcServer.
  MethodServer(std::map<std::string, Method> methods, const MethodServerOptions& options);
  /// As stop().
  ~MethodServer();

  const std::string& address() const { return server_->address(); }
  /// Calls that wait are refused, those that run are cancelled and waited for.
  void stop();

 private:
  void on_call(std::shared_ptr<tutti::rpc::IncomingCall> call);
  Nest run(const CallContext& context, const tutti::rpc::Message& request) const;

  const std::map<std::string, Method> methods_;
  CallPool pool_;
  std::unique_ptr<tutti::rpc::RemoteServer> server_;
};

/// What an error says to the other side: code and text of an Error, Internal and the first line
/// of anything else.
tutti::rpc::MessageFailure failure_of(const std::exception& error);

}  // namespace tutti::remote
