#pragma once
// tf.train.ClusterSpec: who is in a cluster, by job and task.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::train {

/// The tasks of one job: index → address. Made of a list of addresses, or of a map when only some
/// indices are known (a sparse job).
class JobTasks {
 public:
  JobTasks() = default;
  JobTasks(std::vector<std::string> addresses);  // NOLINT: implicit, as a list is a job in Python
  JobTasks(std::initializer_list<std::string> addresses)
      : JobTasks(std::vector<std::string>(addresses)) {}
  JobTasks(std::map<int64_t, std::string> tasks) : tasks_(std::move(tasks)) {}  // NOLINT: likewise
  JobTasks(std::initializer_list<std::pair<const int64_t, std::string>> tasks) : tasks_(tasks) {}

  const std::map<int64_t, std::string>& by_index() const { return tasks_; }
  /// Whether the indices are 0, 1, … without a gap: what prints as a list. False without tasks.
  bool is_dense() const;
  friend bool operator==(const JobTasks&, const JobTasks&) = default;

 private:
  std::map<int64_t, std::string> tasks_;
};

/// Jobs ("chief", "worker", "ps", "evaluator", or names of one's own) and the addresses of their
/// tasks. A value: it never changes, any thread may read it.
///
/// An address is `host:port`: a host name, an IPv4 address or an IPv6 address in brackets, and a
/// port from 0 to 65535, where 0 lets a server choose. A job's name has 1 to 64 letters, digits,
/// `_`, `-` and `.`. No two tasks have the same address (port 0 apart), and there are at most
/// kMostTasks tasks, with indices below that number. Everything else is InvalidArgument, which
/// names the job and the task.
class ClusterSpec {
 public:
  static constexpr int64_t kMostTasks = int64_t{1} << 20;

  ClusterSpec() = default;
  ClusterSpec(std::map<std::string, JobTasks> cluster);  // NOLINT: implicit, as in TensorFlow
  ClusterSpec(std::initializer_list<std::pair<const std::string, JobTasks>> cluster)
      : ClusterSpec(std::map<std::string, JobTasks>(cluster)) {}
  /// From a map of lists or of maps.
  template <class Tasks>
  ClusterSpec(const std::map<std::string, Tasks>& cluster)  // NOLINT: likewise
      : ClusterSpec(std::map<std::string, JobTasks>(cluster.begin(), cluster.end())) {}
  /// From `{"worker": ["a:1", "b:1"], "ps": {"3": "c:1"}}`: at most 1 MiB, no key twice.
  static ClusterSpec from_json(std::string_view text);

  /// Whether there is a job.
  explicit operator bool() const { return !jobs_.empty(); }
  /// The jobs' names, sorted.
  std::vector<std::string> jobs() const;
  bool has_job(const std::string& job_name) const { return jobs_.count(job_name) > 0; }
  /// InvalidArgument from the following for a job that is not there.
  int64_t num_tasks(const std::string& job_name) const;
  /// Sorted.
  std::vector<int64_t> task_indices(const std::string& job_name) const;
  /// InvalidArgument also for an index that the job lacks.
  const std::string& task_address(const std::string& job_name, int64_t task_index) const;
  /// Addresses by index, with "" for an index that a sparse job lacks.
  std::vector<std::string> job_tasks(const std::string& job_name) const;

  const std::map<std::string, JobTasks>& as_dict() const { return jobs_; }
  /// One line with sorted jobs; from_json reads it.
  std::string to_json() const;
  /// 64 bits over jobs, indices and addresses (host names in lower case), equal on every machine
  /// and in every version: how the tasks of a cluster find out that they were told the same. No
  /// defence against somebody who wants two clusters to look alike.
  uint64_t hash() const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;

 private:
  const JobTasks& job(const std::string& job_name) const;
  std::map<std::string, JobTasks> jobs_;
};

/// As Python prints it: `ClusterSpec({'ps': ['a:1'], 'worker': {2: 'b:1'}})`.
std::string to_string(const ClusterSpec& cluster);
std::ostream& operator<<(std::ostream& out, const ClusterSpec& cluster);

}  // namespace tutti::train
