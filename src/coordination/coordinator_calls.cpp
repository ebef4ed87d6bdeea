// What tasks ask of the coordinator.
#include <algorithm>

#include "coordination/coordinator.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

constexpr std::size_t kRememberedCalls = 64;
constexpr std::size_t kMostNameBytes = 256;
constexpr std::size_t kMostMessageBytes = 16 << 10;

/// Errors that a peer's failure brings about as a rule: the peer's own comes before them.
bool may_be_a_consequence(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
         code == ErrorCode::kAborted || code == ErrorCode::kCancelled;
}

bool is_known(int code) {
  return code >= static_cast<int>(ErrorCode::kCancelled) && code != 2 &&
         code <= static_cast<int>(ErrorCode::kUnauthenticated);
}

v1::Reply reply_of(const Error& error) {
  return coordination::reply_of(make_failure(error.code(), error.what()));
}

}  // namespace

void Coordinator::call(const v1::Request& request, Done done) {
  MutexLock lock(mutex_);
  const auto failure = refusal(request.caller());
  const bool leaving = request.verb_case() == v1::Request::kLeave;
  // Who knows of the job's end leaves in order all the same.
  if (failure && !(leaving && failure->ends_the_job())) {
    done(coordination::reply_of(*failure));
    return;
  }
  members_.at(request.caller().task()).last_heard = options_.now();
  try {
    dispatch(request, done);
  } catch (const Error& error) {
    v1::Reply reply = reply_of(error);
    remember(request.caller(), reply);
    done(std::move(reply));
  }
}

void Coordinator::dispatch(const v1::Request& request, Done done) {
  const v1::Caller& caller = request.caller();
  v1::Reply reply;
  switch (request.verb_case()) {
    case v1::Request::kHeartbeat:
      heartbeat(caller.task(), request.heartbeat().progress());
      break;
    case v1::Request::kBarrier:
      return barrier(caller.task(), request.barrier(), std::move(done));
    case v1::Request::kSet:
      if (answer_again(caller, done)) return;
      set(request.set());
      remember(caller, reply);
      break;
    case v1::Request::kGet:
      return get(caller.task(), request.get(), std::move(done));
    case v1::Request::kErase:
      if (answer_again(caller, done)) return;
      reply.set_count(store_.erase(request.erase().key(), request.erase().prefix()));
      remember(caller, reply);
      break;
    case v1::Request::kAdd:
      if (answer_again(caller, done)) return;
      reply.set_count(store_.add(request.add().key(), request.add().delta()));
      remember(caller, reply);
      break;
    case v1::Request::kList:
      reply = list(request.list());
      break;
    case v1::Request::kReportError:
      return report(caller.task(), request.report_error(), std::move(done));
    case v1::Request::kLeave:
      leave(caller.task());
      break;
    case v1::Request::kTaskStates:
      reply = states();
      break;
    case v1::Request::VERB_NOT_SET:
      throw Unimplemented(
          cat("call [", caller.task(), "]: a verb that this version of the service does not know"));
  }
  done(std::move(reply));
}

bool Coordinator::answer_again(const v1::Caller& caller, const Done& done) {
  for (const auto& [sequence, reply] : members_.at(caller.task()).answered) {
    if (sequence != caller.sequence()) continue;
    done(v1::Reply(reply));
    return true;
  }
  return false;
}

void Coordinator::remember(const v1::Caller& caller, const v1::Reply& reply) {
  auto& answered = members_.at(caller.task()).answered;
  answered.emplace_back(caller.sequence(), reply);
  if (answered.size() > kRememberedCalls) answered.pop_front();
}

void Coordinator::heartbeat(const std::string& task, const v1::Progress& progress) {
  Member& member = members_.at(task);
  const v1::Progress& before = member.progress;
  const bool moved = before.watched() != progress.watched() || before.step() != progress.step() ||
                     before.phase() != progress.phase() || before.reports() != progress.reports() ||
                     before.waiting() != progress.waiting();
  if (moved) member.last_moved = options_.now();
  // Another limit counts from now on, which the ticker does not wait for yet.
  if (before.watched() != progress.watched() || before.waiting() != progress.waiting())
    changed_.notify_all();
  member.progress = progress;
}

std::set<std::string> Coordinator::participants(const std::string& task,
                                                const v1::Barrier& request) {
  std::set<std::string> tasks(request.tasks().begin(), request.tasks().end());
  if (tasks.empty()) {
    const auto all = members_of(options_.cluster);
    tasks.insert(all.begin(), all.end());
  }
  for (const std::string& one : tasks) {
    if (members_.count(one)) continue;
    throw InvalidArgument(cat("barrier \"", request.name(), "\" [", task, "]: task ", one,
                              " is not of this cluster, which has ", summary_of(options_.cluster)));
  }
  if (!tasks.count(task)) {
    throw InvalidArgument(cat("barrier \"", request.name(), "\" [", task,
                              "]: entered by a task that does not take part, expected one of ",
                              tutti::join(tasks, ", ")));
  }
  return tasks;
}

