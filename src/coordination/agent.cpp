#include "coordination/agent.h"

#include "coordination/agent_impl.h"
#include "coordination/grpc_link.h"
#include "coordination/in_process_link.h"
#include "coordination/key_value_store.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

std::unique_ptr<Link> link_of(const AgentOptions& options) {
  const std::string address = options.leader_address.empty()
                                  ? address_of(options.cluster, leader_of(options.cluster))
                                  : options.leader_address;
  return make_grpc_link(address, options.security);
}

}  // namespace

CoordinationAgent::CoordinationAgent(const AgentOptions& options)
    : impl_(std::make_unique<Impl>(options, link_of(options))) {}
CoordinationAgent::CoordinationAgent(const AgentOptions& options, Coordinator& coordinator)
    : impl_(std::make_unique<Impl>(options, make_in_process_link(coordinator))) {}
CoordinationAgent::~CoordinationAgent() = default;

const std::string& CoordinationAgent::task() const { return impl_->options().task; }
uint64_t CoordinationAgent::generation() const { return impl_->generation(); }
uint64_t CoordinationAgent::incarnation() const { return impl_->incarnation(); }

void CoordinationAgent::report_progress(int64_t step, std::string_view phase, bool waiting) {
  impl_->report_progress(step, phase, waiting);
}

void CoordinationAgent::count_as_moving(bool on) { impl_->count_as_moving(on); }

void CoordinationAgent::barrier(const std::string& name, const BarrierOptions& options) {
  v1::Request request;
  v1::Barrier& barrier = *request.mutable_barrier();
  barrier.set_name(name);
  barrier.set_round(impl_->next_round(name));
  for (const std::string& task : options.tasks) barrier.add_tasks(task);
  impl_->wait(cat("barrier \"", name, "\""), std::move(request), options.timeout);
}

void CoordinationAgent::set(const std::string& key, std::string_view value, bool overwrite) {
  check_key("set", key);
  check_value("set", key, value.size());
  v1::Request request;
  v1::Set& set = *request.mutable_set();
  set.set_key(key);
  set.set_value(std::string(value));
  set.set_overwrite(overwrite);
  impl_->call("set", std::move(request));
}

std::string CoordinationAgent::get(const std::string& key, Milliseconds timeout) {
  check_key("get", key);
  v1::Request request;
  request.mutable_get()->set_key(key);
  const std::string operation = cat("get \"", key, "\"");
  auto reply = impl_->wait(operation, std::move(request), timeout);
  if (!reply) {
    throw DeadlineExceeded(cat(operation, " [", task(), "]: no task set it within ",
                               timeout.count(),
                               " ms; read the log of the one that sets it, or "
                               "raise the time limit"));
  }
  return std::move(*reply->mutable_value());
}

std::optional<std::string> CoordinationAgent::try_get(const std::string& key) {
  check_key("try_get", key);
  v1::Request request;
  request.mutable_get()->set_key(key);
  try {
    v1::Reply reply = impl_->call("try_get", std::move(request));
    return std::move(*reply.mutable_value());
  } catch (const NotFound&) {
    impl_->check("try_get");
    return std::nullopt;
  }
}

int64_t CoordinationAgent::add(const std::string& key, int64_t delta) {
  check_key("add", key);
  v1::Request request;
  request.mutable_add()->set_key(key);
  request.mutable_add()->set_delta(delta);
  return impl_->call("add", std::move(request)).count();
}

int64_t CoordinationAgent::erase(const std::string& key, bool prefix) {
  v1::Request request;
  request.mutable_erase()->set_key(key);
  request.mutable_erase()->set_prefix(prefix);
  return impl_->call("erase", std::move(request)).count();
}

std::vector<std::pair<std::string, std::string>> CoordinationAgent::list(
    const std::string& prefix) {
  v1::Request request;
  request.mutable_list()->set_prefix(prefix);
  v1::Reply reply = impl_->call("list", std::move(request));
  std::vector<std::pair<std::string, std::string>> entries;
  for (v1::Entry& entry : *reply.mutable_entries())
    entries.emplace_back(std::move(*entry.mutable_key()), std::move(*entry.mutable_value()));
  return entries;
}

std::vector<TaskInfo> CoordinationAgent::task_states() {
  v1::Request request;
  request.mutable_task_states();
  const v1::Reply reply = impl_->call("task_states", std::move(request));
  std::vector<TaskInfo> tasks;
  for (const v1::TaskStatus& status : reply.tasks()) {
    tasks.push_back({status.task(), static_cast<TaskState>(status.state()),
                     status.progress().step(), status.progress().phase()});
  }
  return tasks;
}

JobFailure CoordinationAgent::report_error(ErrorCode code, const std::string& message) {
  return impl_->report_error(code, message);
}
std::optional<JobFailure> CoordinationAgent::failure() const { return impl_->failure(); }
void CoordinationAgent::check(std::string_view operation) const { impl_->check(operation); }
std::optional<JobFailure> CoordinationAgent::wait_for_failure(Milliseconds timeout) const {
  return impl_->wait_for_failure(timeout);
}
void CoordinationAgent::on_failure(std::function<void(const JobFailure&)> action) {
  impl_->on_failure(std::move(action));
}
void CoordinationAgent::leave(Milliseconds timeout, bool together) {
  impl_->leave(timeout, together);
}

}  // namespace tutti::coordination
