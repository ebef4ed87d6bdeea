#pragma once
// What a task is in its cluster: TensorFlow's multi_worker_util.

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/names.h"
#include "tutti/cluster/cluster_spec.h"

namespace tutti::cluster {

inline constexpr const char* kChief = "chief";
inline constexpr const char* kWorker = "worker";
inline constexpr const char* kParameterServer = "ps";
inline constexpr const char* kEvaluator = "evaluator";

/// Nothing for chief, worker, ps and evaluator.
std::optional<Fault> fault_of_task_type(const std::string& type);

/// Throws InvalidArgument, beginning with `operation`, unless all jobs are known ones, there is at
/// most one chief and one evaluator, and the task is one of the cluster (an evaluator may be
/// missing from it). Without a type the task is not looked at.
void check_cluster(const std::string& operation, const train::ClusterSpec& cluster,
                   const std::optional<std::string>& task_type,
                   const std::optional<int64_t>& task_id);

// The following check the cluster as check_cluster does, and throw InvalidArgument for a ps where
// it has no answer.

/// The chief, an evaluator, and worker 0 of a cluster without a chief; also the only task of an
/// empty cluster. May be asked for a ps too.
bool is_chief(const train::ClusterSpec& cluster, const std::string& task_type, int64_t task_id);
/// Chief and workers; for an evaluator the evaluators. At least 1 for an evaluator.
int64_t worker_count(const train::ClusterSpec& cluster, const std::string& task_type);
/// In [0, worker_count): the chief is 0, worker i is i, or i + 1 beside a chief.
int64_t id_in_cluster(const train::ClusterSpec& cluster, const std::string& task_type,
                      int64_t task_id);

struct Task {
  std::string type;
  int64_t id = 0;
  friend bool operator==(const Task&, const Task&) = default;
};
/// Who leads collectives and coordination: the chief, else worker 0; nobody in an empty cluster and
/// for an evaluator.
std::optional<Task> collective_leader(const train::ClusterSpec& cluster,
                                      const std::string& task_type, int64_t task_id);

}  // namespace tutti::cluster
