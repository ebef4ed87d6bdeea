#include "preemption/agreement.h"

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::preemption {
namespace {

using std::chrono::milliseconds;

// The table's owner answers at most a thousand of these a second, however many workers ask.
constexpr milliseconds kLookEvery{100};
constexpr milliseconds kLookOftenEvery{10};
// TensorFlow's: three times what two steps take, for the agreement and the save.
constexpr double kStepsBeforeTheEnd = 6;

Agreement::Clock::duration seconds(double amount) {
  return std::chrono::duration_cast<Agreement::Clock::duration>(
      std::chrono::duration<double>(amount));
}

std::vector<std::string> those_without(const std::vector<std::optional<int64_t>>& numbers,
                                       const PreemptionChannel& channel) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int worker = static_cast<int>(i);
    if (!numbers[i] && worker != channel.worker()) names.push_back(channel.name_of(worker));
  }
  return names;
}

}  // namespace

Agreement::Agreement(std::unique_ptr<PreemptionChannel> channel, const AgreementOptions& options,
                     int64_t steps)
    : channel_(std::move(channel)), options_(options), steps_(steps), begun_(steps) {
  if (channel_->num_workers() > 1)
    watcher_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

Agreement::~Agreement() {
  stop();
  MutexLock lock(mutex_);
  if (over_) return;
  if (leads_ && !decision_) {
    log_warning("PreemptionCheckpointHandler [", channel_->name_of(channel_->worker()),
                "]: told that this process will be ended, but no step was begun since; nothing was "
                "saved for that");
  }
  if (channel_->num_workers() == 1) return;
  try {
    channel_->say_gone(steps_);
  } catch (const std::exception&) {  // the job has ended: the others know
  }
}

void Agreement::stop() {
  if (!watcher_.joinable()) return;
  watcher_.request_stop();
  watcher_.join();
}

int64_t Agreement::steps() const {
  MutexLock lock(mutex_);
  return steps_;
}

bool Agreement::leads() const {
  MutexLock lock(mutex_);
  return leads_;
}

Agreement::Clock::time_point Agreement::deadline() const {
  return Clock::now() + seconds(options_.timeout);
}

// --- the notice --------------------------------------------------------------------------------

void Agreement::notice(const std::string& why) {
  const Clock::time_point now = Clock::now();
  {
    MutexLock lock(mutex_);
    if (leads_ || over_ || decision_) return;
  }
  const std::string me = channel_->name_of(channel_->worker());
  try {
    const bool first = channel_->lead(why);
    log_info("PreemptionCheckpointHandler [", me, "]: ", why,
             first ? ": all workers will save" : ": another worker was told before, and leads");
    if (!first) return;
  } catch (...) {
    MutexLock lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
    return;
  }
  MutexLock lock(mutex_);
  leads_ = true;
  notice_time_ = now;
  changed_.notify_all();
}

// --- the thread of the steps -------------------------------------------------------------------

Agreement::Next Agreement::before_step() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      wait_while_held();
      if (error_) std::rethrow_exception(error_);
      if (decision_ && !over_) {
        if (steps_ == decision_->step) return decision_->last ? Next::kSaveAndExit : Next::kSave;
        if (steps_ > decision_->step) {
          throw Internal(cat("PreemptionCheckpointHandler [", channel_->name_of(channel_->worker()),
                             "]: ", steps_, " steps taken, expected a save after ",
                             decision_->step));
        }
      }
      if (over_ || decision_ || !leads_now()) {
        begun_ = steps_ + 1;
        return Next::kGo;
      }
    }
    decide();
  }
}

void Agreement::wait_while_held() {
  const Clock::time_point end = deadline();
  while (held_ && !error_) {
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout && held_) {
      throw DeadlineExceeded(cat("PreemptionCheckpointHandler [",
                                 channel_->name_of(channel_->worker()),
                                 "]: the worker that leads did not say within ", options_.timeout,
                                 " s after which step all save; read its log"));
    }
  }
}

bool Agreement::leads_now() {
  if (!leads_ || round_ == 0) return leads_;
  const double before = kStepsBeforeTheEnd * mean_step_ + save_time_;
  return Clock::now() >= notice_time_ + seconds(options_.grace_period - before);
}

void Agreement::decide() {
  int round = 0;
  Decision decision;
  {
    MutexLock lock(mutex_);
    round = round_;
    decision = {.step = steps_ + 1, .last = round_ > 0 || options_.grace_period <= 0};
  }
  channel_->hold(round);
  if (!hear_all(round, decision)) decision = {.step = kNever, .last = true};
  channel_->decide(round, decision);
  MutexLock lock(mutex_);
  take(decision);
}

