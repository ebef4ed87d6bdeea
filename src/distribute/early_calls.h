#pragma once
// All-reduces that a worker makes on a thread of its own while its caller goes on.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tutti/tensor/tensor.h"

namespace tutti::distribute {

/// Tensors that are reduced in their order. Who made them sets `done` back to 0 when a round is
/// over; nobody else touches `tensors`.
struct EarlyBuckets {
  std::vector<at::Tensor> tensors;
  std::size_t requested = 0;  // those before it are reduced or will be
  std::size_t done = 0;       // those before it are; the same number on every worker
};

/// One thread makes the calls, in order. Everything but turn_off() is called by the one thread that
/// has the worker's group; the calls made in between are for it to order: settle() first. No memory
/// is asked for once the thread is there.
class EarlyCalls {
 public:
  /// `call` reduces, or is false when the others are in another call: the bucket and those behind
  /// it are then left to the caller. `all_know` says of an error whether every worker has it.
  EarlyCalls(std::function<bool(at::Tensor&)> call, const std::atomic<bool>& all_know);
  /// Joins the thread, which must not be blocked for ever: abort the group before.
  ~EarlyCalls();
  EarlyCalls(const EarlyCalls&) = delete;
  EarlyCalls& operator=(const EarlyCalls&) = delete;

  /// The first `count` buckets may be reduced. Without effect while others' are under way, once an
  /// error waits, or when turned off.
  void request(const std::shared_ptr<EarlyBuckets>& buckets, std::size_t count);
  /// How many have been requested, or are done without. Afterwards it only gets less.
  std::size_t requested(const EarlyBuckets& buckets);
  /// Blocks until none is under way.
  void settle();
  /// False: one still is, after `limit`.
  bool settle_for(std::chrono::milliseconds limit);
  /// settle(), and the error of an early call, once. `known`: every worker has it.
  std::exception_ptr take_error(bool* known);
  /// For good. Any thread.
  void turn_off() { off_.store(true, std::memory_order_relaxed); }
  bool is_off() const { return off_.load(std::memory_order_relaxed); }
  /// Buckets that it has reduced.
  int64_t num_reduced() const { return num_reduced_.load(std::memory_order_relaxed); }

 private:
  void run();

  const std::function<bool(at::Tensor&)> call_;
  const std::atomic<bool>& all_know_;
  std::atomic<bool> off_{false};
  std::atomic<int64_t> num_reduced_{0};
  bool used_ = false;  // of the caller's thread: something was requested and not settled
  Mutex mutex_;
  ConditionVariable changed_;
  std::shared_ptr<EarlyBuckets> buckets_ TUTTI_GUARDED_BY(mutex_);  // null: nothing is under way
  std::exception_ptr error_ TUTTI_GUARDED_BY(mutex_);
  bool error_known_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stopping_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tutti::distribute
