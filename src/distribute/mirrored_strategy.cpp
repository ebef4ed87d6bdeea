#include "distribute/device_list.h"
#include "distribute/replica_pool.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

std::vector<DeviceName> checked_devices(const MirroredStrategyOptions& options) {
  check_one_local_task("MirroredStrategy", options.cluster_spec);
  return parse_device_list("MirroredStrategy", options.devices, options.compute_devices);
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredStrategyOptions& options)
    : Strategy(checked_devices(options), {.cross_device_ops = options.cross_device_ops,
                                          .communication_options = options.communication_options}),
      pool_(std::make_unique<ReplicaPool>(*this, devices(), threads_per_replica())) {}

MirroredStrategy::~MirroredStrategy() = default;

void MirroredStrategy::run_on_replicas(FunctionRef<void(int)> body) { pool_->run(body); }

}  // namespace tutti::distribute
