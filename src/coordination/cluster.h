#pragma once
// The tasks of a cluster, by name: "worker:1".

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti::coordination {

/// Job to addresses, as ClusterSpec::as_dict() gives it.
using Cluster = std::map<std::string, std::vector<std::string>>;

using Milliseconds = std::chrono::milliseconds;

/// Which all tasks enter before they leave.
inline constexpr const char* kLeaveBarrier = "tutti/leave";

/// How long who is believed to be alive. The leader's count, and every task hears them from it.
struct Limits {
  Milliseconds heartbeat_interval{1000};
  Milliseconds ping_limit{15'000};      // without a heartbeat: frozen
  Milliseconds progress_limit{60'000};  // with heartbeats, but at one step and phase: stuck
  Milliseconds blame_grace{250};  // how long an error that a peer's may have caused waits for that

  /// With TUTTI_HEARTBEAT_MS, TUTTI_PING_LIMIT_MS and TUTTI_PROGRESS_LIMIT_MS where they are set.
  /// Throws InvalidArgument for what is no number of milliseconds, and for a ping limit below two
  /// heartbeats.
  static Limits from_environment();
};

enum class TaskState { kAwaited = 0, kJoined = 1, kLeft = 2, kLost = 3 };
const char* to_string(TaskState state);

std::string task_name(const std::string& job, int index);

/// All tasks, jobs in the order of their names but "chief" first.
std::vector<std::string> tasks_of(const Cluster& cluster);
/// The tasks that enter a barrier which names none: all but evaluators.
std::vector<std::string> members_of(const Cluster& cluster);
/// chief:0, else worker:0, else the first task. Throws InvalidArgument for an empty cluster.
std::string leader_of(const Cluster& cluster);
/// Throws InvalidArgument when the cluster has no such task.
const std::string& address_of(const Cluster& cluster, const std::string& task);

/// A number that differs when a job, a task or an address does. Not a secret, and no proof.
uint64_t cluster_hash(const Cluster& cluster);
/// "chief 1, worker 4", for messages.
std::string summary_of(const Cluster& cluster);

/// "pid 4711 on host".
std::string this_process();

/// A number above those of earlier incarnations, on this host at least.
uint64_t new_incarnation();

}  // namespace tutti::coordination
