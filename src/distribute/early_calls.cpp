#include "distribute/early_calls.h"

#include <algorithm>
#include <utility>

#include "distribute/thread_team.h"

namespace tutti::distribute {

EarlyCalls::EarlyCalls(std::function<bool(at::Tensor&)> call, const std::atomic<bool>& all_know)
    : call_(std::move(call)), all_know_(all_know) {}

EarlyCalls::~EarlyCalls() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EarlyCalls::request(const std::shared_ptr<EarlyBuckets>& buckets, std::size_t count) {
  if (is_off()) return;
  {
    MutexLock lock(mutex_);
    if (error_ != nullptr || (buckets_ != nullptr && buckets_ != buckets)) return;
    if (count <= buckets->requested) return;
    buckets->requested = count;
    buckets_ = buckets;
  }
  used_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

std::size_t EarlyCalls::requested(const EarlyBuckets& buckets) {
  MutexLock lock(mutex_);
  return std::max(buckets.requested, buckets.done);
}

void EarlyCalls::settle() {
  if (!used_) return;
  std::unique_lock<Mutex> lock(mutex_);
  changed_.wait(lock, [&] { return buckets_ == nullptr; });
}

bool EarlyCalls::settle_for(std::chrono::milliseconds limit) {
  if (!used_) return true;
  std::unique_lock<Mutex> lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return buckets_ == nullptr; });
}

std::exception_ptr EarlyCalls::take_error(bool* known) {
  if (!used_) return nullptr;
  settle();
  used_ = false;
  MutexLock lock(mutex_);
  *known = error_known_;
  return std::exchange(error_, nullptr);
}

void EarlyCalls::run() {
  const ThreadTeam team(1);  // the replica's float mode, so that sums are the same bits
  std::unique_lock<Mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || buckets_ != nullptr; });
    if (buckets_ == nullptr) return;
    const std::shared_ptr<EarlyBuckets> buckets = buckets_;
    at::Tensor& tensor = buckets->tensors[buckets->done];
    lock.unlock();
    bool reduced = false;
    std::exception_ptr error;
    try {
      reduced = call_(tensor);
    } catch (...) {
      error = std::current_exception();
      turn_off();
    }
    lock.lock();
    if (reduced) {
      ++buckets->done;
      ++num_reduced_;
    } else {
      buckets->requested = buckets->done;
    }
    if (error != nullptr) {
      error_ = std::move(error);
      error_known_ = all_know_;
    }
    if (buckets->done == buckets->requested) {
      buckets_ = nullptr;
      changed_.notify_all();
    }
  }
}

}  // namespace tutti::distribute
