#include "ps/closure_queue.h"

#include <algorithm>
#include <chrono>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::ps {
namespace {

constexpr std::chrono::seconds kSayEvery{5};
constexpr std::chrono::milliseconds kCancelEvery{20};

std::string gave_up(const Closure& closure, const std::string& why) {
  return cat("RemoteValue [", closure.function, "]: cancelled, ", why);
}

}  // namespace

ClosureQueue::ClosureQueue(const QueueOptions& options, std::function<void()> cancel)
    : options_(options), cancel_(std::move(cancel)) {
  if (options.size == 0) {
    log_warning(
        "ClusterCoordinator: the queue has no limit, so scheduling faster than workers run takes "
        "ever more memory");
  }
}

void ClosureQueue::drop_waiting(const std::string& why) {
  for (const Closure& closure : waiting_)
    closure.result->fail(ErrorCode::kCancelled, gave_up(closure, why));
  waiting_.clear();
}

void ClosureQueue::throw_pending() {
  while (clearing_) changed_.wait(mutex_);  // by another thread, which throws it
  if (!error_) return;
  clearing_ = true;
  drop_waiting(cat("an earlier function failed: ", error_->message));
  while (under_way_ > 0 && !stopped_) {
    if (cancel_) {  // again and again: a closure may just be about to start
      mutex_.unlock();
      cancel_();
      mutex_.lock();
    }
    if (under_way_ > 0) changed_.wait_for(mutex_, kCancelEvery);
  }
  drop_waiting(cat("an earlier function failed: ", error_->message));
  const Pending error = *error_;
  error_.reset();
  clearing_ = false;
  changed_.notify_all();
  throw_error(error.code, error.message);
}

void ClosureQueue::put(Closure closure) {
  MutexLock lock(mutex_);
  for (;;) {
    throw_pending();
    if (stopped_)
      throw Cancelled(cat("schedule [", closure.function, "]: the coordinator has ended"));
    const bool full = options_.size != 0 && waiting_.size() >= options_.size;
    if (!full && waiters_ == 0) break;
    changed_.wait(mutex_);
  }
  waiting_.push_back(std::move(closure));
  changed_.notify_all();
}

void ClosureQueue::wait() {
  MutexLock lock(mutex_);
  ++waiters_;
  try {
    wait_for_all();
  } catch (...) {
    --waiters_;
    changed_.notify_all();
    throw;
  }
  --waiters_;
  changed_.notify_all();
}

void ClosureQueue::wait_for_all() {
  for (;;) {
    throw_pending();
    if (stopped_ || (waiting_.empty() && under_way_ == 0)) return;
    if (changed_.wait_for(mutex_, kSayEvery) == std::cv_status::timeout) {
      log_info("ClusterCoordinator::join: waits for ", under_way_, " functions that run and ",
               waiting_.size(), " that wait for a worker");
    }
  }
}

bool ClosureQueue::done() {
  MutexLock lock(mutex_);
  throw_pending();
  return waiting_.empty() && under_way_ == 0;
}

ClosureQueue::Readiness ClosureQueue::readiness(const Closure& closure) {
  Readiness result = Readiness::kReady;
  for (const Argument& argument : closure.arguments) {
    const auto* value = std::get_if<ValuePtr>(&argument);
    if (value == nullptr) continue;
    if (!(*value)->is_ready()) {
      result = Readiness::kNotYet;
    } else if (!(*value)->has_value()) {
      return Readiness::kNever;
    }
  }
  return result;
}

std::optional<Closure> ClosureQueue::take() {
  if (error_ || clearing_) return std::nullopt;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const Readiness ready = readiness(*at);
    if (ready == Readiness::kNotYet) {
      ++at;
      continue;
    }
    Closure closure = std::move(*at);
    at = waiting_.erase(at);
    changed_.notify_all();
    if (ready == Readiness::kReady) {
      ++under_way_;
      return closure;
    }
    closure.result->fail(ErrorCode::kCancelled,
                         gave_up(closure, "a function whose result it takes has none"));
  }
  return std::nullopt;
}

std::optional<Closure> ClosureQueue::get() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    if (auto closure = take()) return closure;
    changed_.wait(mutex_);
  }
}

std::optional<Closure> ClosureQueue::try_get() {
  MutexLock lock(mutex_);
  if (stopped_) return std::nullopt;
  return take();
}

void ClosureQueue::end_one() {
  --under_way_;
  changed_.notify_all();
}

void ClosureQueue::finished(const Closure& closure, Nest value) {
  closure.result->set(std::move(value));  // before anyone is told that nothing is under way
  MutexLock lock(mutex_);
  end_one();
}

void ClosureQueue::put_back(Closure closure) {
  MutexLock lock(mutex_);
  if (error_ || stopped_) {
    closure.result->fail(
        ErrorCode::kCancelled,
        gave_up(closure, error_ ? cat("an earlier function failed: ", error_->message)
                                : "the coordinator has ended"));
  } else {
    waiting_.push_front(std::move(closure));
  }
  end_one();
}

void ClosureQueue::failed(const Closure& closure, const Error& error) {
  const bool is_echo = error.code() == ErrorCode::kCancelled;
  // Where a call is cut off on its way its error names no function.
  closure.result->fail(error.code(), is_echo ? gave_up(closure, error.what()) : error.what());
  MutexLock lock(mutex_);
  // What was cancelled because of the first error is no error of its own.
  if (!error_ && !(is_echo && (clearing_ || stopped_))) error_ = {error.code(), error.what()};
  end_one();
}

void ClosureQueue::stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  drop_waiting("the coordinator has ended");
  changed_.notify_all();
}

}  // namespace tutti::ps
