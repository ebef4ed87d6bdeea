#include "distribute/membership.h"

#include <limits>

#include "base/environment.h"
#include "base/error_file.h"
#include "rpc/security.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::distribute {
namespace {

using coordination::JobFailure;
using coordination::Milliseconds;

const char* const kStartBarrier = "tutti/start";
constexpr Milliseconds kLeaveTogether{10'000};
/// For the others to hear what ended the job before the leader's service goes.
constexpr Milliseconds kLastEvents{500};

uint64_t generation_from_environment() {
  return static_cast<uint64_t>(
      environment_int("TUTTI_GENERATION", 0, 0, std::numeric_limits<int64_t>::max()));
}

[[noreturn]] void throw_ended(const JobFailure& failure) {
  throw_error(failure.code,
              cat(failure.message, "; the job ended: restart it from its last checkpoint"));
}

}  // namespace

ErrorCode code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.code();
  } catch (...) {
    return ErrorCode::kInternal;
  }
}

Membership::Membership(const MembershipOptions& options) {
  try {
    start(options);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    std::optional<JobFailure> earlier;
    if (agent_) earlier = agent_->failure();
    if (agent_) fail(code_of(error), message_of(error));
    record_error(message_of(error));
    leave(false);
    if (earlier) throw_ended(*earlier);
    throw;
  }
}

void Membership::start(const MembershipOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const uint64_t generation = generation_from_environment();
  const rpc::Security security = rpc::Security::from_environment();
  if (coordination::leader_of(options.cluster) == options.task) {
    service_ = std::make_unique<coordination::CoordinationService>(
        coordination::ServiceOptions{.cluster = options.cluster,
                                     .security = security,
                                     .generation = generation,
                                     .limits = coordination::Limits::from_environment()});
  }
  agent_ = std::make_shared<coordination::CoordinationAgent>(
      coordination::AgentOptions{.cluster = options.cluster,
                                 .task = options.task,
                                 .security = security,
                                 .generation = generation,
                                 .join_timeout = options.timeout});
  agent_->on_failure([](const JobFailure& failure) { record_error(failure.message); });
  last_words_ = std::make_unique<LastWords>([this](const std::string& message) {
    fail(ErrorCode::kInternal, cat("an exception that nobody caught: ", message));
    if (!service_) return;
    agent_->leave(kLastEvents, /*together=*/false);  // or the service would wait for it
    service_->shutdown(kLastEvents);
  });
  const auto spent =
      std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began);
  agent_->barrier(kStartBarrier, {.timeout = std::max(options.timeout - spent, Milliseconds(100))});
}

Membership::~Membership() { leave(false); }

JobFailure Membership::fail(ErrorCode code, const std::string& message) {
  JobFailure failure = agent_->report_error(code, message);
  record_error(failure.message);
  return failure;
}

void Membership::throw_failure(ErrorCode code, const std::string& message) {
  throw_ended(fail(code, message));
}

std::optional<JobFailure> Membership::wait_for_failure(Milliseconds timeout) {
  return agent_->wait_for_failure(timeout);
}

void Membership::on_failure(std::function<void(const std::string& message)> action) {
  agent_->on_failure(
      [action = std::move(action)](const JobFailure& failure) { action(failure.message); });
}

void Membership::leave(bool together) noexcept {
  if (left_) return;
  left_ = true;
  try {
    last_words_.reset();
    if (agent_) agent_->leave(kLeaveTogether, together);
  } catch (const std::exception& error) {
    log_warning("leaving the cluster: ", error.what());
  }
  try {
    if (service_) service_->shutdown(together ? kLeaveTogether : kLastEvents);
  } catch (const std::exception& error) {
    log_warning("ending the coordination service: ", error.what());
  }
  agent_.reset();
}

}  // namespace tutti::distribute
