#include "coordination/agent_impl.h"

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::coordination {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kBetweenAttempts{50};
constexpr int kMostLostHeartbeats = 3;

int64_t seconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count();
}

Milliseconds until(Clock::time_point end) {
  return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(end - Clock::now()));
}

JobFailure job_failure(const v1::Failure& failure) {
  return {static_cast<ErrorCode>(failure.code()), failure.task(), failure.message()};
}

/// The leader may come up later, or again.
bool may_pass(int code) {
  return code == static_cast<int>(ErrorCode::kUnavailable) ||
         code == static_cast<int>(ErrorCode::kDeadlineExceeded) ||
         code == static_cast<int>(ErrorCode::kCancelled);
}

}  // namespace

CoordinationAgent::Impl::Impl(const AgentOptions& options, std::unique_ptr<Link> link)
    : options_(options),
      leader_(leader_of(options.cluster)),
      hash_(cluster_hash(options.cluster)),
      incarnation_(options.incarnation != 0 ? options.incarnation : new_incarnation()),
      generation_(options.generation),
      link_(std::move(link)) {
  address_of(options_.cluster, options_.task);
  try {
    join();
  } catch (...) {
    link_->close();
    throw;
  }
  heart_ = std::jthread([this](std::stop_token stop) { beat(stop); });
}

CoordinationAgent::Impl::~Impl() {
  heart_.request_stop();
  {
    MutexLock lock(mutex_);  // the heart is before its look at the stop, or in its wait
    leaving_ = true;
    changed_.notify_all();
  }
  heart_.join();
  link_->close();
}

// --- joining -----------------------------------------------------------------------------------

v1::Caller CoordinationAgent::Impl::caller() {
  v1::Caller caller;
  caller.set_cluster_hash(hash_);
  caller.set_generation(generation_);
  caller.set_task(options_.task);
  caller.set_incarnation(incarnation_);
  caller.set_sequence(++sequence_);
  return caller;
}

void CoordinationAgent::Impl::join() {
  v1::JoinRequest request;
  *request.mutable_caller() = caller();
  request.set_cluster(summary_of(options_.cluster));
  request.set_version(TUTTI_VERSION_STRING);
  request.set_process(this_process());
  const auto start = Clock::now();
  const auto end = start + options_.join_timeout;
  auto say_at = start + options_.say_every;
  const std::string operation = cat("join [", options_.task, "]");
  while (!try_to_join(request, std::min(end, say_at))) {
    std::string reason = "no answer";
    {
      MutexLock lock(mutex_);
      if (refusal_) reason = refusal_->message();
    }
    const auto now = Clock::now();
    if (now >= end) {
      throw DeadlineExceeded(cat(operation, ": leader ", leader_, " at ", link_->address(),
                                 " did not let this task in within ", options_.join_timeout.count(),
                                 " ms: ", reason,
                                 "; start it, or compare its address and credentials"));
    }
    if (now >= say_at) {
      log_info(operation, ": waiting for leader ", leader_, " at ", link_->address(), " for ",
               seconds_since(start), " s: ", reason);
      say_at = now + options_.say_every;
    }
  }
}

/// True when let in; false when it may be tried again. Throws for good when refused.
bool CoordinationAgent::Impl::try_to_join(const v1::JoinRequest& request, Clock::time_point end) {
  bool under_way = false;
  {
    MutexLock lock(mutex_);
    // An attempt that has had no answer yet goes on.
    under_way = admission_.has_value() || (!stream_ended_ && join_under_way_);
    if (!under_way) {
      refusal_.reset();
      stream_ended_ = false;
      join_under_way_ = true;
    }
  }
  if (!under_way) link_->join(request, *this);
  MutexLock lock(mutex_);
  while (!admission_ && !stream_ended_) {
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
  }
  if (admission_) {
    generation_ = admission_->generation();
    limits_.heartbeat_interval = Milliseconds(admission_->limits().heartbeat_interval_ms());
    limits_.ping_limit = Milliseconds(admission_->limits().ping_limit_ms());
    leader_process_ = admission_->process();
    return true;
  }
  if (!stream_ended_) return false;
  join_under_way_ = false;
  if (!refusal_) refusal_ = make_failure(ErrorCode::kUnavailable, "ended without an answer");
  if (refusal_->ends_the_job()) {
    const JobFailure failure = job_failure(*refusal_);
    throw_failure("join", failure);
  }
  if (!may_pass(refusal_->code()))
    throw_error(static_cast<ErrorCode>(refusal_->code()), refusal_->message());
  changed_.wait_until(mutex_, std::min(end, Clock::now() + kBetweenAttempts));
  return false;
}

void CoordinationAgent::Impl::on_event(const v1::Event& event) {
  MutexLock lock(mutex_);
  if (event.has_admission()) {
    admission_ = event.admission();
  } else if (event.has_failure() && !admission_) {
    refusal_ = event.failure();
  } else if (event.has_failure()) {
    end_job(job_failure(event.failure()));
  }
  changed_.notify_all();
}

