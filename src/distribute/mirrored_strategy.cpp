#include "distribute/device_list.h"
#include "distribute/replica_pool.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {

MirroredStrategy::MirroredStrategy(const MirroredStrategyOptions& options)
    : Strategy(parse_device_list("MirroredStrategy", options.devices),
               {.cross_device_ops = options.cross_device_ops,
                .communication_options = options.communication_options}),
      pool_(std::make_unique<ReplicaPool>(*this, devices(), threads_per_replica())) {}

MirroredStrategy::~MirroredStrategy() = default;

void MirroredStrategy::run_on_replicas(FunctionRef<void(int)> body) { pool_->run(body); }

}  // namespace tutti::distribute
