// A barrier of counted turns. The last to arrive resets the count and moves the turn on, which the others watch: first by spinning
// (a cache line that changes is seen after 0.15 us), then asleep on a condition variable (a wake-up costs about 40 us on a virtual
// machine). Whoever moves the turn takes the lock only when somebody sleeps.

#include "tutti/collectives/rendezvous.h"

#include <sched.h>

#include <cstring>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

constexpr std::chrono::hours kNoDeadline{24 * 365};
constexpr int kSpins = 3000;  // about 70 us of pauses

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

Rendezvous::Rendezvous(int size) : size_(size), may_spin_(size <= cores()) {
  if (size < 1) throw InvalidArgument(cat("Rendezvous: ", size, " ranks, expected at least 1"));
  for (int i = 0; i < size; ++i) slots_.push_back(std::make_unique<Slot>());
}

void Rendezvous::meet(int rank, const MeetingCall& call, std::chrono::milliseconds timeout) {
  Slot& mine = *slots_[static_cast<std::size_t>(rank)];
  mine.call = call;
  barrier(rank, call.operation, timeout);
  for (int other = 0; other < size_; ++other) {
    const char* theirs = call_of(other).operation;
    if (theirs == call_of(0).operation || std::strcmp(theirs, call_of(0).operation) == 0) continue;
    const std::string message = cat("collective: rank 0 called ", call_of(0).operation, ", rank ", other, " called ", theirs,
                                    ", expected one operation; every replica must make the same calls in the same order");
    leave(rank, timeout);  // nobody overwrites a call that another rank still compares
    throw InvalidArgument(message);
  }
}

void Rendezvous::leave(int rank, std::chrono::milliseconds timeout) { barrier(rank, call_of(rank).operation, timeout); }

void Rendezvous::barrier(int rank, const char* operation, std::chrono::milliseconds timeout) {
  if (state_.load(std::memory_order_acquire) != kOpen) fail(rank, operation);
  if (size_ == 1) return;
  Slot& mine = *slots_[static_cast<std::size_t>(rank)];
  const uint32_t turn = turn_.load(std::memory_order_acquire);
  mine.arrivals.store(turn + 1, std::memory_order_relaxed);
  const bool last = arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_);
  if (last) {
    arrived_.store(0, std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_seq_cst);
    wake_sleepers();
    if (observer_ == nullptr) return;
  }
  if (observer_ != nullptr) observer_->before_wait(rank);
  try {
    if (!last) wait_for_turn(turn, rank, operation, timeout);
  } catch (...) {
    if (observer_ != nullptr) observer_->after_wait(rank);
    throw;
  }
  if (observer_ != nullptr) observer_->after_wait(rank);
}

void Rendezvous::wait_for_turn(uint32_t turn, int rank, const char* operation, std::chrono::milliseconds timeout) {
  auto opened = [&] { return turn_.load(std::memory_order_acquire) != turn; };
  auto hopeless = [&] { return state_.load(std::memory_order_acquire) != kOpen || somebody_is_gone(); };
  for (int i = 0; may_spin_ && i < kSpins; ++i) {
    if (opened()) return;
    if (hopeless()) break;
    pause_cpu();
  }
  if (!opened() && !hopeless()) {
    const auto now = std::chrono::steady_clock::now();
    sleep_until(turn, timeout.count() > 0 ? now + timeout : now + kNoDeadline);
  }
  if (opened()) return;
  if (!hopeless()) {
    std::vector<std::string> missing;
    for (int other = 0; other < size_; ++other) {
      if (slots_[static_cast<std::size_t>(other)]->arrivals.load(std::memory_order_relaxed) != turn + 1) missing.push_back(cat(other));
    }
    uint32_t open = kOpen;
    if (state_.compare_exchange_strong(open, kBroken)) {
      MutexLock lock(reason_mutex_);
      reason_ = cat("nothing from rank ", missing.empty() ? "?" : join(missing, ", rank "), " in ", timeout.count(),
                    " ms, expected all ", size_, " ranks; look at what it does, or raise CommunicationOptions::timeout_seconds");
    }
    wake_sleepers();
  }
  fail(rank, operation);
}

void Rendezvous::sleep_until(uint32_t turn, std::chrono::steady_clock::time_point deadline) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  std::unique_lock<Mutex> lock(mutex_);
  woken_.wait_until(lock, deadline, [&] {
    return turn_.load(std::memory_order_seq_cst) != turn || state_.load(std::memory_order_acquire) != kOpen || somebody_is_gone();
  });
  lock.unlock();
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Rendezvous::wake_sleepers() {
  // Sequentially consistent with sleep_until: either we see the sleeper, or it sees what we changed before it sleeps.
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  { MutexLock lock(mutex_); }
  woken_.notify_all();
}

/// A rank that has ended will not come; a barrier that somebody waits at can then never open.
bool Rendezvous::somebody_is_gone() const { return num_finished_.load(std::memory_order_acquire) > 0; }

void Rendezvous::fail(int rank, const char* operation) {
  const uint32_t state = state_.load(std::memory_order_acquire);
  std::string reason;
  {
    MutexLock lock(reason_mutex_);
    reason = reason_;
  }
  if (state == kBroken) throw DeadlineExceeded(cat(operation, " [rank ", rank, "/", size_, "]: ", reason));
  if (state == kAborted) throw Aborted(cat(operation, " [rank ", rank, "/", size_, "]: aborted, ", reason));
  std::vector<std::string> gone;
  for (int other = 0; other < size_; ++other) {
    if (slots_[static_cast<std::size_t>(other)]->finished.load(std::memory_order_acquire)) gone.push_back(cat(other));
  }
  throw FailedPrecondition(cat(operation, " [rank ", rank, "/", size_, "]: rank ", join(gone, ", rank "),
                               " has returned without making this call, expected it on every rank; every replica must make the same "
                               "number of collective and merge calls"));
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
  if (num_finished_.load(std::memory_order_relaxed) != 0) {
    for (auto& slot : slots_) slot->finished.store(false, std::memory_order_relaxed);
    num_finished_.store(0, std::memory_order_relaxed);
  }
  if (state_.load(std::memory_order_relaxed) != kOpen) {
    MutexLock lock(reason_mutex_);
    reason_.clear();
    state_.store(kOpen, std::memory_order_release);
  }
  arrived_.store(0, std::memory_order_relaxed);
}

}  // namespace tutti::collectives