void CoordinationAgent::Impl::on_end(const v1::Failure* failure) {
  MutexLock lock(mutex_);
  stream_ended_ = true;
  if (!admission_) {
    if (failure != nullptr && !refusal_) refusal_ = *failure;
  } else if (!leaving_ && !failure_) {
    leader_is_lost(failure != nullptr ? cat("its connection closed (", failure->message(), ")")
                                      : "its service ended");
  }
  changed_.notify_all();
}

// --- the job's end -----------------------------------------------------------------------------

void CoordinationAgent::Impl::end_job(JobFailure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  changed_.notify_all();
}

void CoordinationAgent::Impl::leader_is_lost(const std::string& how) {
  end_job({ErrorCode::kUnavailable, leader_,
           cat(leader_, " failed first: leader at ", link_->address(), ", ", leader_process_, ": ",
               how)});
}

std::optional<JobFailure> CoordinationAgent::Impl::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void CoordinationAgent::Impl::throw_failure(std::string_view operation,
                                            const JobFailure& failure) const {
  throw_error(failure.code, cat(operation, " [", options_.task, "]: ", failure.message,
                                "; the job ended: restart it from its last checkpoint"));
}

void CoordinationAgent::Impl::check(std::string_view operation) const {
  if (const auto failure = this->failure()) throw_failure(operation, *failure);
}

std::optional<JobFailure> CoordinationAgent::Impl::wait_for_failure(Milliseconds timeout) const {
  const auto end = Clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!failure_) {
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
  }
  return failure_;
}

void CoordinationAgent::Impl::on_failure(std::function<void(const JobFailure&)> action) {
  MutexLock lock(mutex_);
  actions_.push_back(std::move(action));
  changed_.notify_all();
}

JobFailure CoordinationAgent::Impl::report_error(ErrorCode code, const std::string& message) {
  if (const auto earlier = failure()) return *earlier;
  v1::Request request;
  request.mutable_report_error()->set_code(static_cast<int>(code));
  request.mutable_report_error()->set_message(message);
  try {
    ask("report_error", request, limits_.ping_limit);
  } catch (const Error& error) {
    if (const auto failure = this->failure()) return *failure;
    return {code, options_.task, cat(message, " (not reported: ", error.what(), ")")};
  }
  if (const auto failure = this->failure()) return *failure;
  return {code, options_.task, message};
}

// --- calls -------------------------------------------------------------------------------------

/// Sends the request and waits for its reply or for the job's end.
v1::Reply CoordinationAgent::Impl::ask(std::string_view operation, v1::Request& request,
                                       Milliseconds timeout) {
  check(operation);
  *request.mutable_caller() = caller();
  auto pending = std::make_shared<Pending>();
  link_->call(request, timeout, [this, pending](bool reached, v1::Reply&& reply) {
    MutexLock lock(mutex_);
    pending->done = true;
    pending->reached = reached;
    pending->reply = std::move(reply);
    if (pending->reply.failure().ends_the_job()) end_job(job_failure(pending->reply.failure()));
    changed_.notify_all();
  });
  MutexLock lock(mutex_);
  while (!pending->done && !failure_) changed_.wait(mutex_);
  if (!failure_ && !pending->reached) {
    // The leader's end closes the stream too; which of the two is noticed first does not matter.
    const v1::Failure& failure = pending->reply.failure();
    if (may_pass(failure.code())) leader_is_lost(cat("no reply (", failure.message(), ")"));
  }
  if (failure_) throw_failure(operation, *failure_);
  if (pending->reply.has_failure()) {
    throw_error(static_cast<ErrorCode>(pending->reply.failure().code()),
                cat(operation, " [", options_.task, "]: ", pending->reply.failure().message()));
  }
  return std::move(pending->reply);
}

v1::Reply CoordinationAgent::Impl::call(std::string_view operation, v1::Request request) {
  return ask(operation, request, limits_.ping_limit);
}

std::optional<v1::Reply> CoordinationAgent::Impl::wait(const std::string& operation,
                                                       v1::Request request, Milliseconds timeout) {
  struct Waiting {
    explicit Waiting(Impl& agent) : impl(agent) {
      MutexLock lock(impl.mutex_);
      ++impl.waits_;
    }
    ~Waiting() {
      MutexLock lock(impl.mutex_);
      --impl.waits_;
    }
    Impl& impl;
  } waiting(*this);
  const auto start = Clock::now();
  const auto end = start + timeout;
  for (;;) {
    const Milliseconds left = until(end);
    const Milliseconds slice = std::min(left, options_.say_every);
    if (request.has_barrier()) {
      request.mutable_barrier()->set_timeout_ms(left.count());
      request.mutable_barrier()->set_slice_ms(slice.count());
    } else {
      request.mutable_get()->set_slice_ms(std::max<int64_t>(1, slice.count()));
    }
    v1::Reply reply = ask(operation, request, slice + limits_.ping_limit);
    if (!reply.pending()) return reply;
    // A barrier's end is the coordinator's to declare: it names the missing to all.
    if (Clock::now() >= end && !request.has_barrier()) return std::nullopt;
    const std::vector<std::string> missing(reply.missing().begin(), reply.missing().end());
    log_info(operation, " [", options_.task, "]: waiting for ", seconds_since(start), " s",
             missing.empty() ? ", not set yet" : cat(", missing ", tutti::join(missing, ", ")));
  }
}

