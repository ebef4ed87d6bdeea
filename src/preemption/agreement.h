#pragma once
// The steps of one worker, and the step after which all workers save.
//
// A worker that is told of its end leads. Before its next step it has all workers hold, hears how
// many steps each has begun, and decides on the first step that none of them has passed: its own
// next one, where the workers' steps wait for one another. So nothing depends on how far apart the
// workers are.

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "preemption/channel.h"

namespace tutti::preemption {

struct AgreementOptions {
  double grace_period = 0;  // seconds; at most 0: none
  double timeout = 60;      // seconds, of each wait for other workers
};

/// One thread takes the steps; notice() may come from any.
class Agreement {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Next { kGo, kSave, kSaveAndExit };

  /// `steps` were taken before.
  Agreement(std::unique_ptr<PreemptionChannel> channel, const AgreementOptions& options,
            int64_t steps);
  /// Tells the others that no step follows, unless it is over.
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// This worker's process will be ended. The first notice of any worker counts.
  void notice(const std::string& why);

  /// What is to be done before the next step. DeadlineExceeded when workers that are waited for do
  /// not answer; errors of the channel.
  Next before_step();
  void after_step(std::optional<double> seconds);
  /// After kSave, which took so long: on to the end of the grace period.
  void saved(double seconds);
  /// After kSaveAndExit and the save: waits until all workers have saved. Never throws: the state
  /// is safe by then.
  void finish();

  int64_t steps() const;
  /// True on the worker that was told first.
  bool leads() const;
  PreemptionChannel& channel() { return *channel_; }

 private:
  bool leads_now() TUTTI_REQUIRES(mutex_);
  void wait_while_held() TUTTI_REQUIRES(mutex_);
  void decide();
  bool hear_all(int round, Decision& decision);
  void take(const Decision& decision) TUTTI_REQUIRES(mutex_);
  void watch(std::stop_token stop);
  bool watch_round(int round, const std::stop_token& stop);
  bool pause(const std::stop_token& stop, std::chrono::milliseconds time);
  void stop();
  Clock::time_point deadline() const;

  const std::unique_ptr<PreemptionChannel> channel_;
  const AgreementOptions options_;

  mutable Mutex mutex_;
  ConditionVariable changed_;
  int64_t steps_ TUTTI_GUARDED_BY(mutex_);
  int64_t begun_ TUTTI_GUARDED_BY(mutex_);
  double mean_step_ TUTTI_GUARDED_BY(mutex_) = 0;  // seconds
  int64_t timed_steps_ TUTTI_GUARDED_BY(mutex_) = 0;
  double save_time_ TUTTI_GUARDED_BY(mutex_) = 0;
  int round_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool leads_ TUTTI_GUARDED_BY(mutex_) = false;
  Clock::time_point notice_time_ TUTTI_GUARDED_BY(mutex_);
  bool held_ TUTTI_GUARDED_BY(mutex_) = false;
  std::optional<Decision> decision_ TUTTI_GUARDED_BY(mutex_);
  bool over_ TUTTI_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ TUTTI_GUARDED_BY(mutex_);

  std::jthread watcher_;  // of several workers
};

}  // namespace tutti::preemption
