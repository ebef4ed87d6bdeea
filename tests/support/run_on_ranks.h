#pragma once
// Threads that stand for ranks, and a watchdog over them.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/collectives/communicator.h"

namespace tutti::testing {

using Group = std::vector<std::unique_ptr<collectives::Communicator>>;

inline constexpr std::chrono::seconds kPatience{100};

/// Runs body(rank) on a thread for each rank and joins them; an exception that leaves a body is a
/// failure of the test. When they are not back after `patience`, `unblock` is called; if that does
/// not help, the program ends.
inline void run_threads(
    int num_ranks, const std::function<void(int)>& body,
    const std::function<void()>& unblock = [] {}, std::chrono::seconds patience = kPatience) {
  std::mutex mutex;
  std::condition_variable ended;
  int running = num_ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
      }
      std::lock_guard<std::mutex> lock(mutex);
      --running;
      ended.notify_all();
    });
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    const auto all_ended = [&] { return running == 0; };
    if (!ended.wait_for(lock, patience, all_ended)) {
      ADD_FAILURE() << running << " of " << num_ranks << " ranks still run after "
                    << patience.count() << " s";
      unblock();
      if (!ended.wait_for(lock, std::chrono::seconds(10), all_ended)) {
        std::fputs("ranks cannot be unblocked\n", stderr);
        std::abort();
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
}

/// Runs body(communicator) on a thread for each rank of `group`.
inline void run_on_ranks(Group& group,
                         const std::function<void(collectives::Communicator&)>& body) {
  run_threads(
      static_cast<int>(group.size()),
      [&](int rank) { body(*group[static_cast<std::size_t>(rank)]); },
      [&] { group[0]->abort("the test's watchdog"); });
}

}  // namespace tutti::testing
