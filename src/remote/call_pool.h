#pragma once
// The standing threads that run what comes in from other processes.

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace tutti::remote {

class CallPool {
 public:
  /// 0 threads: as many as there are cores, and 4 at least, for calls wait for other things too.
  CallPool(std::size_t threads, std::size_t most_waiting);
  /// As stop().
  ~CallPool();

  /// Runs `job` on a thread of the pool, in the order of coming. Never blocks. False when
  /// too many wait or the pool has stopped: `job` is not run. Jobs do not throw.
  bool add(std::function<void()> job);
  /// Lets go of what waits, and returns when what runs has ended. May be called again.
  void stop();

 private:
  void work();

  const std::size_t most_waiting_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> waiting_ TUTTI_GUARDED_BY(mutex_);
  bool stopped_ TUTTI_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::remote