uint64_t CoordinationAgent::Impl::next_round(const std::string& barrier) {
  MutexLock lock(mutex_);
  return ++rounds_[barrier];
}

void CoordinationAgent::Impl::leave(Milliseconds timeout, bool together) {
  if (together && !failure()) {
    v1::Request request;
    request.mutable_barrier()->set_name(kLeaveBarrier);
    request.mutable_barrier()->set_round(next_round(kLeaveBarrier));
    request.mutable_barrier()->set_departed_count(true);
    wait("leave", std::move(request), timeout);
  }
  {
    MutexLock lock(mutex_);
    leaving_ = true;
  }
  v1::Request request;
  *request.mutable_caller() = caller();
  request.mutable_leave();
  auto done = std::make_shared<bool>(false);
  link_->call(request, std::min(timeout, limits_.ping_limit), [this, done](bool, v1::Reply&&) {
    MutexLock lock(mutex_);
    *done = true;
    changed_.notify_all();
  });
  MutexLock lock(mutex_);
  while (!*done) changed_.wait(mutex_);
}

// --- heartbeats --------------------------------------------------------------------------------

void CoordinationAgent::Impl::report_progress(int64_t step, std::string_view phase, bool waiting) {
  MutexLock lock(mutex_);
  watched_ = true;
  step_ = step;
  const std::size_t size = std::min(phase.size(), phase_.size() - 1);
  std::copy_n(phase.begin(), size, phase_.begin());
  phase_[size] = '\0';
  phase_waits_ = waiting;
  ++reports_;
}

void CoordinationAgent::Impl::count_as_moving(bool on) {
  MutexLock lock(mutex_);
  moves_ += on ? 1 : -1;
}

v1::Progress CoordinationAgent::Impl::progress() {
  // A wait here has a deadline of its own, and says for whom it is: it counts as moving.
  if (waits_ > 0 || moves_ > 0) ++reports_;
  v1::Progress progress;
  progress.set_watched(watched_);
  progress.set_step(step_);
  progress.set_phase(phase_.data());
  progress.set_waiting(phase_waits_ || waits_ > 0);
  progress.set_reports(reports_);
  return progress;
}

void CoordinationAgent::Impl::send_heartbeat() {
  v1::Request request;
  {
    MutexLock lock(mutex_);
    if (heartbeat_under_way_ || leaving_ || failure_) return;
    heartbeat_under_way_ = true;
    *request.mutable_heartbeat()->mutable_progress() = progress();
  }
  *request.mutable_caller() = caller();
  link_->call(request, limits_.ping_limit, [this](bool reached, v1::Reply&& reply) {
    MutexLock lock(mutex_);
    heartbeat_under_way_ = false;
    if (leaving_) return;
    if (!reply.has_failure()) {
      lost_heartbeats_ = 0;
      return;
    }
    const v1::Failure& failure = reply.failure();
    if (failure.ends_the_job()) {
      end_job(job_failure(failure));
    } else if (!reached && failure.code() == static_cast<int>(ErrorCode::kDeadlineExceeded) &&
               !stood_still()) {
      leader_is_lost(
          cat("frozen: no answer to a heartbeat for ", limits_.ping_limit.count(), " ms"));
    } else if (reached || ++lost_heartbeats_ == kMostLostHeartbeats) {
      // A call that is cut off is overtaken by the stream, which says why.
      leader_is_lost(cat("a heartbeat failed: ", failure.message()));
    }
  });
}

/// Whether this process itself has not run: then its calls are late by its own fault.
bool CoordinationAgent::Impl::stood_still() {
  return Clock::now() - last_beat_ > limits_.heartbeat_interval + limits_.ping_limit / 4;
}

void CoordinationAgent::Impl::beat(std::stop_token stop) {
  bool told = false;
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex_);
      last_beat_ = Clock::now();
    }
    send_heartbeat();
    std::vector<std::function<void(const JobFailure&)>> actions;
    std::optional<JobFailure> failure;
    {
      MutexLock lock(mutex_);
      const auto next = Clock::now() + limits_.heartbeat_interval;
      while (!stop.stop_requested() && !(failure_ && (!told || !actions_.empty()))) {
        if (changed_.wait_until(mutex_, next) == std::cv_status::timeout) break;
      }
      failure = failure_;
      if (failure) actions.swap(actions_);
    }
    if (failure && !told) {
      log_warning("coordination [", options_.task, "]: ", failure->message);
      told = true;
    }
    for (const auto& action : actions) action(*failure);
  }
}

}  // namespace tutti::coordination
