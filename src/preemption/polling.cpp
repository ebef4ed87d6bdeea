#include "preemption/polling.h"

#include "tutti/base/log.h"

namespace tutti::preemption {

Polling::Polling(std::function<bool()> question, std::function<void()> action)
    : question_(std::move(question)),
      action_(std::move(action)),
      thread_([this](std::stop_token stop) { ask(stop); }) {}

void Polling::ask(std::stop_token stop) {
  bool said = false;
  while (!stop.stop_requested()) {
    try {
      if (question_()) return action_();
    } catch (const std::exception& error) {
      if (!said)
        log_warning("PreemptionCheckpointHandler [termination_watcher_fn]: ", error.what(),
                    "; it is asked again every second");
      said = true;
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
  }
}

}  // namespace tutti::preemption
