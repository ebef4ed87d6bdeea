#include "coordination/cluster.h"

#include <unistd.h>

#include "base/environment.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

uint64_t fnv(uint64_t hash, const std::string& text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return (hash ^ 0xff) * 0x100000001b3ull;  // an end that no text contains
}

}  // namespace

Limits Limits::from_environment() {
  constexpr int64_t kDay = 24 * 3600 * 1000;
  const auto read = [](const char* name, Milliseconds fallback, int64_t low) {
    return Milliseconds(environment_int(name, fallback.count(), low, kDay));
  };
  Limits limits;
  limits.ping_limit = read("TUTTI_PING_LIMIT_MS", limits.ping_limit, 20);
  limits.heartbeat_interval =
      read("TUTTI_HEARTBEAT_MS", std::min(limits.heartbeat_interval, limits.ping_limit / 5), 1);
  limits.progress_limit = read("TUTTI_PROGRESS_LIMIT_MS", limits.progress_limit, 20);
  if (limits.ping_limit < 2 * limits.heartbeat_interval) {
    throw InvalidArgument(
        cat("Limits [TUTTI_PING_LIMIT_MS]: ", limits.ping_limit.count(),
            " ms with a heartbeat every ", limits.heartbeat_interval.count(),
            " ms, expected at least twice as long; set TUTTI_HEARTBEAT_MS lower"));
  }
  return limits;
}

const char* to_string(TaskState state) {
  switch (state) {
    case TaskState::kAwaited:
      return "never joined";
    case TaskState::kJoined:
      return "joined";
    case TaskState::kLeft:
      return "left";
    case TaskState::kLost:
      return "lost";
  }
  return "unknown";
}

std::string task_name(const std::string& job, int index) { return cat(job, ":", index); }

std::vector<std::string> tasks_of(const Cluster& cluster) {
  std::vector<std::string> tasks;
  const auto add = [&](const std::string& job, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) tasks.push_back(task_name(job, static_cast<int>(i)));
  };
  if (const auto chief = cluster.find("chief"); chief != cluster.end())
    add("chief", chief->second.size());
  for (const auto& [job, addresses] : cluster) {
    if (job != "chief") add(job, addresses.size());
  }
  return tasks;
}

std::vector<std::string> members_of(const Cluster& cluster) {
  Cluster members = cluster;
  members.erase("evaluator");
  return tasks_of(members);
}

std::string leader_of(const Cluster& cluster) {
  for (const char* job : {"chief", "worker"}) {
    const auto found = cluster.find(job);
    if (found != cluster.end() && !found->second.empty()) return task_name(job, 0);
  }
  const auto tasks = tasks_of(cluster);
  if (tasks.empty()) throw InvalidArgument("cluster: no tasks, expected at least one");
  return tasks.front();
}

const std::string& address_of(const Cluster& cluster, const std::string& task) {
  const auto colon = task.rfind(':');
  const auto job = cluster.find(task.substr(0, colon));
  if (colon != std::string::npos && job != cluster.end()) {
    for (std::size_t i = 0; i < job->second.size(); ++i) {
      if (task == task_name(job->first, static_cast<int>(i))) return job->second[i];
    }
  }
  throw InvalidArgument(
      cat("cluster [", summary_of(cluster), "]: no task ", task, "; name one of the cluster"));
}

uint64_t cluster_hash(const Cluster& cluster) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const auto& [job, addresses] : cluster) {
    hash = fnv(hash, job);
    hash = fnv(hash, std::to_string(addresses.size()));
    for (const std::string& address : addresses) hash = fnv(hash, address);
  }
  return hash;
}

std::string summary_of(const Cluster& cluster) {
  std::vector<std::string> jobs;
  for (const auto& [job, addresses] : cluster) jobs.push_back(cat(job, " ", addresses.size()));
  return join(jobs, ", ");
}

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return cat("pid ", ::getpid(), " on ", host);
}

uint64_t new_incarnation() {
  // By the clock, so that a later one is greater; the process' number parts those of one instant.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return (static_cast<uint64_t>(micros) << 12) | (static_cast<uint64_t>(::getpid()) & 0xfff);
}

}  // namespace tutti::coordination
