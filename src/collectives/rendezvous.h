#pragma once
// The meeting point of the ranks of one process: a barrier that checks that everybody makes the
// same call.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "base/mutex.h"

namespace tutti::collectives {

/// What a rank brings to a meeting.
struct MeetingCall {
  /// A string that lives for ever ("all_reduce"); ranks that bring different operations get
  /// InvalidArgument.
  const char* operation = "";
  /// Whatever the operation shares with the other ranks; valid until leave().
  const void* payload = nullptr;
  /// The caller's count of its calls, for messages; 0: it does not count.
  int64_t number = 0;
  /// What the payload's C++ type is, where ranks might bring different ones: InvalidArgument then.
  const std::type_info* type = nullptr;
};

/// Told when a rank is about to sleep or spin at a barrier, and when it may go on: for running
/// ranks one at a time.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void before_wait(int rank) = 0;
  virtual void after_wait(int rank) = 0;
};

/// N ranks (threads of one process) meet here, again and again. Spins briefly, then sleeps; never
/// spins when there are more ranks than cores. Used by the in-process backend, by merge_call and by
/// the fused update.
///
///   meet(rank, call)   → all ranks' calls are visible on return
///   …read the others' payloads, write one's own share…
///   leave(rank)        → on return nobody reads this rank's payload any more
class Rendezvous {
 public:
  explicit Rendezvous(int size);
  int size() const { return size_; }

  /// Blocks until all ranks have called. Throws, on every rank: InvalidArgument when operations
  /// differ (the rendezvous stays usable), Aborted after abort(), FailedPrecondition when a rank
  /// has finished() instead of coming, DeadlineExceeded that names the missing ranks (the
  /// rendezvous is broken from then on).
  void meet(int rank, const MeetingCall& call, std::chrono::milliseconds timeout);
  /// The call that `rank` brought to the meeting under way.
  const MeetingCall& call_of(int rank) const {
    return slots_[static_cast<std::size_t>(rank)]->call;
  }
  /// Blocks until all ranks of the meeting have called it.
  ///
  /// After a failure other than InvalidArgument another rank may still be reading this rank's
  /// payload until it has returned too.
  void leave(int rank, std::chrono::milliseconds timeout);
  /// Throws what meet() would throw at once: after it, nobody reads this rank's last payload.
  void check_open(int rank, const char* operation, int64_t number = 0);

  /// Rank says that it will not come again in this run; the ranks that wait for it get
  /// FailedPrecondition.
  void finished(int rank);
  /// Wakes everybody with Aborted, for ever, until reset().
  void abort(std::string_view reason);
  /// After all ranks have returned: as new. Only when no thread is inside.
  void reset();
  /// Null: none. Only when no thread is inside.
  void set_wait_observer(WaitObserver* observer) { observer_ = observer; }

 private:
  enum State : uint32_t { kOpen = 0, kAborted = 1, kBroken = 2 };
  struct alignas(64) Slot {
    MeetingCall call;
    std::atomic<uint32_t> arrivals{
        0};  // one more than the turn at whose barrier the rank last arrived
    std::atomic<bool> finished{false};
  };
  void barrier(int rank, std::chrono::milliseconds timeout);
  void wait_for_turn(uint32_t turn, int rank, std::chrono::milliseconds timeout);
  void sleep_until(uint32_t turn, std::chrono::steady_clock::time_point deadline);
  bool is_hopeless() const;
  std::vector<std::string> ranks_not_at(uint32_t turn) const;
  void break_for_deadline(const std::vector<std::string>& missing,
                          std::chrono::milliseconds timeout);
  void wake_sleepers();
  [[noreturn]] void fail(int rank, const char* operation, int64_t number);

  const int size_;
  const bool may_spin_;
  WaitObserver* observer_ = nullptr;
  std::vector<std::unique_ptr<Slot>> slots_;
  // The line that waiting ranks watch: written once a barrier. `turn_` counts completed barriers;
  // the ranks of one wait for it to move.
  alignas(64) std::atomic<uint32_t> turn_{0};
  std::atomic<uint32_t> state_{kOpen};
  std::atomic<int> num_finished_{0};
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  Mutex mutex_;  // sleeping only
  ConditionVariable woken_;
  Mutex reason_mutex_;
  std::string reason_ TUTTI_GUARDED_BY(reason_mutex_);
};

}  // namespace tutti::collectives
