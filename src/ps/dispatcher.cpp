#include "ps/dispatcher.h"

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::ps {

Dispatcher::Dispatcher(std::vector<std::shared_ptr<WorkerLink>> workers,
                       const DispatcherOptions& options)
    : options_(options),
      workers_(std::move(workers)),
      queue_(options.queue, [this] { cancel_all(); }) {
  if (workers_.empty()) {
    throw InvalidArgument(
        "ClusterCoordinator: no workers, expected at least 1; add a job \"worker\"");
  }
  {
    MutexLock lock(mutex_);
    serving_ = workers_.size();
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    threads_.emplace_back([this, i] {
      serve(i);
      MutexLock lock(mutex_);
      --serving_;
      changed_.notify_all();
    });
  }
}

Dispatcher::~Dispatcher() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  queue_.stop();
  for (;;) {  // a closure may just be about to start
    cancel_all();
    MutexLock lock(mutex_);
    if (serving_ == 0) break;
    changed_.wait_for(mutex_, std::chrono::milliseconds(20));
  }
  for (std::thread& thread : threads_) thread.join();
}

void Dispatcher::cancel_all() {
  for (const auto& worker : workers_) worker->cancel();
}

bool Dispatcher::is_stopped() {
  MutexLock lock(mutex_);
  return stopped_;
}

ValuePtr Dispatcher::schedule(const std::string& function, std::vector<Argument> arguments) {
  auto result = std::make_shared<ValueToCome>(function);
  queue_.put({function, std::move(arguments), result});
  return result;
}

OfEachWorker Dispatcher::add_resource(const std::string& maker) {
  MutexLock lock(mutex_);
  makers_.push_back(maker);
  return {static_cast<int64_t>(makers_.size()) - 1};
}

std::string Dispatcher::maker_of(int64_t resource) {
  MutexLock lock(mutex_);
  if (resource < 0 || static_cast<std::size_t>(resource) >= makers_.size()) {
    throw InvalidArgument(
        cat("schedule: the per-worker value ", resource, ", expected one of this coordinator"));
  }
  return makers_[static_cast<std::size_t>(resource)];
}

void Dispatcher::wait_for_start(std::size_t worker) {
  if (options_.start_delay.count() == 0) return;
  auto delay = options_.start_delay;
  if (options_.start_delay_max) {
    delay =
        std::min(options_.start_delay * static_cast<int64_t>(worker), *options_.start_delay_max);
  }
  const auto end = std::chrono::steady_clock::now() + delay;
  MutexLock lock(mutex_);
  while (!stopped_ && std::chrono::steady_clock::now() < end) changed_.wait_until(mutex_, end);
}

void Dispatcher::serve(std::size_t worker) {
  wait_for_start(worker);
  Made made;
  for (;;) {
    std::optional<Closure> closure = queue_.get();
    if (!closure) return;
    if (run_one(worker, made, std::move(*closure))) continue;
    log_warning("ClusterCoordinator: worker ", worker, " is lost; what it ran runs elsewhere");
    if (!workers_[worker]->wait_until_back([this] { return is_stopped(); })) return;
    log_info("ClusterCoordinator: worker ", worker, " is back");
  }
}

std::vector<WorkerArgument> Dispatcher::arguments_for(WorkerLink& link, Made& made,
                                                      const Closure& closure) {
  if (const uint64_t now = link.incarnation(); made.incarnation != now) made = {now, {}};
  std::vector<WorkerArgument> arguments;
  for (const Argument& argument : closure.arguments) {
    WorkerArgument to;
    if (const auto* value = std::get_if<Nest>(&argument)) {
      to.value = *value;
    } else if (const auto* other = std::get_if<ValuePtr>(&argument)) {
      to.value = (*other)->get();  // it is there
    } else {
      to.resource = std::get<OfEachWorker>(argument).number;
      bool& is_made = made.resources[to.resource];
      if (!is_made) link.make(to.resource, maker_of(to.resource));
      is_made = true;
    }
    arguments.push_back(std::move(to));
  }
  return arguments;
}

bool Dispatcher::is_passing(int64_t server) {
  MutexLock lock(mutex_);
  if (options_.server_reports <= 0) return false;
  if (++reports_[server] < options_.server_reports) return true;
  reports_[server] = 0;
  return false;
}

bool Dispatcher::run_one(std::size_t worker, Made& made, Closure closure) {
  WorkerLink& link = *workers_[worker];
  try {
    const auto arguments = arguments_for(link, made, closure);
    Nest result = link.run(closure.function, arguments);
    queue_.finished(closure, std::move(result));
    if (closure.lost_server >= 0) {
      MutexLock lock(mutex_);
      reports_[closure.lost_server] = 0;  // it answers again
    }
  } catch (const WorkerLost&) {
    made = {};
    queue_.put_back(std::move(closure));
    return false;
  } catch (const ServerLost& error) {
    if (is_passing(error.server())) {
      log_warning("ClusterCoordinator: ", error.what(), "; the function runs again");
      closure.lost_server = error.server();
      queue_.put_back(std::move(closure));
    } else {
      queue_.failed(closure, error);
    }
  } catch (const Error& error) {
    queue_.failed(closure, error);
  } catch (const std::exception& error) {
    queue_.failed(closure, Internal(cat("function \"", closure.function, "\": ", error.what())));
  }
  return true;
}

}  // namespace tutti::ps
