#pragma once
// Threads that stand for the workers of a MultiWorkerMirroredStrategy.

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "distribute/worker_group.h"
#include "tutti/base/text.h"

namespace tutti::testing {

/// Calls `body(strategy)` on a thread for each of `num_workers` workers with `replicas` CPU
/// replicas each, and joins them. Strategies live as long as their body. The first exception that
/// leaves a body is thrown again. No wait is longer than a minute. `backend`: of the workers.
inline void on_workers(int num_workers, int replicas,
                       const std::function<void(std::shared_ptr<distribute::Strategy>)>& body,
                       distribute::MultiWorkerMirroredStrategyOptions options = {},
                       const char* backend = "in_process") {
  if (options.communication_options.timeout_seconds == 0)
    options.communication_options.timeout_seconds = 60;
  options.devices.clear();
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  auto group = collectives::find_backend(backend).make_local_group(num_workers);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < num_workers; ++worker) {
    auto own = std::make_shared<distribute::WorkerGroup>(
        std::move(group[static_cast<std::size_t>(worker)]));
    threads.emplace_back([&, own]() mutable {
      try {
        body(std::make_shared<distribute::MultiWorkerMirroredStrategy>(options, std::move(own)));
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace tutti::testing
