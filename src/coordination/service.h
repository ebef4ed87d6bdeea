#pragma once
// The coordination service of a cluster: one process, its leader's, has it.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "coordination/agent.h"
#include "coordination/cluster.h"
#include "rpc/security.h"

namespace tutti::coordination {

struct ServiceOptions {
  Cluster cluster;
  std::string address = {};  // to listen at; empty: the leader's in the cluster
  rpc::Security security = {};
  uint64_t generation = 0;  // of this start of the job; 0: by the clock
  Limits limits = {};
  std::set<std::string> recoverable_jobs = {};  // whose tasks may be lost, and join anew
};

class CoordinationService {
 public:
  /// Listens. Throws as rpc::RpcServer: off loopback TLS and a token are required.
  explicit CoordinationService(const ServiceOptions& options);
  /// Tasks that have not left hear that the leader's service stopped.
  ~CoordinationService();

  const std::string& address() const;
  int port() const;
  uint64_t generation() const;
  std::optional<JobFailure> failure() const;

  /// The leader's end: waits until all tasks have left, then stops. False when `timeout` passed
  /// first; those that remain hear of it as in the destructor.
  bool shutdown(Milliseconds timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::coordination
