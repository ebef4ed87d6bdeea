#pragma once
// A thread that does what it is given, one after the other.

#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace tutti::collectives {

class OrderedWorker {
 public:
  OrderedWorker();
  /// Finishes what was given.
  ~OrderedWorker();
  void give(std::function<void()> job);
  /// Blocks until all that was given is done.
  void drain();
  bool is_idle();

 private:
  void run();

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> jobs_ TUTTI_GUARDED_BY(mutex_);
  bool busy_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stopping_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tutti::collectives
