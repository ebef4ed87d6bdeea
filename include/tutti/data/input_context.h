#pragma once
// A dataset function's place in the input of a distributed job, and how datasets are handed out.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace tutti::data {

class InputContext {
 public:
  explicit InputContext(int num_input_pipelines = 1, int input_pipeline_id = 0,
                        int num_replicas_in_sync = 1)
      : num_input_pipelines_(num_input_pipelines),
        input_pipeline_id_(input_pipeline_id),
        num_replicas_in_sync_(num_replicas_in_sync) {}
  int num_input_pipelines() const { return num_input_pipelines_; }
  int input_pipeline_id() const { return input_pipeline_id_; }
  int num_replicas_in_sync() const { return num_replicas_in_sync_; }
  /// global / replicas. Throws InvalidArgument when that leaves a rest.
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
  /// The dataset itself lives on the replica's device: kPerReplica only, and not together with
  /// fetch_to_device (InvalidArgument).
  bool place_dataset_on_device = false;
  /// Elements made ahead for each replica; 0: none. Negative is InvalidArgument. Values never
  /// depend on it.
  int64_t per_replica_buffer_size = 1;
};

}  // namespace tutti::data
