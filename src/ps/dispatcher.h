#pragma once
// Runs closures on workers: the heart of a ClusterCoordinator, over any way to its workers.

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ps/closure_queue.h"
#include "ps/worker_link.h"

namespace tutti::ps {

struct DispatcherOptions {
  QueueOptions queue = {};
  /// Reports of one parameter server that are taken for passing trouble before the error goes to
  /// the user; the report number `most` does. 0: the first does.
  int64_t server_reports = 3;
  /// Worker i begins after start_delay * i, at most start_delay_max. Without a maximum after
  /// start_delay.
  std::chrono::milliseconds start_delay{0};
  std::optional<std::chrono::milliseconds> start_delay_max = std::nullopt;
};

/// One thread and one closure under way for each worker. A closure runs at least once: on another
/// worker when its own is lost, again when a parameter server was, else its error is the user's
/// (closure_queue.h). What a worker has made (iterators) is made again when it has come back,
/// before its next closure. Any thread may call.
class Dispatcher {
 public:
  Dispatcher(std::vector<std::shared_ptr<WorkerLink>> workers, const DispatcherOptions& options);
  /// Cancels what is under way, drops what waits and ends the threads.
  ~Dispatcher();

  /// Returns at once, or blocks while the queue is full.
  ValuePtr schedule(const std::string& function, std::vector<Argument> arguments = {});
  void join() { queue_.wait(); }
  bool done() { return queue_.done(); }
  /// From now on every worker has a piece of its own, made by `maker` on it before it is first
  /// used. When that fails the closure that wants it fails, with its error.
  OfEachWorker add_resource(const std::string& maker);

  std::size_t num_workers() const { return workers_.size(); }

 private:
  struct Made {
    uint64_t incarnation = 0;
    std::map<int64_t, bool> resources;
  };
  void serve(std::size_t worker);
  /// False: the worker is lost.
  bool run_one(std::size_t worker, Made& made, Closure closure);
  std::vector<WorkerArgument> arguments_for(WorkerLink& link, Made& made, const Closure& closure);
  std::string maker_of(int64_t resource);
  bool is_stopped();
  void cancel_all();
  /// Whether the report is taken for passing trouble.
  bool is_passing(int64_t server);
  void wait_for_start(std::size_t worker);

  const DispatcherOptions options_;
  const std::vector<std::shared_ptr<WorkerLink>> workers_;
  ClosureQueue queue_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool stopped_ TUTTI_GUARDED_BY(mutex_) = false;
  std::size_t serving_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> makers_ TUTTI_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> reports_ TUTTI_GUARDED_BY(mutex_);  // by parameter server
  std::vector<std::thread> threads_;
};

}  // namespace tutti::ps
