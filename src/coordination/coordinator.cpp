#include "coordination/coordinator.h"

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::coordination {
namespace {

std::string hex(uint64_t number) {
  std::ostringstream out;
  out << std::hex << number;
  return out.str();
}

std::string job_of(const std::string& task) { return task.substr(0, task.rfind(':')); }

uint64_t generation_by_clock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(now).count());
}

}  // namespace

v1::Failure make_failure(ErrorCode code, const std::string& message, const std::string& task,
                         bool ends_the_job) {
  v1::Failure failure;
  failure.set_code(static_cast<int>(code));
  failure.set_message(message);
  failure.set_task(task);
  failure.set_ends_the_job(ends_the_job);
  return failure;
}

v1::Reply reply_of(const v1::Failure& failure) {
  v1::Reply reply;
  *reply.mutable_failure() = failure;
  return reply;
}

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      hash_(cluster_hash(options_.cluster)),
      leader_(leader_of(options_.cluster)),
      own_ticker_(!options_.now) {
  if (!options_.now) options_.now = [] { return std::chrono::steady_clock::now(); };
  if (options_.generation == 0) options_.generation = generation_by_clock();
  {
    MutexLock lock(mutex_);
    for (const std::string& task : tasks_of(options_.cluster)) members_[task];
    last_look_ = options_.now();
  }
  if (own_ticker_) ticker_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

Coordinator::~Coordinator() { stop("it is being destroyed"); }

std::optional<v1::Failure> Coordinator::wrong_cluster(const v1::Caller& caller) const {
  if (caller.cluster_hash() == hash_) return std::nullopt;
  return make_failure(ErrorCode::kFailedPrecondition,
                      cat(caller.task(), " has cluster ", hex(caller.cluster_hash()),
                          ", this service cluster ", hex(hash_), " (", summary_of(options_.cluster),
                          "), expected the same; compare their TF_CONFIG, and the leader's "
                          "address"));
}

std::optional<v1::Failure> Coordinator::refusal(const v1::JoinRequest& request) {
  const v1::Caller& caller = request.caller();
  const auto refuse = [&](ErrorCode code, const auto&... text) {
    return make_failure(code,
                        cat("join [", caller.task(), ", ", request.process(), "]: ", text...));
  };
  if (request.version() != TUTTI_VERSION_STRING) {
    return refuse(ErrorCode::kFailedPrecondition, "built with Tutti ", request.version(),
                  ", the leader with ", TUTTI_VERSION_STRING, "; build all tasks alike");
  }
  if (auto failure = wrong_cluster(caller)) {
    return refuse(ErrorCode::kFailedPrecondition, failure->message(), "; the task's has ",
                  request.cluster());
  }
  const auto found = members_.find(caller.task());
  if (found == members_.end()) {
    return refuse(ErrorCode::kInvalidArgument, "no task of this cluster, which has ",
                  summary_of(options_.cluster));
  }
  if (caller.generation() != 0 && caller.generation() != options_.generation) {
    return refuse(ErrorCode::kFailedPrecondition, "of generation ", caller.generation(),
                  ", the service is generation ", options_.generation,
                  "; end the tasks of the older one");
  }
  if (root_) return root_;
  // Who comes after the end is early for the next start of the job.
  if (stopped_ || all_leave_) return refuse(ErrorCode::kUnavailable, "the service has ended");
  const Member& member = found->second;
  if (member.state == TaskState::kAwaited) return std::nullopt;
  if (caller.incarnation() < member.incarnation) {
    return refuse(ErrorCode::kFailedPrecondition, "incarnation ", caller.incarnation(),
                  " is older than incarnation ", member.incarnation, " (", member.process,
                  "), which came after it; end the older process");
  }
  const bool same = caller.incarnation() == member.incarnation;
  if (member.state == TaskState::kJoined && !same) {
    return refuse(ErrorCode::kAlreadyExists, "incarnation ", caller.incarnation(),
                  ", but the task is held by incarnation ", member.incarnation, " (",
                  member.process, "), which is alive; give each process its own task index");
  }
  if (member.state != TaskState::kJoined && same) {
    return refuse(ErrorCode::kFailedPrecondition, "incarnation ", caller.incarnation(), " has ",
                  to_string(member.state), " before; start the task anew");
  }
  return std::nullopt;
}

std::optional<v1::Failure> Coordinator::refusal(const v1::Caller& caller) {
  if (auto failure = wrong_cluster(caller)) return failure;
  const auto found = members_.find(caller.task());
  if (found == members_.end()) {
    return make_failure(
        ErrorCode::kInvalidArgument,
        cat(caller.task(), ": no task of this cluster, which has ", summary_of(options_.cluster)));
  }
  if (caller.generation() != options_.generation) {
    return make_failure(ErrorCode::kFailedPrecondition,
                        cat(caller.task(), " is of generation ", caller.generation(),
                            ", the service is generation ", options_.generation,
                            "; end the tasks of the older one"));
  }
  const Member& member = found->second;
  if (member.incarnation != caller.incarnation() || member.state == TaskState::kAwaited) {
    return make_failure(ErrorCode::kFailedPrecondition,
                        cat(caller.task(), ": incarnation ", caller.incarnation(),
                            " does not hold the task, incarnation ", member.incarnation, " (",
                            member.process, ") does; join first, or end the older process"));
  }
  if (root_) return root_;
  if (stopped_) return make_failure(ErrorCode::kUnavailable, "the service has ended", leader_);
  if (member.state != TaskState::kJoined) {
    return make_failure(ErrorCode::kFailedPrecondition,
                        cat(caller.task(), " has ", to_string(member.state), " before"));
  }
  return std::nullopt;
}

uint64_t Coordinator::join(const v1::JoinRequest& request, std::shared_ptr<Listener> listener) {
  MutexLock lock(mutex_);
  v1::Event event;
  if (auto failure = refusal(request)) {
    log_debug("coordination: refused: ", failure->message());
    *event.mutable_failure() = *failure;
    listener->on_event(event);
    listener->on_end(nullptr);
    return 0;
  }
  Member& member = members_[request.caller().task()];
  if (member.listener) member.listener->on_end(nullptr);  // the same incarnation, reconnected
  member.state = TaskState::kJoined;
  member.incarnation = request.caller().incarnation();
  member.session = ++sessions_;
  member.listener = std::move(listener);
  member.process = request.process();
  member.progress.Clear();
  member.last_heard = member.last_moved = options_.now();
  v1::Admission& admission = *event.mutable_admission();
  admission.set_generation(options_.generation);
  admission.set_process(this_process());
  admission.mutable_limits()->set_heartbeat_interval_ms(options_.limits.heartbeat_interval.count());
  admission.mutable_limits()->set_ping_limit_ms(options_.limits.ping_limit.count());
  member.listener->on_event(event);
  changed_.notify_all();
  return member.session;
}

void Coordinator::disconnected(uint64_t session) {
  MutexLock lock(mutex_);
  for (const auto& [task, member] : members_) {
    if (member.session != session || member.state != TaskState::kJoined) continue;
    lose(task, ErrorCode::kUnavailable, "its connection closed before it left");
    return;
  }
}

std::string Coordinator::described(const std::string& task) {
  const Member& member = members_.at(task);
  if (member.state != TaskState::kJoined || !member.progress.watched())
    return cat(task, " (", to_string(member.state), ")");
  return cat(task, " (step ", member.progress.step(), ", phase \"", member.progress.phase(), "\"",
             member.progress.waiting() ? ", waiting" : "", ")");
}

void Coordinator::lose(const std::string& task, ErrorCode code, const std::string& how) {
  Member& member = members_.at(task);
  const std::string text = cat(described(task), ", ", member.process, ": ", how);
  member.state = TaskState::kLost;
  const std::shared_ptr<Listener> listener = std::move(member.listener);
  answer_waiters([&](const Waiter& waiter) { return waiter.task == task; },
                 reply_of(make_failure(ErrorCode::kCancelled, text, task)));
  for (auto at = suspicions_.begin(); at != suspicions_.end();) {
    if (at->failure.task() != task) {
      ++at;
      continue;
    }
    at->done(reply_of(make_failure(ErrorCode::kCancelled, text, task)));
    at = suspicions_.erase(at);
  }
  const bool fatal = options_.recoverable_jobs.count(job_of(task)) == 0;
  v1::Event event;
  *event.mutable_failure() = make_failure(code, cat("lost ", text), task, true);
  if (listener) {
    listener->on_event(event);
    listener->on_end(nullptr);
  }
  changed_.notify_all();
  if (root_) {
    log_debug("coordination: after the job's end, lost ", text);
  } else if (fatal) {
    end_job(make_failure(code, text, task));
  } else {
    log_warning("coordination: lost ", text, "; the others go on, and it may join anew");
  }
}

void Coordinator::end_job(v1::Failure failure) {
  if (root_) {
    log_info("coordination: after that, ", failure.task(), ": ", failure.message());
    return;
  }
  failure.set_ends_the_job(true);
  failure.set_message(cat(failure.task(), " failed first: ", failure.message()));
  root_ = failure;
  log_warning("coordination: the job ends: ", failure.message());
  answer_waiters([](const Waiter&) { return true; }, reply_of(failure));
  for (Suspicion& suspicion : suspicions_) suspicion.done(reply_of(failure));
  suspicions_.clear();
  v1::Event event;
  *event.mutable_failure() = failure;
  for (auto& [task, member] : members_) {
    if (member.listener) member.listener->on_event(event);
  }
  changed_.notify_all();
}

void Coordinator::leave(const std::string& task) {
  Member& member = members_.at(task);
  if (member.state != TaskState::kJoined) return;
  member.state = TaskState::kLeft;
  if (member.listener) member.listener->on_end(nullptr);
  member.listener.reset();
  std::vector<Barriers::Key> open;
  for (const auto& [key, round] : barriers_.open_rounds()) open.push_back(key);
  for (const auto& key : open) settle(key);
  changed_.notify_all();
}

bool Coordinator::wait_until_all_left(Milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  for (;;) {
    bool any = false;
    for (const auto& [task, member] : members_) any |= member.state == TaskState::kJoined;
    if (!any) return true;
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) return false;
  }
}

void Coordinator::stop(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    bool any = false;
    for (const auto& [task, member] : members_) any |= member.state == TaskState::kJoined;
    if (any && !root_) {
      end_job(make_failure(ErrorCode::kCancelled, cat("the leader's service stopped: ", reason),
                           leader_));
    }
    stopped_ = true;
    const v1::Reply reply =
        reply_of(make_failure(ErrorCode::kCancelled, "the service stopped", leader_));
    answer_waiters([](const Waiter&) { return true; }, reply);
    for (Suspicion& suspicion : suspicions_) suspicion.done(v1::Reply(reply));
    suspicions_.clear();
    for (auto& [task, member] : members_) {
      if (member.listener) member.listener->on_end(nullptr);
      member.listener.reset();
    }
    changed_.notify_all();
  }
  if (!ticker_.joinable()) return;
  ticker_.request_stop();
  {
    MutexLock lock(mutex_);  // the ticker is before its look at the stop, or in its wait
    changed_.notify_all();
  }
  ticker_.join();
}

std::optional<v1::Failure> Coordinator::root_cause() {
  MutexLock lock(mutex_);
  return root_;
}

}  // namespace tutti::coordination
