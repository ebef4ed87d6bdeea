#include "distribute/replica_pool.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {

OneDeviceStrategy::OneDeviceStrategy(const std::string& device)
    : Strategy({DeviceName::parse(device)}, {}),
      pool_(std::make_unique<ReplicaPool>(*this, devices(), threads_per_replica())) {}

OneDeviceStrategy::~OneDeviceStrategy() = default;

void OneDeviceStrategy::run_on_replicas(FunctionRef<void(int)> body) { pool_->run(body); }

}  // namespace tutti::distribute
