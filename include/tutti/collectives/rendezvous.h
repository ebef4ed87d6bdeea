#pragma once
// The meeting point of the ranks of one process: a barrier that checks that everybody makes the same call.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/mutex.h"

namespace tutti::collectives {

/// What a rank brings to a meeting.
struct MeetingCall {
  /// A string that lives for ever ("all_reduce"); ranks that bring different operations get InvalidArgument.
  const char* operation = "";
  /// Whatever the operation shares with the other ranks; valid until leave().
  const void* payload = nullptr;
};

/// N ranks (threads of one process) meet here, again and again. Spins briefly, then sleeps; never spins when there are more ranks
/// than cores. Used by the in-process backend, by merge_call and by the fused update.
///
///   meet(rank, call)   → all ranks' calls are visible on return
///   …read the others' payloads, write one's own share…
///   leave(rank)        → on return nobody reads this rank's payload any more
class Rendezvous {
 public:
  explicit Rendezvous(int size);
  int size() const;

  /// Blocks until all ranks have called. Throws, on every rank: InvalidArgument when operations differ (the rendezvous stays
  /// usable), Aborted after abort(), FailedPrecondition when a rank has finished() instead of coming, DeadlineExceeded that names
  /// the missing ranks (the rendezvous is broken from then on).
  void meet(int rank, const MeetingCall& call, std::chrono::milliseconds timeout);
  /// The call that `rank` brought to the meeting under way.
  const MeetingCall& call_of(int rank) const;
  /// Blocks until all ranks of the meeting have called it.
  void leave(int rank, std::chrono::milliseconds timeout);

  /// Rank says that it will not come again in this run; the ranks that wait for it get FailedPrecondition.
  void finished(int rank);
  /// Wakes everybody with Aborted, for ever, until reset().
  void abort(std::string_view reason);
  /// After all ranks have returned: as new. Only when no thread is inside.
  void reset();

 private:
  struct alignas(64) Slot {
    MeetingCall call;
    std::atomic<uint32_t> arrived{0};
    std::atomic<bool> finished{false};
  };
  void barrier(int rank, const char* operation, std::chrono::milliseconds timeout);
  [[noreturn]] void fail(int rank, const char* operation) const;
  std::string missing_ranks(uint32_t turn) const;

  const int size_;
  const bool may_spin_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<uint32_t> turn_{0};
  std::atomic<int> waiting_{0};
  std::atomic<int> state_{0};
  mutable Mutex mutex_;
  std::string reason_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::collectives
