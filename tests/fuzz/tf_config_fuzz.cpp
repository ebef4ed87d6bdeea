#include "cluster/cluster_json.h"
#include "fuzz/target.h"
#include "tutti/base/text.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  try {
    const cluster::TfConfig config = cluster::read_tf_config(bytes, true);
    // What was read is said and read again without loss.
    if (train::ClusterSpec::from_json(config.cluster.to_json()) != config.cluster) std::abort();
  } catch (const InvalidArgument&) {
  }
  cluster::read_tf_config(bytes, false);
}

}  // namespace tutti::fuzz
