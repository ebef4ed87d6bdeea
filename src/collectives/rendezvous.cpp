// A barrier of counted turns. The last to arrive resets the count and moves the turn on, which the
// others watch: first by spinning (a cache line that changes is seen after 0.15 us), then asleep on
// a condition variable (a wake-up costs about 40 us on a virtual machine). Whoever moves the turn
// takes the lock only when somebody sleeps.

#include "collectives/rendezvous.h"

#include <cstring>
#include <thread>

#include "collectives/spin.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

constexpr std::chrono::hours kNoDeadline{24 * 365};

}  // namespace

Rendezvous::Rendezvous(int size) : size_(size), may_spin_(size <= num_cores()) {
  if (size < 1) throw InvalidArgument(cat("Rendezvous: ", size, " ranks, expected at least 1"));
  for (int i = 0; i < size; ++i) slots_.push_back(std::make_unique<Slot>());
}

void Rendezvous::check_open(int rank, const char* operation, int64_t number) {
  if (is_hopeless()) fail(rank, operation, number);
}

void Rendezvous::meet(int rank, const MeetingCall& call, std::chrono::milliseconds timeout) {
  // Before the call is stored: after a failure a rank that is slow to return may read the old one.
  check_open(rank, call.operation, call.number);
  slots_[static_cast<std::size_t>(rank)]->call = call;
  barrier(rank, timeout);
  const MeetingCall& first = call_of(0);
  for (int other = 1; other < size_; ++other) {
    const MeetingCall& theirs = call_of(other);
    const bool same_name =
        theirs.operation == first.operation || std::strcmp(theirs.operation, first.operation) == 0;
    const bool same_type =
        theirs.type == first.type ||
        (theirs.type != nullptr && first.type != nullptr && *theirs.type == *first.type);
    if (same_name && same_type) continue;
    const std::string message =
        same_name ? cat(call.operation, " [rank ", rank, "/", size_, "]: ranks 0 and ", other,
                        " brought arguments or results of different C++ types, expected one; make "
                        "the same call on every replica")
                  : cat(call.operation, " [rank ", rank, "/", size_, "]: rank 0 called ",
                        first.operation, ", rank ", other, " called ", theirs.operation,
                        ", expected one operation; every replica must make the same calls in the "
                        "same order");
    leave(rank, timeout);  // nobody overwrites a call that another rank still compares
    throw InvalidArgument(message);
  }
}

void Rendezvous::leave(int rank, std::chrono::milliseconds timeout) { barrier(rank, timeout); }

void Rendezvous::barrier(int rank, std::chrono::milliseconds timeout) {
  Slot& mine = *slots_[static_cast<std::size_t>(rank)];
  // A rank that was refused must not be counted: its next try would be counted again.
  check_open(rank, mine.call.operation, mine.call.number);
  if (size_ == 1) return;
  const uint32_t turn = turn_.load(std::memory_order_acquire);
  mine.arrivals.store(turn + 1, std::memory_order_release);
  const auto all = static_cast<uint32_t>(size_);
  const bool last = arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == all;
  if (last) {
    arrived_.store(0, std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_seq_cst);
    wake_sleepers();
  }
  if (observer_ == nullptr) {
    if (!last) wait_for_turn(turn, rank, timeout);
    return;
  }
  observer_->before_wait(rank);
  try {
    if (!last) wait_for_turn(turn, rank, timeout);
  } catch (...) {
    observer_->after_wait(rank);
    throw;
  }
  observer_->after_wait(rank);
}

void Rendezvous::wait_for_turn(uint32_t turn, int rank, std::chrono::milliseconds timeout) {
  const auto opened = [&] { return turn_.load(std::memory_order_acquire) != turn; };
  if (may_spin_) {
    const auto end = std::chrono::steady_clock::now() + kSpinTime;
    do {
      for (int i = 0; i < kSpinsBetweenChecks; ++i) {
        if (opened()) return;
        pause_cpu();
      }
    } while (!is_hopeless() && std::chrono::steady_clock::now() < end);
  }
  const auto now = std::chrono::steady_clock::now();
  sleep_until(turn,
              timeout.count() > 0 && timeout < kNoDeadline ? now + timeout : now + kNoDeadline);
  // Asked in this order: a rank that passed this barrier may have finished, or aborted, since.
  const bool hopeless = is_hopeless();
  if (opened()) return;
  if (!hopeless) {
    const std::vector<std::string> missing = ranks_not_at(turn);
    if (missing.empty()) {  // the last one came with the deadline and is about to move the turn
      while (!opened() && !is_hopeless()) std::this_thread::yield();
      if (opened()) return;
    } else {
      break_for_deadline(missing, timeout);
    }
  }
  const MeetingCall& call = call_of(rank);
  fail(rank, call.operation, call.number);
}

