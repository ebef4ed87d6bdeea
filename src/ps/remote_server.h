#pragma once
// A parameter server of another process, over remote calls.

#include <chrono>
#include <memory>
#include <string>

#include "ps/asking_server.h"
#include "rpc/security.h"

namespace tutti::ps {

struct RemoteServerOptions {
  std::string address;
  tutti::rpc::Security security = {};
  /// For a call with all its attempts.
  std::chrono::milliseconds timeout{60'000};
  /// For one attempt, after which the connection counts as lost.
  std::chrono::milliseconds attempt_timeout{10'000};
};

/// Asks again, under the same tag, when a call was lost on the way: to a server that comes back
/// within the timeout a change is applied once. DeadlineExceeded, with the server's address, after
/// it; the server's own errors come back at once, as they are.
std::unique_ptr<ParameterServer> make_remote_server(const RemoteServerOptions& options);

}  // namespace tutti::ps
