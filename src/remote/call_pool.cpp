#include "remote/call_pool.h"

#include <algorithm>

namespace tutti::remote {

CallPool::CallPool(std::size_t threads, std::size_t most_waiting) : most_waiting_(most_waiting) {
  if (threads == 0) threads = std::max(4u, std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

CallPool::~CallPool() { stop(); }

bool CallPool::add(std::function<void()> job) {
  MutexLock lock(mutex_);
  if (stopped_ || waiting_.size() >= most_waiting_) return false;
  waiting_.push_back(std::move(job));
  changed_.notify_one();
  return true;
}

void CallPool::stop() {
  std::deque<std::function<void()>> dropped;  // ends without the lock
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void CallPool::work() {
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopped_) changed_.wait(mutex_);
      if (stopped_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    job();
  }
}

}  // namespace tutti::remote