void Rendezvous::sleep_until(uint32_t turn, std::chrono::steady_clock::time_point deadline) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  std::unique_lock<Mutex> lock(mutex_);
  woken_.wait_until(lock, deadline,
                    [&] { return turn_.load(std::memory_order_seq_cst) != turn || is_hopeless(); });
  lock.unlock();
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Rendezvous::wake_sleepers() {
  // Sequentially consistent with sleep_until: either we see the sleeper, or it sees what we changed
  // before it sleeps.
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  { MutexLock lock(mutex_); }
  woken_.notify_all();
}

/// Whether a barrier that has not opened yet never will. A rank that has finished will not come.
bool Rendezvous::is_hopeless() const {
  return state_.load(std::memory_order_seq_cst) != kOpen ||
         num_finished_.load(std::memory_order_seq_cst) > 0;
}

std::vector<std::string> Rendezvous::ranks_not_at(uint32_t turn) const {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < slots_.size(); ++rank) {
    const uint32_t arrivals = slots_[rank]->arrivals.load(std::memory_order_acquire);
    if (arrivals != turn + 1) ranks.push_back(cat(rank));
  }
  return ranks;
}

void Rendezvous::break_for_deadline(const std::vector<std::string>& missing,
                                    std::chrono::milliseconds timeout) {
  {
    MutexLock lock(reason_mutex_);
    if (state_.load(std::memory_order_acquire) != kOpen) return;
    reason_ = cat("nothing from rank ", join(missing, ", rank "), " in ", timeout.count(),
                  " ms, expected all ", size_,
                  " ranks; look at what it does, or raise CommunicationOptions::timeout_seconds");
    state_.store(kBroken, std::memory_order_seq_cst);
  }
  wake_sleepers();
}

void Rendezvous::fail(int rank, const char* operation, int64_t number) {
  const uint32_t state = state_.load(std::memory_order_acquire);
  std::string text = cat(operation, " [rank ", rank, "/", size_);
  if (number > 0) text += cat(", call ", number);
  text += "]: ";
  if (state != kOpen) {
    MutexLock lock(reason_mutex_);
    if (state == kBroken) throw DeadlineExceeded(text + reason_);
    throw Aborted(cat(text, "aborted, ", reason_));
  }
  std::vector<std::string> gone;
  for (std::size_t other = 0; other < slots_.size(); ++other) {
    if (slots_[other]->finished.load(std::memory_order_acquire)) gone.push_back(cat(other));
  }
  throw FailedPrecondition(
      cat(text, "rank ", join(gone, ", rank "),
          " has returned without making this call, expected it on every rank; every replica must "
          "make the same number of collective and merge calls"));
}

void Rendezvous::finished(int rank) {
  if (size_ == 1) return;
  slots_[static_cast<std::size_t>(rank)]->finished.store(true, std::memory_order_release);
  num_finished_.fetch_add(1, std::memory_order_seq_cst);
  wake_sleepers();
}

void Rendezvous::abort(std::string_view reason) {
  {
    MutexLock lock(reason_mutex_);
    if (state_.load(std::memory_order_acquire) != kOpen) return;
    reason_ = reason;
    state_.store(kAborted, std::memory_order_seq_cst);
  }
  wake_sleepers();
}

void Rendezvous::reset() {
  if (!is_hopeless()) return;
  const uint32_t turn = turn_.load(std::memory_order_relaxed);
  for (auto& slot : slots_) {
    slot->finished.store(false, std::memory_order_relaxed);
    slot->arrivals.store(turn, std::memory_order_relaxed);
  }
  num_finished_.store(0, std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_relaxed);
  MutexLock lock(reason_mutex_);
  reason_.clear();
  state_.store(kOpen, std::memory_order_release);
}

}  // namespace tutti::collectives
