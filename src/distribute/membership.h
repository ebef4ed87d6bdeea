#pragma once
// This process's place in a job of several: the coordination that knows who lives and what came
// first when something ends.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordination/agent.h"
#include "coordination/service.h"
#include "distribute/last_words.h"

namespace tutti::distribute {

struct MembershipOptions {
  coordination::Cluster cluster;                       // those that take part, and no others
  std::string task;                                    // "worker:1"
  coordination::Milliseconds timeout{10 * 60 * 1000};  // until all are there
};

/// Of the leader's process it is also the coordination service. Limits, credentials and the
/// generation come from the environment: TUTTI_HEARTBEAT_MS, TUTTI_PING_LIMIT_MS,
/// TUTTI_PROGRESS_LIMIT_MS; rpc::Security::from_environment(); TUTTI_GENERATION.
///
/// What ends the job goes into the launcher's error file, and so does an exception that nobody
/// catches, of which the others hear too. Any thread may call.
class Membership {
 public:
  /// Blocks until all tasks are there; says every five seconds for whom. Throws as
  /// CoordinationService, CoordinationAgent and its barrier.
  explicit Membership(const MembershipOptions& options);
  /// leave(false) unless it was called.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  coordination::CoordinationAgent& agent() { return *agent_; }
  /// For who may still have it after leave().
  std::shared_ptr<coordination::CoordinationAgent> shared_agent() const { return agent_; }
  /// As CoordinationAgent's.
  void report_progress(int64_t step, const char* phase, bool waiting) {
    agent_->report_progress(step, phase, waiting);
  }

  /// Ends the job with this error unless it has ended. Returns what ended it.
  coordination::JobFailure fail(ErrorCode code, const std::string& message);
  /// fail(), and throws what ended the job, under its own code: "worker:1 failed first: …".
  [[noreturn]] void throw_failure(ErrorCode code, const std::string& message);
  bool failed() const { return agent_->failure().has_value(); }
  /// Waits for the failure that another task is reporting.
  std::optional<coordination::JobFailure> wait_for_failure(coordination::Milliseconds timeout);
  /// As CoordinationAgent's: `action` runs on a thread of the agent's.
  void on_failure(std::function<void(const std::string& message)> action);

  /// The last call. With `together` it waits, for a short time, until all others leave too;
  /// without, the others hear at once what ended the job, if anything did.
  void leave(bool together) noexcept;

 private:
  void start(const MembershipOptions& options);

  // The agent goes before the service.
  std::unique_ptr<coordination::CoordinationService> service_;  // the leader's
  std::shared_ptr<coordination::CoordinationAgent> agent_;
  std::unique_ptr<LastWords> last_words_;
  bool left_ = false;
};

/// The code of a tutti::Error, kInternal of others.
ErrorCode code_of(const std::exception_ptr& error);

}  // namespace tutti::distribute
