#include "cluster/roles.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

using train::ClusterSpec;

int64_t count_of(const ClusterSpec& cluster, const char* job) {
  return cluster.has_job(job) ? cluster.num_tasks(job) : 0;
}

/// For the functions that ps tasks have no business with.
void check_worker(const std::string& operation, const std::string& task_type) {
  if (task_type == kChief || task_type == kWorker || task_type == kEvaluator) return;
  refuse(operation, "task_type",
         {shown(task_type), "chief, worker or evaluator", "parameter servers are no workers"});
}

}  // namespace

std::optional<Fault> fault_of_task_type(const std::string& type) {
  for (const char* known : {kChief, kWorker, kParameterServer, kEvaluator}) {
    if (type == known) return std::nullopt;
  }
  return Fault{cat("the task type ", shown(type)), "chief, worker, ps or evaluator",
               type == "master" ? "call it chief" : "correct it"};
}

void check_cluster(const std::string& operation, const ClusterSpec& cluster,
                   const std::optional<std::string>& task_type,
                   const std::optional<int64_t>& task_id) {
  for (const std::string& job : cluster.jobs()) {
    if (const auto fault = fault_of_task_type(job)) refuse(operation, "cluster_spec", *fault);
  }
  for (const char* job : {kChief, kEvaluator}) {
    if (count_of(cluster, job) > 1) {
      refuse(operation, cat("cluster_spec.", job),
             {cat(count_of(cluster, job), " tasks"), "at most one", "make the others workers"});
    }
  }
  if (!task_type) return;
  if (const auto fault = fault_of_task_type(*task_type)) refuse(operation, "task_type", *fault);
  if (!cluster.has_job(*task_type)) {
    if (*task_type == kEvaluator) return;
    refuse(operation, "task_type",
           {shown(*task_type), cat("a job of the cluster: ", join(cluster.jobs(), ", ")),
            "add the job or correct the type"});
  }
  if (task_id) cluster.task_address(*task_type, *task_id);
}

bool is_chief(const ClusterSpec& cluster, const std::string& task_type, int64_t task_id) {
  if (!cluster) return true;
  check_cluster("is_chief", cluster, task_type, task_id);
  if (task_type == kChief || task_type == kEvaluator) return true;
  return !cluster.has_job(kChief) && task_type == kWorker && task_id == 0;
}

int64_t worker_count(const ClusterSpec& cluster, const std::string& task_type) {
  const char* const operation = "worker_count";
  check_cluster(operation, cluster, task_type, std::nullopt);
  check_worker(operation, task_type);
  if (task_type == kEvaluator) return std::max<int64_t>(1, count_of(cluster, kEvaluator));
  return count_of(cluster, kChief) + count_of(cluster, kWorker);
}

int64_t id_in_cluster(const ClusterSpec& cluster, const std::string& task_type, int64_t task_id) {
  const char* const operation = "id_in_cluster";
  check_cluster(operation, cluster, task_type, task_id);
  check_worker(operation, task_type);
  if (task_type == kChief) return 0;
  return task_type == kWorker ? task_id + count_of(cluster, kChief) : task_id;
}

std::optional<Task> collective_leader(const ClusterSpec& cluster, const std::string& task_type,
                                      int64_t task_id) {
  if (!cluster) return std::nullopt;
  check_cluster("collective_leader", cluster, task_type, task_id);
  if (task_type == kEvaluator) return std::nullopt;
  if (cluster.has_job(kChief)) return Task{kChief, 0};
  if (!cluster.has_job(kWorker)) {
    refuse("collective_leader", "cluster_spec",
           {"neither chief nor workers", "at least one of them", "add them"});
  }
  return Task{kWorker, 0};
}

}  // namespace tutti::cluster
