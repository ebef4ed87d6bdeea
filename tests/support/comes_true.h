#pragma once
// Waiting for what happens at the same moment on another thread.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace tutti::testing {

/// True once `condition` is; fails after ten seconds, as where replicas do not run in parallel.
template <class Condition>
::testing::AssertionResult comes_true(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      return ::testing::AssertionFailure()
             << "nothing came in 10 s; this test needs replicas in parallel, so "
                "TUTTI_SEQUENTIAL_REPLICAS must not be set";
    }
    std::this_thread::yield();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tutti::testing
