#pragma once
// What a dataset function is told about its place in the input of a distributed job.

#include <cstdint>
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
  /// "InputContext(input pipeline id 0, total 1)".
  std::string to_string() const;

 private:
  int num_input_pipelines_;
  int input_pipeline_id_;
  int num_replicas_in_sync_;
};

}  // namespace tutti::data
