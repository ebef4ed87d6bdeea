#pragma once
// Threads that make elements.

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace tutti::data {

/// Runs `work` on this thread so that its operators use so many cores: a larger team of theirs
/// would spin on the cores that the replicas compute on.
void on_cores(int cores, const std::function<void()>& work);

/// InvalidArgument unless it is kAutotune or a number from 1 to 1024.
void check_parallel_calls(const char* operation, int64_t num_parallel_calls);

/// Threads that run what is submitted, each on `cores`, in the order of submission. The destructor
/// drops what has not begun and waits for what has.
class WorkerPool {
 public:
  WorkerPool(int threads, int cores);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  /// `task` does not throw.
  void submit(std::function<void()> task);

 private:
  void work();
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::data
