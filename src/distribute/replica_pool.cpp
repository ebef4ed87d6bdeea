// One job at a time. `turn_` counts jobs and wakes the threads; `running_` counts the threads that
// are still in the job. Both are watched by spinning for about 50 us, then asleep in the kernel: a
// wake-up costs 40 us on a virtual machine, which a step of a small model would feel.

#include "distribute/replica_pool.h"

#include <c10/core/DeviceGuard.h>

#include "base/environment.h"
#include "collectives/in_process.h"
#include "distribute/context_stack.h"
#include "distribute/replica_group.h"
#include "tensor/cpu_memory.h"
#include "tutti/base/log.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {
namespace {

constexpr int kSpins = 2000;  // about 50 us of pauses

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `value` is no longer `old`.
void wait_until_changed(const std::atomic<uint32_t>& value, uint32_t old, bool may_spin) {
  for (int i = 0; may_spin && i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

/// Passed on at every wait, to the lowest replica that can go on: the order of execution is the
/// same in every run.
class ReplicaPool::Baton : public collectives::WaitObserver {
 public:
  explicit Baton(int replicas) : states_(static_cast<std::size_t>(replicas), State::kReady) {}

  void start(int replica) { take(replica); }
  void finish(int replica) { give(replica, State::kFinished); }
  void before_wait(int replica) override { give(replica, State::kWaiting); }
  void after_wait(int replica) override { take(replica); }
  void reset() {
    MutexLock lock(mutex_);
    for (State& state : states_) state = State::kReady;
  }

 private:
  enum class State { kReady, kRunning, kWaiting, kFinished };

  void take(int replica) {
    std::unique_lock<Mutex> lock(mutex_);
    if (at(replica) == State::kWaiting) at(replica) = State::kReady;
    changed_.wait(lock, [&] { return next() == replica; });
    at(replica) = State::kRunning;
  }
  void give(int replica, State state) {
    {
      MutexLock lock(mutex_);
      at(replica) = state;
    }
    changed_.notify_all();
  }
  int next() {
    for (State state : states_) {
      if (state == State::kRunning) return -1;
    }
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_[i] == State::kReady) return static_cast<int>(i);
    }
    return -1;
  }
  State& at(int replica) { return states_[static_cast<std::size_t>(replica)]; }

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<State> states_;
};

ReplicaPool::ReplicaPool(Strategy& strategy, const std::vector<DeviceName>& devices,
                         int threads_per_replica)
    : strategy_(strategy),
      devices_(devices),
      threads_per_replica_(threads_per_replica),
      may_spin_(static_cast<int>(devices.size()) <= available_cores()),
      rendezvous_(std::make_shared<collectives::Rendezvous>(static_cast<int>(devices.size()))),
      group_(collectives::make_in_process_group(rendezvous_)),
      failed_(devices.size()) {
  keep_freed_memory();
  if (WorkerGroup* workers = strategy.workers())
    group_ = make_replica_group(std::move(group_), *workers);
  const int replicas = static_cast<int>(devices.size());
  if (replicas > 1 && environment_flag("TUTTI_SEQUENTIAL_REPLICAS")) {
    baton_ = std::make_unique<Baton>(replicas);
    rendezvous_->set_wait_observer(baton_.get());
  }
  for (int i = 0; i < replicas; ++i) {
    contexts_.push_back(std::make_unique<ReplicaContext>(strategy, strategy.first_replica_id() + i,
                                                         i, *group_[static_cast<std::size_t>(i)],
                                                         *rendezvous_));
  }
  for (int i = 1; i < replicas; ++i) threads_.emplace_back([this, i] { serve(i); });
}

ReplicaPool::~ReplicaPool() {
  stop_.store(true, std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaPool::serve(int replica) {
  ThreadTeam team(threads_per_replica_);
  for (uint32_t seen = 0;; ++seen) {
    wait_until_changed(turn_, seen, may_spin_);
    if (stop_.load(std::memory_order_relaxed)) return;
    caller_.apply();
    run_one(replica, *body_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

void ReplicaPool::run_one(int replica, FunctionRef<void(int)> body) {
  if (baton_ != nullptr) baton_->start(replica);
  try {
    ContextGuard context(strategy_, contexts_[static_cast<std::size_t>(replica)].get());
    const DeviceName& device = devices_[static_cast<std::size_t>(replica)];
    c10::OptionalDeviceGuard on_device;
    if (device.kind == DeviceName::Kind::kCuda) on_device.reset_device(device.torch_device());
    body(replica);
    rendezvous_->finished(replica);
  } catch (...) {
    Failure& failure = failed_[static_cast<std::size_t>(replica)];
    failure.error = std::current_exception();
    failure.order = failures_.fetch_add(1, std::memory_order_acq_rel);
    if (devices_.size() > 1)
      rendezvous_->abort(
          cat("replica ", contexts_[static_cast<std::size_t>(replica)]->replica_id_in_sync_group(),
              " failed: ", text_of(failure.error)));
  }
  if (baton_ != nullptr) baton_->finish(replica);
}

void ReplicaPool::run(FunctionRef<void(int)> body) {
  ThreadTeam team(threads_per_replica_);
  if (baton_ != nullptr) baton_->reset();
  rendezvous_->reset();
  if (!threads_.empty()) {
    body_ = &body;
    caller_ = CallerState::capture();
    running_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
  }
  run_one(0, body);
  wait_for_others();
  if (failures_.load(std::memory_order_acquire) > 0) rethrow_first();
}

void ReplicaPool::wait_for_others() {
  // No deadline: what the others still do is the user's function, which ends in its own time; their
  // waits have deadlines.
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) {
    for (int i = 0; may_spin_ && i < kSpins && running_.load(std::memory_order_acquire) == left;
         ++i)
      pause_cpu();
    if (running_.load(std::memory_order_acquire) == left)
      running_.wait(left, std::memory_order_acquire);
  }
}

void ReplicaPool::rethrow_first() {
  std::exception_ptr first;
  int first_replica = 0;
  std::string others;
  for (std::size_t i = 0; i < failed_.size(); ++i) {
    if (failed_[i].order == 0) {
      first = failed_[i].error;
      first_replica = static_cast<int>(i);
    }
  }
  for (std::size_t i = 0; i < failed_.size(); ++i) {
    if (failed_[i].error && static_cast<int>(i) != first_replica) {
      bool consequence = false;  // an abort that the first failure caused says nothing new
      try {
        std::rethrow_exception(failed_[i].error);
      } catch (const Aborted&) {
        consequence = true;
      } catch (...) {
      }
      const std::string text = text_of(failed_[i].error);
      if (!consequence && text != text_of(first))
        others += cat("\n  replica ", i, " also failed: ", text);
    }
    failed_[i] = Failure();
  }
  failures_.store(0, std::memory_order_relaxed);
  rendezvous_->reset();
  if (others.empty()) std::rethrow_exception(first);
  try {
    std::rethrow_exception(first);
  } catch (const Error& error) {
    throw_error(error.code(), error.what() + others);
  } catch (...) {
    log_warning("run [", strategy_.name(), "]: replica ", first_replica, " failed first; besides",
                others);
    throw;
  }
}

}  // namespace tutti::distribute
