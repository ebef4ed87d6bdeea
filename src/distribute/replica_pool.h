#pragma once
// The standing threads of a strategy's replicas.

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "collectives/rendezvous.h"
#include "distribute/caller_state.h"
#include "distribute/thread_team.h"
#include "tutti/base/function_ref.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/tensor/device.h"

namespace tutti::distribute {

class Strategy;

/// Replica 0 is the thread that calls run; every other has a thread of its own, which spins for a
/// moment after its work and then sleeps. Each runs on its own intra-op team.
class ReplicaPool {
 public:
  ReplicaPool(Strategy& strategy, const std::vector<DeviceName>& devices, int threads_per_replica);
  ~ReplicaPool();

  /// Calls `body(i)` for every replica i, in its context, on its device and in the modes of
  /// LibTorch that this thread is in; returns when all have ended. After an exception the other
  /// replicas' waits fail with Aborted; the first exception is thrown again with the others listed.
  void run(FunctionRef<void(int)> body);

 private:
  struct Failure {
    int order = -1;
    std::exception_ptr error;
  };
  class Baton;  // one replica at a time, for TUTTI_SEQUENTIAL_REPLICAS

  void serve(int replica);
  void run_one(int replica, FunctionRef<void(int)> body);
  void wait_for_others();
  [[noreturn]] void rethrow_first();

  Strategy& strategy_;
  const std::vector<DeviceName> devices_;
  const int threads_per_replica_;
  const bool may_spin_;
  std::shared_ptr<collectives::Rendezvous> rendezvous_;
  std::vector<std::unique_ptr<collectives::Communicator>> group_;
  std::vector<std::unique_ptr<ReplicaContext>> contexts_;
  std::unique_ptr<Baton> baton_;

  const FunctionRef<void(int)>* body_ = nullptr;
  CallerState caller_;
  alignas(64) std::atomic<uint32_t> turn_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int> failures_{0};
  std::vector<Failure> failed_;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::distribute
