#pragma once
// A cluster and a TF_CONFIG in JSON.

#include <optional>
#include <string>
#include <string_view>

#include "cluster/checked_json.h"
#include "tutti/cluster/cluster_spec.h"

namespace tutti::cluster {

enum class PortZero { kAllowed, kRefused };
enum class JobNames { kAny, kKnown };

/// From {"job": ["host:port", …] or {"index": "host:port", …}, …}, every complaint with its path.
/// kKnown refuses jobs that are none of chief, worker, ps and evaluator.
train::ClusterSpec read_cluster(const JsonAt& cluster, PortZero port_zero,
                                JobNames job_names = JobNames::kAny);

struct TfConfig {
  train::ClusterSpec cluster;
  std::optional<std::string> task_type;
  std::optional<int64_t> task_id;
  std::string rpc_layer;
  std::optional<std::string> session_master;
};

/// From the text of TF_CONFIG; blank text is an empty cluster. `strict` as in
/// TFConfigClusterResolverOptions.
TfConfig read_tf_config(std::string_view text, bool strict);

}  // namespace tutti::cluster