void Coordinator::barrier(const std::string& task, const v1::Barrier& request, Done done) {
  if (request.name().empty() || request.name().size() > kMostNameBytes || request.round() == 0) {
    throw InvalidArgument(cat("barrier [", task, "]: a name of ", request.name().size(),
                              " bytes and round ", request.round(), ", expected 1 to ",
                              kMostNameBytes, " bytes and a round from 1"));
  }
  const Barriers::Key key{request.name(), request.round()};
  if (barriers_.outcome(key) == Barriers::Outcome::kOpen) {
    const TimePoint now = options_.now();
    BarrierRound& round =
        barriers_.open(key, participants(task, request), request.departed_count());
    round.arrived.insert(task);
    // Whoever gives up first ends it for all: without that task it cannot be complete.
    round.deadline = std::min(
        round.deadline,
        now + Milliseconds(std::clamp<int64_t>(request.timeout_ms(), 0, int64_t{1} << 40)));
    const auto slice = Milliseconds(std::clamp<int64_t>(request.slice_ms(), 0, 60'000));
    waiters_.push_back({task, key, now + slice, std::move(done)});
    settle(key);
    changed_.notify_all();
    return;
  }
  v1::Reply reply;
  if (barriers_.outcome(key) == Barriers::Outcome::kFailed) {
    const BarrierFailure& failure = barriers_.failure(key);
    *reply.mutable_failure() = make_failure(failure.code, failure.message);
  }
  done(std::move(reply));
}

/// Ends the round if it is complete, can no more be, or is over its deadline.
void Coordinator::settle(const Barriers::Key& key) {
  BarrierRound& round = barriers_.open_rounds().at(key);
  std::vector<std::string> gone;
  bool complete = true;
  for (const std::string& task : round.tasks) {
    if (round.arrived.count(task)) continue;
    const bool left = members_.at(task).state == TaskState::kLeft;
    if (left && !round.departed_count) gone.push_back(task);
    complete &= left && round.departed_count;
  }
  const std::string name = cat("barrier \"", key.first, "\"");
  if (complete) {
    all_leave_ |= key.first == kLeaveBarrier;
    barriers_.complete(key);
    answer_waiters([&](const Waiter& waiter) { return waiter.what == key; }, {});
  } else if (!gone.empty()) {
    fail_barrier(key, ErrorCode::kFailedPrecondition,
                 cat(name, ": ", tutti::join(gone, ", "),
                     " left before, expected to arrive; name the tasks that take part"));
  } else if (round.deadline <= options_.now()) {
    fail_barrier(key, ErrorCode::kDeadlineExceeded,
                 cat(name, ": ", round.arrived.size(), " of ", round.tasks.size(),
                     " tasks in time, missing ", tutti::join(missing(round), ", "),
                     "; read the logs of those, or raise the time limit"));
  }
}

void Coordinator::fail_barrier(const Barriers::Key& key, ErrorCode code,
                               const std::string& message) {
  barriers_.fail(key, {code, message});
  answer_waiters([&](const Waiter& waiter) { return waiter.what == key; },
                 coordination::reply_of(make_failure(code, message)));
}

std::vector<std::string> Coordinator::missing(const BarrierRound& round) {
  std::vector<std::string> texts;
  for (const std::string& task : round.tasks) {
    if (!round.arrived.count(task)) texts.push_back(described(task));
  }
  return texts;
}

void Coordinator::answer_waiters(const std::function<bool(const Waiter&)>& chosen,
                                 const v1::Reply& reply) {
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    if (!chosen(*at)) {
      ++at;
      continue;
    }
    at->done(v1::Reply(reply));
    at = waiters_.erase(at);
  }
}

void Coordinator::set(const v1::Set& request) {
  store_.set(request.key(), request.value(), request.overwrite());
  v1::Reply reply;
  reply.set_value(request.value());
  const Barriers::Key what{request.key(), 0};
  answer_waiters([&](const Waiter& waiter) { return waiter.what == what; }, reply);
}

void Coordinator::get(const std::string& task, const v1::Get& request, Done done) {
  if (const std::string* value = store_.find(request.key())) {
    v1::Reply reply;
    reply.set_value(*value);
    return done(std::move(reply));
  }
  if (request.slice_ms() <= 0) {
    throw NotFound(cat("get [\"", request.key(), "\"]: no value, expected one that was set"));
  }
  const auto slice = Milliseconds(std::min<int64_t>(request.slice_ms(), 60'000));
  waiters_.push_back({task, {request.key(), 0}, options_.now() + slice, std::move(done)});
  changed_.notify_all();
}

v1::Reply Coordinator::list(const v1::List& request) {
  v1::Reply reply;
  for (auto& [key, value] : store_.list(request.prefix())) {
    v1::Entry& entry = *reply.add_entries();
    entry.set_key(key);
    entry.set_value(std::move(value));
  }
  return reply;
}

v1::Reply Coordinator::states() {
  v1::Reply reply;
  for (const std::string& task : tasks_of(options_.cluster)) {
    const Member& member = members_.at(task);
    v1::TaskStatus& status = *reply.add_tasks();
    status.set_task(task);
    status.set_state(static_cast<int>(member.state));
    *status.mutable_progress() = member.progress;
  }
  return reply;
}

void Coordinator::report(const std::string& task, const v1::ReportError& request, Done done) {
  const ErrorCode code =
      is_known(request.code()) ? static_cast<ErrorCode>(request.code()) : ErrorCode::kInternal;
  v1::Failure failure = make_failure(
      code, cat(described(task), ": ", request.message().substr(0, kMostMessageBytes)), task);
  suspicions_.push_back({failure, options_.now() + options_.limits.blame_grace, std::move(done)});
  if (!may_be_a_consequence(code)) end_job(std::move(failure));
  changed_.notify_all();
}

}  // namespace tutti::coordination
