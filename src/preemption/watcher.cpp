#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "coordination/agent.h"
#include "distribute/worker_group.h"
#include "preemption/channel.h"
#include "preemption/termination_signal.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/preemption/preemption.h"

namespace tutti::distribute {
namespace {

using coordination::CoordinationAgent;
using coordination::Milliseconds;
using coordination::TaskState;
using Clock = std::chrono::steady_clock;

constexpr Milliseconds kLookEvery{100};

std::shared_ptr<CoordinationAgent> agent_of(Strategy& strategy) {
  WorkerGroup* const workers = strategy.workers();
  return workers == nullptr ? nullptr : workers->agent();
}

}  // namespace

class PreemptionWatcher::Impl {
 public:
  /// Null: there is one worker.
  explicit Impl(std::shared_ptr<CoordinationAgent> agent);
  std::optional<std::string> message() const;
  void block(double timeout_seconds);

 private:
  void told();
  void watch(std::stop_token stop);

  const std::shared_ptr<CoordinationAgent> agent_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<std::string> message_ TUTTI_GUARDED_BY(mutex_);
  preemption::TerminationSignal signal_;
  std::jthread thread_;
};

PreemptionWatcher::Impl::Impl(std::shared_ptr<CoordinationAgent> agent)
    : agent_(std::move(agent)), signal_([this] { told(); }) {
  if (agent_ != nullptr) thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

void PreemptionWatcher::Impl::told() {
  if (agent_ == nullptr) {
    MutexLock lock(mutex_);
    message_ = "SIGTERM";
    return;
  }
  try {
    agent_->set(preemption::kNoticeKey, cat(agent_->task(), ": SIGTERM"), /*overwrite=*/false);
  } catch (const Error&) {  // there is an earlier notice, or the job has ended
  }
}

std::optional<std::string> PreemptionWatcher::Impl::message() const {
  MutexLock lock(mutex_);
  return message_;
}

void PreemptionWatcher::Impl::watch(std::stop_token stop) {
  try {
    while (!stop.stop_requested()) {
      std::optional<std::string> found = agent_->try_get(preemption::kNoticeKey);
      MutexLock lock(mutex_);
      if (found) {
        message_ = std::move(found);
        return;
      }
      changed_.wait_for(mutex_, stop, kLookEvery, [] { return false; });
    }
  } catch (const std::exception& error) {
    log_info("PreemptionWatcher [", agent_->task(), "]: ", error.what());
  }
}

void PreemptionWatcher::Impl::block(double timeout_seconds) {
  if (agent_ == nullptr) return;
  const auto end = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (!agent_->failure()) {
    try {
      for (const auto& task : agent_->task_states()) {
        if (task.task == agent_->task()) continue;
        if (task.state == TaskState::kLeft || task.state == TaskState::kLost) return;
      }
    } catch (const Error&) {
      if (agent_->failure()) return;
      throw;
    }
    if (Clock::now() >= end) {
      throw DeadlineExceeded(cat("block_until_worker_exit [", agent_->task(),
                                 "]: all workers are still there after ", timeout_seconds,
                                 " s, expected one to end"));
    }
    agent_->wait_for_failure(kLookEvery);
  }
}

PreemptionWatcher::PreemptionWatcher() : PreemptionWatcher(get_strategy()) {}
PreemptionWatcher::PreemptionWatcher(Strategy& strategy) : PreemptionWatcher(agent_of(strategy)) {}
PreemptionWatcher::PreemptionWatcher(std::shared_ptr<CoordinationAgent> agent)
    : impl_(std::make_unique<Impl>(std::move(agent))) {}
PreemptionWatcher::~PreemptionWatcher() = default;

std::optional<std::string> PreemptionWatcher::preemption_message() const {
  return impl_->message();
}
void PreemptionWatcher::block_until_worker_exit(double timeout_seconds) {
  impl_->block(timeout_seconds);
}

}  // namespace tutti::distribute
