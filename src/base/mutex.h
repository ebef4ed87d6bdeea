#pragma once
// A mutex that Clang's -Wthread-safety can follow; std::mutex underneath.

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TUTTI_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TUTTI_THREAD_ANNOTATION(x)
#endif
#define TUTTI_GUARDED_BY(mutex) TUTTI_THREAD_ANNOTATION(guarded_by(mutex))
#define TUTTI_REQUIRES(mutex) TUTTI_THREAD_ANNOTATION(requires_capability(mutex))

namespace tutti {

class TUTTI_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() TUTTI_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() TUTTI_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  bool try_lock() TUTTI_THREAD_ANNOTATION(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }

 private:
  std::mutex mutex_;
};

class TUTTI_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TUTTI_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() TUTTI_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable for Mutex: wait with the mutex held.
using ConditionVariable = std::condition_variable_any;

}  // namespace tutti
