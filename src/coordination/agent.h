#pragma once
// One task's part in the coordination of its cluster.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordination/cluster.h"
#include "rpc/security.h"
#include "tutti/base/error.h"

namespace tutti::coordination {

class Coordinator;
class Link;

/// What ended the job: the first error of any task.
struct JobFailure {
  ErrorCode code;
  std::string task;  // where it began
  std::string message;
};

struct AgentOptions {
  Cluster cluster;
  std::string task;                 // "worker:1"
  std::string leader_address = {};  // empty: what the cluster says of its leader
  rpc::Security security = {};
  uint64_t generation = 0;   // 0: whichever the leader has
  uint64_t incarnation = 0;  // 0: made here
  Milliseconds join_timeout{600'000};
  Milliseconds say_every{5000};  // while something is waited for
};

struct BarrierOptions {
  Milliseconds timeout{600'000};
  std::vector<std::string> tasks = {};  // that take part; empty: all but evaluators
};

struct TaskInfo {
  std::string task;
  TaskState state;
  int64_t step;
  std::string phase;
};

/// From the constructor on the task is in: it sends heartbeats, and its end without leave() ends
/// the job. The first error in time of any task reaches all: from then on every call, and those
/// that wait, throw it, under its own code. Any thread may call; calls of several threads wait side
/// by side. Beside that first error calls throw InvalidArgument (a name, a key), DeadlineExceeded,
/// NotFound, AlreadyExists and ResourceExhausted, after which all goes on.
class CoordinationAgent {
 public:
  /// Joins over gRPC, waiting for the leader to come up. Throws DeadlineExceeded when it does not,
  /// FailedPrecondition or AlreadyExists when the leader refuses this task, Unauthenticated.
  explicit CoordinationAgent(const AgentOptions& options);
  /// Joins a coordinator of this process, which must outlive this.
  CoordinationAgent(const AgentOptions& options, Coordinator& coordinator);
  /// Without leave() before it, the others hear that this task is lost. Waits for nobody.
  ~CoordinationAgent();

  const std::string& task() const;
  /// Of the job: greater after each restart of its leader.
  uint64_t generation() const;
  uint64_t incarnation() const;

  /// Says that this task moves. From the first call on, the leader ends the job when a task stays
  /// at one step and phase for longer than its progress limit without a further call. A phase that
  /// waits for other tasks says so, and is not blamed for them. Costs a lock and a short copy.
  void report_progress(int64_t step, std::string_view phase, bool waiting = false);

  /// While `on` is called more often with true than with false, this task counts as moving as long
  /// as its heartbeats come: for work whose length nobody knows, such as a disk's.
  void count_as_moving(bool on);

  /// Returns when all tasks that take part have entered the barrier of that name as often as this
  /// one. DeadlineExceeded names the tasks that are missing, on all that wait.
  void barrier(const std::string& name, const BarrierOptions& options = {});

  void set(const std::string& key, std::string_view value, bool overwrite = true);
  /// Waits until the key has a value.
  std::string get(const std::string& key, Milliseconds timeout);
  std::optional<std::string> try_get(const std::string& key);
  /// Adds to a counter that begins at 0, all at once, and returns the sum. A counter is no value of
  /// get(), try_get() or list(). OutOfRange when the sum is no int64.
  int64_t add(const std::string& key, int64_t delta);
  /// Returns how many keys went: `key`, or all that begin with it.
  int64_t erase(const std::string& key, bool prefix = false);
  std::vector<std::pair<std::string, std::string>> list(const std::string& prefix);
  std::vector<TaskInfo> task_states();

  /// Ends the job with this task's error, and returns what ended it: this one, or an earlier. An
  /// error that a peer's failure may have caused (Unavailable, DeadlineExceeded, Aborted,
  /// Cancelled) waits a moment for that to be heard of.
  JobFailure report_error(ErrorCode code, const std::string& message);
  /// What ended the job, if anything did.
  std::optional<JobFailure> failure() const;
  /// Throws it. `operation` begins the message.
  void check(std::string_view operation) const;
  /// Waits for it.
  std::optional<JobFailure> wait_for_failure(Milliseconds timeout) const;
  /// Calls `action` once when the job ends by an error, from a thread of the agent's own. It may
  /// abort what others wait in; it must not destroy the agent.
  void on_failure(std::function<void(const JobFailure&)> action);

  /// The orderly end: waits until all tasks are about to leave, then leaves. After a failure, or
  /// with `together` false, it leaves at once. No other call may follow but failure().
  void leave(Milliseconds timeout, bool together = true);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::coordination
