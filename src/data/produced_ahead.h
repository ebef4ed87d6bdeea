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
  /// An item, the end (neither), or the exception that stands in its place.
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };
  using Slots = std::deque<Slot>;
  /// The thread calls `make` until it gives nothing; `around(work)` is what it runs, and does the
  /// work once between whatever the thread needs set and unset. It begins with start() or next().
  ProducedAhead(std::size_t capacity, std::function<void(const Work&)> around,
                std::function<std::optional<Item>()> make)
      : capacity_(capacity), around_(std::move(around)), make_(std::move(make)) {}
  ~ProducedAhead() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  ProducedAhead(const ProducedAhead&) = delete;
  ProducedAhead& operator=(const ProducedAhead&) = delete;

  void start() {
    if (!thread_.joinable()) thread_ = std::thread([this] { around_([this] { produce(); }); });
  }
  /// The next item, or nothing at the end (which is sticky). `waiting`: how many waited.
  std::optional<Item> next(std::size_t* waiting = nullptr) {
    if (ended_) return std::nullopt;
    start();
    std::unique_lock<Mutex> lock(mutex_);
    const bool resumed = std::exchange(pausing_, false);
    if (resumed) room_.notify_one();
    if (waiting != nullptr) *waiting = slots_.size();
    ready_.wait(lock, [this] { return !slots_.empty(); });
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    const bool wake = idle_;
    lock.unlock();
    if (wake) room_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    ended_ = !slot.item;
    return std::move(slot.item);
  }
  void set_capacity(std::size_t capacity) {
    {
      MutexLock lock(mutex_);
      capacity_ = capacity;
    }
    room_.notify_one();
  }

  /// `work(what waits)` when nothing is being made, for which it waits; nothing is until next().
  template <class Function>
  void look(Function work) {
    std::unique_lock<Mutex> lock(mutex_);
    pausing_ = true;
    ready_.wait(lock, [this] { return !making_; });
    work(std::as_const(slots_));
  }
  /// The same, but `work()` gives what waits instead, and makes `make` go on behind it.
  template <class Function>
  void replace(Function work) {
    std::unique_lock<Mutex> lock(mutex_);
    pausing_ = true;
    ready_.wait(lock, [this] { return !making_; });
    slots_ = work();
    ended_ = false;
    finished_ = !slots_.empty() && !slots_.back().item && !slots_.back().error;
  }

 private:
  void produce() {
    std::unique_lock<Mutex> lock(mutex_);
    for (;;) {
      idle_ = true;
      room_.wait(
          lock, [this] { return stop_ || (!pausing_ && !finished_ && slots_.size() < capacity_); });
      idle_ = false;
      if (stop_) return;
      making_ = true;
      lock.unlock();
      Slot slot;
      try {
        slot.item = make_();
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      making_ = false;
      finished_ = !slot.item && !slot.error;
      slots_.push_back(std::move(slot));
      ready_.notify_one();
    }
  }

  std::size_t capacity_;
  std::function<void(const Work&)> around_;
  std::function<std::optional<Item>()> make_;
  Mutex mutex_;
  ConditionVariable room_;   // for the thread
  ConditionVariable ready_;  // for who takes
  Slots slots_;
  bool idle_ = false;
  bool making_ = false;
  bool pausing_ = false;
  bool finished_ = false;  // the end waits, or has been taken
  bool stop_ = false;
  bool ended_ = false;  // the end has been taken
  std::thread thread_;
};

}  // namespace tutti::data
