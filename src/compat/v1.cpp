#include "tutti/compat/v1.h"

#include "distribute/device_list.h"

namespace tutti::compat::v1::distribute::internal {

ConfigProto updated_config(const tutti::distribute::Strategy& strategy, const ConfigProto& config) {
  ConfigProto updated = config;
  if (dynamic_cast<const tutti::distribute::MirroredStrategy*>(&strategy) != nullptr ||
      dynamic_cast<const tutti::distribute::MultiWorkerMirroredStrategy*>(&strategy) != nullptr)
    updated.isolate_session_state = true;
  return updated;
}

void check_cluster(const std::map<std::string, std::vector<std::string>>& cluster_spec,
                   const std::string& task_type, std::optional<int> task_id) {
  tutti::distribute::check_one_local_task("configure", cluster_spec);
  if (task_id.value_or(0) != 0) {
    throw InvalidArgument(
        cat("configure [task_id]: ", *task_id, ", expected 0; a cluster of one task has no other"));
  }
  if (task_type.empty() || cluster_spec.empty() || cluster_spec.count(task_type) > 0) return;
  throw InvalidArgument(cat("configure [task_type]: \"", task_type, "\", expected \"",
                            cluster_spec.begin()->first, "\", the job of the cluster"));
}

void check_replication(InputReplicationMode mode) {
  if (mode == InputReplicationMode::kPerWorker) return;
  throw InvalidArgument(
      "make_input_fn_iterator [replication_mode]: PER_REPLICA, expected PER_WORKER; use "
      "distribute_datasets_from_function, which takes both");
}

}  // namespace tutti::compat::v1::distribute::internal
