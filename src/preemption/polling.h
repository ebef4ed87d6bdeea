#pragma once
// A question that is asked again and again.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tutti::preemption {

/// Asks every second, on a thread of its own, beginning at once, until the answer is true; then
/// calls `action`. An exception is no answer, and is logged once. The destructor waits for the
/// question under way, not for the second.
class Polling {
 public:
  Polling(std::function<bool()> question, std::function<void()> action);

 private:
  void ask(std::stop_token stop);

  std::function<bool()> question_;
  std::function<void()> action_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace tutti::preemption
