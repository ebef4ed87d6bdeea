#include <chrono>

#include "ps/worker_link.h"
#include "tutti/base/text.h"

namespace tutti::ps {

InProcessWorker::InProcessWorker(int64_t worker, std::shared_ptr<const FunctionTable> table)
    : worker_(worker), table_(std::move(table)) {}

uint64_t InProcessWorker::incarnation() {
  MutexLock lock(mutex_);
  return incarnation_;
}

void InProcessWorker::check_alive(const char* operation) {
  MutexLock lock(mutex_);
  if (!alive_) throw WorkerLost(cat(operation, " [worker:", worker_, "]: the worker is gone"));
  if (resources_of_ != incarnation_) {
    resources_.clear();
    resources_of_ = incarnation_;
  }
}

WorkerContext InProcessWorker::context() {
  return {worker_, [this] {
            MutexLock lock(mutex_);
            return cancelled_ || !alive_;
          }};
}

void InProcessWorker::make(int64_t number, const std::string& maker) {
  check_alive("make");
  const auto found = table_->makers.find(maker);
  if (found == table_->makers.end())
    throw NotFound(cat("make [worker:", worker_, "]: no function \"", maker, "\""));
  resources_[number] = found->second(context());
}

Nest InProcessWorker::run(const std::string& function,
                          const std::vector<WorkerArgument>& arguments) {
  uint64_t before = 0;
  {
    MutexLock lock(mutex_);
    cancelled_ = false;
    before = incarnation_;
  }
  check_alive("run");
  const auto found = table_->functions.find(function);
  if (found == table_->functions.end())
    throw NotFound(cat("run [worker:", worker_, "]: no function \"", function,
                       "\", expected one that this process has registered"));
  const auto resource = [&](int64_t number) -> Resource& {
    const auto made = resources_.find(number);
    if (made == resources_.end())
      throw FailedPrecondition(
          cat("run [worker:", worker_, "]: resource ", number, " is not made"));
    return made->second;
  };
  Nest result = found->second(context(), {arguments, resource});
  MutexLock lock(mutex_);
  if (!alive_ || incarnation_ != before)
    throw WorkerLost(cat("run [worker:", worker_, "]: the worker died while it ran ", function));
  if (cancelled_) throw Cancelled(cat("run [worker:", worker_, "]: ", function, " was cancelled"));
  return result;
}

void InProcessWorker::cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
}

bool InProcessWorker::wait_until_back(const std::function<bool()>& stop) {
  MutexLock lock(mutex_);
  while (!alive_) {
    if (stop()) return false;
    changed_.wait_for(mutex_, std::chrono::milliseconds(20));
  }
  return true;
}

void InProcessWorker::die() {
  MutexLock lock(mutex_);
  alive_ = false;
  changed_.notify_all();
}

void InProcessWorker::come_back() {
  MutexLock lock(mutex_);
  alive_ = true;
  ++incarnation_;
  changed_.notify_all();
}

}  // namespace tutti::ps
