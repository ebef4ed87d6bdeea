#pragma once
// A worker in a process of its own, over remote calls.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "ps/worker_link.h"
#include "remote/method_client.h"
#include "remote/method_server.h"

namespace tutti::ps {

/// What a worker's process serves: one call at a time, the others wait. Which start of the process
/// it is, its callers learn and say again: a call that was meant for another one does nothing.
class WorkerHost {
 public:
  WorkerHost(int64_t worker, std::shared_ptr<const FunctionTable> table);
  /// For a remote::MethodServer, which must end before this does.
  std::map<std::string, remote::Method> methods();

 private:
  Nest make(const remote::CallContext& context, const Nest& request);
  Nest run(const remote::CallContext& context, const Nest& request);
  bool is_for_this(const Nest& request) const;

  const int64_t worker_;
  const std::shared_ptr<const FunctionTable> table_;
  const int64_t incarnation_;
  Mutex mutex_;
  std::map<int64_t, Resource> resources_ TUTTI_GUARDED_BY(mutex_);
};

struct RemoteWorkerOptions {
  std::string address;
  tutti::rpc::Security security = {};
  /// Of one function. A worker whose process or connection ends is noticed at once, one that is
  /// frozen by the connection's keep-alive; this is for what nobody notices.
  std::chrono::milliseconds run_timeout{24 * 60 * 60 * 1000};
  /// Of the question who is there.
  std::chrono::milliseconds hello_timeout{500};
};

std::shared_ptr<WorkerLink> make_remote_worker(const RemoteWorkerOptions& options);

}  // namespace tutti::ps
