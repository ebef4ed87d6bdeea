#pragma once
// A dataset function's place in the input of a distributed job, and how datasets are handed out.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace tutti::data {

class InputContext {
 public:
  /// InvalidArgument: a number below 1, or an id that is not below the number of pipelines.
  explicit InputContext(int num_input_pipelines = 1, int input_pipeline_id = 0,
                        int num_replicas_in_sync = 1);
  int num_input_pipelines() const { return num_input_pipelines_; }
  int input_pipeline_id() const { return input_pipeline_id_; }
  int num_replicas_in_sync() const { return num_replicas_in_sync_; }
  /// global / replicas. Throws InvalidArgument when that leaves a rest, or when it is below 1.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
  /// "InputContext(input pipeline id 0, total: 1)".
  std::string to_string() const;

 private:
  int num_input_pipelines_;
  int input_pipeline_id_;
  int num_replicas_in_sync_;
};

enum class InputReplicationMode {
  kPerWorker,  ///< one dataset for all replicas of a process, which draw from it in turn
  kPerReplica  ///< one dataset (and one call of the dataset function) for each replica
};

/// How a distributed dataset hands out its elements.
struct InputOptions {
  /// Unset is true: elements are copied to their replica's device ahead of time. False: they stay
  /// on the host.
  std::optional<bool> fetch_to_device = std::nullopt;
  /// kPerReplica only with distribute_datasets_from_function (Unimplemented otherwise), and only
  /// under strategies of one process.
  InputReplicationMode replication_mode = InputReplicationMode::kPerWorker;
  /// The dataset function puts its tensors on the replica's device itself: kPerReplica only, and
  /// only with fetch_to_device = false (InvalidArgument).
  bool place_dataset_on_device = false;
  /// Elements made ahead for each replica, by one thread a process; 0: none. Negative is
  /// InvalidArgument. On CPU devices 1 is none too unless several replicas run in
  /// parallel and the pass runs functions of the user (map, filter, from_generator): the replicas
  /// need the cores. The values of a pass never
  /// depend on it; functions of the pipeline run on that thread. A pass that is left early may have
  /// begun a later round of a repeat, whose shuffles then are one order further.
  int64_t per_replica_buffer_size = 1;
};

}  // namespace tutti::data
