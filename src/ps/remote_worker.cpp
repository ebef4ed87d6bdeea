#include "ps/remote_worker.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::ps {
namespace {

using remote::CallContext;
using remote::Outcome;

// Replies of worker.run and worker.make: (0, result), (1 + i, text) when parameter server i does
// not answer, (-1, None) when the call was for another start of the worker.

Nest number(int64_t value) { return Nest(at::scalar_tensor(value, at::kLong)); }
int64_t number_of(const Nest& nest) {
  const Tensor& tensor = nest.leaf();
  if (tensor.scalar_type() != at::kLong || tensor.numel() != 1)
    throw InvalidArgument("worker: a number that is no int64 scalar");
  return tensor.item<int64_t>();
}

Nest reply_of(const ServerLost& lost) {
  return Nest::tuple({number(1 + lost.server()), Nest(StringTensor(std::string(lost.what())))});
}

/// Different for each start of a process on this machine.
int64_t new_incarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return (std::chrono::duration_cast<std::chrono::microseconds>(now).count() << 8 ^ ::getpid()) &
         INT64_MAX;
}

}  // namespace

WorkerHost::WorkerHost(int64_t worker, std::shared_ptr<const FunctionTable> table)
    : worker_(worker), table_(std::move(table)), incarnation_(new_incarnation()) {}

std::map<std::string, remote::Method> WorkerHost::methods() {
  return {
      {"worker.hello", [this](const CallContext&, const Nest&) { return number(incarnation_); }},
      {"worker.make",
       [this](const CallContext& context, const Nest& request) { return make(context, request); }},
      {"worker.run",
       [this](const CallContext& context, const Nest& request) { return run(context, request); }}};
}

bool WorkerHost::is_for_this(const Nest& request) const {
  return number_of(request[0]) == incarnation_;
}

Nest WorkerHost::make(const CallContext& context, const Nest& request) {
  if (!is_for_this(request)) return Nest::tuple({number(-1), Nest()});
  const int64_t resource = number_of(request[1]);
  const std::string& name = request[2].strings().item();
  const auto maker = table_->makers.find(name);
  if (maker == table_->makers.end())
    throw NotFound(cat("make [worker:", worker_, "]: no function \"", name, "\""));
  MutexLock lock(mutex_);
  try {
    resources_[resource] = maker->second({worker_, [context] { return context.is_cancelled(); }});
  } catch (const ServerLost& lost) {
    return reply_of(lost);
  }
  return Nest::tuple({number(0), Nest()});
}

Nest WorkerHost::run(const CallContext& context, const Nest& request) {
  if (!is_for_this(request)) return Nest::tuple({number(-1), Nest()});
  const std::string& name = request[1].strings().item();
  const auto function = table_->functions.find(name);
  if (function == table_->functions.end()) {
    throw NotFound(cat("run [worker:", worker_, "]: no function \"", name,
                       "\", expected one that this process has registered"));
  }
  FunctionTable::Call call;
  for (const Nest& argument : request[2].items()) {
    WorkerArgument to;
    to.resource = number_of(argument[0]);
    to.value = argument[1];
    call.arguments.push_back(std::move(to));
  }
  MutexLock lock(mutex_);
  auto* resources = &resources_;  // while the function runs, under the lock
  call.resource = [this, resources](int64_t resource) -> Resource& {
    const auto made = resources->find(resource);
    if (made == resources->end()) {
      throw FailedPrecondition(
          cat("run [worker:", worker_, "]: resource ", resource, " is not made"));
    }
    return made->second;
  };
  try {
    Nest result = function->second({worker_, [context] { return context.is_cancelled(); }}, call);
    return Nest::tuple({number(0), std::move(result)});
  } catch (const ServerLost& lost) {
    return reply_of(lost);
  }
}

namespace {

/// Between two questions where somebody else answers.
constexpr std::chrono::milliseconds kPause{100};

class RemoteWorker final : public WorkerLink {
 public:
  explicit RemoteWorker(const RemoteWorkerOptions& options)
      : options_(options), client_(options.address, options.security) {}

  uint64_t incarnation() override {
    if (incarnation_ == 0) hello();
    return static_cast<uint64_t>(incarnation_);
  }

  void make(int64_t resource, const std::string& maker) override {
    result_of(ask("make " + maker, "worker.make",
                  Nest::tuple({number(incarnation_), number(resource), Nest(StringTensor(maker))}),
                  options_.run_timeout));
  }

  Nest run(const std::string& function, const std::vector<WorkerArgument>& arguments) override {
    if (incarnation_ == 0) hello();
    std::vector<Nest> parts;
    for (const WorkerArgument& argument : arguments)
      parts.push_back(Nest::tuple({number(argument.resource), argument.value}));
    return result_of(ask("run " + function, "worker.run",
                         Nest::tuple({number(incarnation_), Nest(StringTensor(function)),
                                      Nest::list(std::move(parts))}),
                         options_.run_timeout));
  }

  void cancel() override {
    MutexLock lock(mutex_);
    if (call_) call_->cancel();
  }

  bool wait_until_back(const std::function<bool()>& stop) override {
    bool said = false;
    while (!stop()) {
      try {
        hello();
        return true;
      } catch (const WorkerLost&) {  // after the time of a hello
      } catch (const Cancelled&) {   // by whoever ends the coordinator, as stop() says then
      } catch (const std::exception& error) {
        // Who answers is not the worker, which may come all the same.
        if (!said) {
          log_warning("worker at ", options_.address, ": another service answers there (",
                      error.what(), "), expected the worker; asks until it does");
        }
        said = true;
        std::this_thread::sleep_for(kPause);
      }
    }
    return false;
  }

 private:
  Nest result_of(const Nest& reply) {
    const int64_t kind = number_of(reply[0]);
    if (kind < 0) throw WorkerLost(cat("worker at ", options_.address, ": it was restarted"));
    if (kind > 0) throw ServerLost(kind - 1, reply[1].strings().item());
    return reply[1];
  }

  void hello() {
    incarnation_ = 0;
    incarnation_ = number_of(ask("hello", "worker.hello", Nest::tuple({}), options_.hello_timeout));
  }

  /// `what` begins messages.
  Nest ask(const std::string& what, const std::string& method, const Nest& request,
           std::chrono::milliseconds timeout) {
    const bool is_hello = method == "worker.hello";
    auto call =
        client_.call(what, method, request, {.timeout = timeout, .wait_for_ready = is_hello});
    {
      MutexLock lock(mutex_);
      call_ = call;
    }
    const Outcome& outcome = call->wait();
    {
      MutexLock lock(mutex_);
      call_ = nullptr;
    }
    if (!outcome.failure) return outcome.value;
    const ErrorCode code = outcome.failure->code;
    const std::string text = cat(what, ": ", outcome.failure->message);
    const bool gone = outcome.on_the_way && (code == ErrorCode::kUnavailable ||
                                             (is_hello && code == ErrorCode::kDeadlineExceeded));
    if (gone) throw WorkerLost(text);
    throw_error(code, outcome.on_the_way ? text : outcome.failure->message);
  }

  const RemoteWorkerOptions options_;
  remote::MethodClient client_;
  int64_t incarnation_ = 0;
  Mutex mutex_;
  std::shared_ptr<remote::PendingCall> call_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<WorkerLink> make_remote_worker(const RemoteWorkerOptions& options) {
  return std::make_shared<RemoteWorker>(options);
}

}  // namespace tutti::ps