/// Raises decision.step to where the others are. False when one of them takes no step any more.
bool Agreement::hear_all(int round, Decision& decision) {
  const Clock::time_point end = deadline();
  for (;;) {
    const auto begun = channel_->acknowledgements(round);
    const std::vector<std::string> missing = those_without(begun, *channel_);
    if (missing.empty()) {
      for (const auto& steps : begun) decision.step = std::max(decision.step, steps.value_or(0));
      return true;
    }
    const auto gone = channel_->gone();
    if (std::any_of(gone.begin(), gone.end(), [](const auto& steps) { return steps.has_value(); }))
      return false;
    if (Clock::now() >= end) {
      throw DeadlineExceeded(
          cat("PreemptionCheckpointHandler [", channel_->name_of(channel_->worker()),
              "]: ", join(missing, ", "), " did not acknowledge within ", options_.timeout,
              " s that all are to save; does each worker have a handler, and make it as often?"));
    }
    std::this_thread::sleep_for(kLookOftenEvery);
  }
}

void Agreement::take(const Decision& decision) {
  const std::string me = channel_->name_of(channel_->worker());
  held_ = false;
  if (decision.step == kNever) {
    over_ = true;
    log_warning("PreemptionCheckpointHandler [", me,
                "]: a worker has already ended its training; nothing is saved for the notice");
  } else {
    decision_ = decision;
    log_info("PreemptionCheckpointHandler [", me, "]: all workers save after step ", decision.step,
             decision.last ? ", and end" : ", and go on for the grace period");
  }
  changed_.notify_all();
}

void Agreement::after_step(std::optional<double> seconds) {
  MutexLock lock(mutex_);
  ++steps_;
  if (!seconds) return;
  ++timed_steps_;
  mean_step_ += (*seconds - mean_step_) / static_cast<double>(timed_steps_);
}

void Agreement::saved(double seconds) {
  MutexLock lock(mutex_);
  save_time_ = seconds;
  decision_.reset();
  ++round_;
  changed_.notify_all();
}

void Agreement::finish() {
  stop();
  {
    MutexLock lock(mutex_);
    over_ = true;
  }
  if (channel_->num_workers() == 1) return;
  const std::string me = channel_->name_of(channel_->worker());
  const Clock::time_point end = deadline();
  try {
    channel_->say_saved();
    for (;;) {
      const std::vector<std::string> missing = those_without(channel_->saved(), *channel_);
      if (missing.empty()) return;
      if (Clock::now() >= end) {
        log_warning("PreemptionCheckpointHandler [", me, "]: ", join(missing, ", "),
                    " did not say within ", options_.timeout,
                    " s that it has saved; not waited "
                    "for any longer");
        return;
      }
      std::this_thread::sleep_for(kLookOftenEvery);
    }
  } catch (const std::exception& error) {
    log_info("PreemptionCheckpointHandler [", me,
             "]: saved; the others are not heard of any more: ", error.what());
  }
}

// --- the thread that hears of the leader -------------------------------------------------------

void Agreement::watch(std::stop_token stop) {
  try {
    for (int round = 0; watch_round(round, stop); ++round) {
    }
  } catch (...) {
    MutexLock lock(mutex_);
    if (!stop.stop_requested() && !over_) error_ = std::current_exception();
    held_ = false;
    changed_.notify_all();
  }
}

/// False when no other round follows.
bool Agreement::watch_round(int round, const std::stop_token& stop) {
  const milliseconds often = std::max(kLookEvery, milliseconds(channel_->num_workers()));
  while (!channel_->is_held(round)) {
    if (!pause(stop, often)) return false;
  }
  int64_t begun = 0;
  {
    MutexLock lock(mutex_);
    if (leads_) return false;
    held_ = true;
    begun = begun_;
  }
  channel_->acknowledge(round, begun);
  std::optional<Decision> decision;
  while (!(decision = channel_->decided(round))) {
    if (!pause(stop, kLookOftenEvery)) return false;
  }
  MutexLock lock(mutex_);
  take(*decision);
  if (decision->last) return false;
  changed_.wait(mutex_, stop, [&]() TUTTI_REQUIRES(mutex_) { return round_ > round; });
  return !stop.stop_requested();
}

/// False when this worker leads, or the watch is to end.
bool Agreement::pause(const std::stop_token& stop, milliseconds time) {
  MutexLock lock(mutex_);
  changed_.wait_for(mutex_, stop, time, [&]() TUTTI_REQUIRES(mutex_) { return leads_; });
  return !leads_ && !stop.stop_requested();
}

}  // namespace tutti::preemption
