#pragma once
// Items that a thread of its own makes ahead: the machine behind prefetch and behind steps made
// ahead.

#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace tutti::data {

/// At most `capacity` items wait. An exception of `make` surfaces in the place of its item, and the
/// thread goes on behind it. Taken by one thread at a time. Waiting for an item has no deadline: it
/// lasts as long as the user's functions inside `make` do; so does the destructor, for the item
/// under way.
template <class Item>
class ProducedAhead {
 public:
  using Work = std::function<void()>;
  /// The thread calls `make` until it gives nothing; `around(work)` is what it runs, and does the
  /// work once between whatever the thread needs set and unset.
  ProducedAhead(std::size_t capacity, std::function<void(const Work&)> around,
                std::function<std::optional<Item>()> make)
      : capacity_(capacity), make_(std::move(make)) {
    thread_ = std::thread([this, around = std::move(around)] { around([this] { produce(); }); });
  }
  ~ProducedAhead() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  ProducedAhead(const ProducedAhead&) = delete;
  ProducedAhead& operator=(const ProducedAhead&) = delete;

  /// The next item, or nothing at the end (which is sticky).
  std::optional<Item> next() {
    if (ended_) return std::nullopt;
    std::unique_lock<Mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty(); });
    Slot slot = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    changed_.notify_all();
    if (slot.error) std::rethrow_exception(slot.error);
    ended_ = !slot.item;
    return std::move(slot.item);
  }

 private:
  /// An item, the end (neither), or the exception that stood in its place.
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };
  void produce() {
    for (bool more = true; more;) {
      Slot slot;
      try {
        slot.item = make_();
        more = slot.item.has_value();
      } catch (...) {
        slot.error = std::current_exception();
      }
      std::unique_lock<Mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || queue_.size() < capacity_; });
      if (stop_) return;
      queue_.push_back(std::move(slot));
      lock.unlock();
      changed_.notify_all();
    }
  }

  std::size_t capacity_;
  std::function<std::optional<Item>()> make_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Slot> queue_;
  bool stop_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace tutti::data
