// What time brings: frozen and stuck tasks, deadlines, ends of slices.
#include <algorithm>

#include "coordination/coordinator.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

int64_t count_ms(TimePoint::duration duration) {
  return std::chrono::duration_cast<Milliseconds>(duration).count();
}

}  // namespace

void Coordinator::tick() {
  MutexLock lock(mutex_);
  look(options_.now());
}

void Coordinator::watch(std::stop_token stop) {
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    look(options_.now());
    if (stop.stop_requested()) return;
    changed_.wait_until(mutex_, next_due());
  }
}

void Coordinator::look(TimePoint now) {
  forgive_own_freeze(now);
  if (stopped_) return;
  if (!root_) {
    find_frozen(now);
    find_stuck(now);
    for (const Suspicion& suspicion : suspicions_) {
      if (suspicion.due > now) continue;
      end_job(v1::Failure(suspicion.failure));
      break;  // that answered them all
    }
  }
  std::vector<Barriers::Key> over;
  for (const auto& [key, round] : barriers_.open_rounds()) {
    if (round.deadline <= now) over.push_back(key);
  }
  for (const auto& key : over) settle(key);
  end_slices(now);
}

/// A leader that was itself stopped for a while has heard nobody, and blames nobody for it.
void Coordinator::forgive_own_freeze(TimePoint now) {
  const auto gap = now - last_look_;
  last_look_ = now;
  if (!own_ticker_ || gap <= options_.limits.ping_limit / 2) return;
  log_warning("coordination: this process did not run for ", count_ms(gap), " ms");
  for (auto& [task, member] : members_) {
    member.last_heard = std::min(now, member.last_heard + gap);
    member.last_moved = std::min(now, member.last_moved + gap);
  }
}

void Coordinator::find_frozen(TimePoint now) {
  for (const auto& [task, member] : members_) {
    if (member.state != TaskState::kJoined) continue;
    const auto silent = now - member.last_heard;
    if (silent < options_.limits.ping_limit) continue;
    lose(task, ErrorCode::kDeadlineExceeded,
         cat("frozen: no heartbeat for ", count_ms(silent), " ms, limit ",
             options_.limits.ping_limit.count()));
  }
}

/// A task that works and does not move is stuck, as soon as another one has waited as long for
/// others: while all work, each may take its time. One that waits is the victim of those that do
/// not come, unless all that report progress wait: then those furthest behind have missed a call.
/// When all are in the same one it is under way, and has a time limit of its own.
void Coordinator::find_stuck(TimePoint now) {
  std::string furthest_behind;
  std::string stuck;
  bool all_wait = true;
  bool some_wait = false;
  bool in_one_call = true;
  std::vector<std::string> texts;
  for (const auto& [task, member] : members_) {
    if (member.state != TaskState::kJoined || !member.progress.watched()) continue;
    const bool over = now - member.last_moved >= options_.limits.progress_limit;
    const bool waits = over && member.progress.waiting();
    all_wait &= waits;
    some_wait |= waits;
    if (over && !waits && stuck.empty()) stuck = task;
    texts.push_back(described(task));
    if (furthest_behind.empty()) {
      furthest_behind = task;
      continue;
    }
    const v1::Progress& behind = members_.at(furthest_behind).progress;
    in_one_call &=
        member.progress.step() == behind.step() && member.progress.phase() == behind.phase();
    if (member.progress.step() < behind.step()) furthest_behind = task;
  }
  if (!stuck.empty() && some_wait) {
    const auto still = now - members_.at(stuck).last_moved;
    lose(stuck, ErrorCode::kDeadlineExceeded,
         cat("stuck: heartbeats, but no progress for ", count_ms(still), " ms, limit ",
             options_.limits.progress_limit.count()));
    return;
  }
  if (!all_wait || in_one_call || furthest_behind.empty()) return;
  lose(furthest_behind, ErrorCode::kDeadlineExceeded,
       cat("stuck: every task waits for another: ", tutti::join(texts, ", "),
           "; they do not make the same calls"));
}

void Coordinator::end_slices(TimePoint now) {
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    if (at->slice_end > now) {
      ++at;
      continue;
    }
    v1::Reply reply;
    reply.set_pending(true);
    const auto open = barriers_.open_rounds().find(at->what);
    if (open != barriers_.open_rounds().end()) {
      for (std::string& text : missing(open->second)) reply.add_missing(std::move(text));
    }
    at->done(std::move(reply));
    at = waiters_.erase(at);
  }
}

TimePoint Coordinator::next_due() {
  // At least four looks in a ping limit: forgive_own_freeze() tells a freeze by their absence.
  const TimePoint now = options_.now();
  TimePoint due = now + options_.limits.ping_limit / 4;
  for (const auto& [task, member] : members_) {
    if (member.state != TaskState::kJoined || root_) continue;
    due = std::min(due, member.last_heard + options_.limits.ping_limit);
    // One that is over its limit already depends on the others.
    const TimePoint limit = member.last_moved + options_.limits.progress_limit;
    if (member.progress.watched() && limit > now) due = std::min(due, limit);
  }
  for (const Suspicion& suspicion : suspicions_) due = std::min(due, suspicion.due);
  for (const auto& [key, round] : barriers_.open_rounds()) due = std::min(due, round.deadline);
  for (const Waiter& waiter : waiters_) due = std::min(due, waiter.slice_end);
  return due;
}

}  // namespace tutti::coordination
