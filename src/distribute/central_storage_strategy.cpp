// One copy of every variable, on the parameter device; replicas compute on the compute devices.

#include "distribute/device_list.h"
#include "distribute/replica_pool.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

DeviceName parameter_device(const CentralStorageStrategyOptions& options,
                            const std::vector<DeviceName>& compute) {
  if (!options.parameter_device.empty()) return DeviceName::parse(options.parameter_device);
  if (compute.size() == 1 && compute[0].kind == DeviceName::Kind::kCuda) return compute[0];
  return DeviceName{DeviceName::Kind::kCpu, 0};
}

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(const CentralStorageStrategyOptions& options)
    : CentralStorageStrategy(
          options, parse_device_list("CentralStorageStrategy", options.compute_devices)) {}

CentralStorageStrategy::CentralStorageStrategy(const CentralStorageStrategyOptions& options,
                                               std::vector<DeviceName> compute)
    : Strategy(compute, {.parameter_device = distribute::parameter_device(options, compute)}),
      pool_(std::make_unique<ReplicaPool>(*this, devices(), threads_per_replica())) {}

CentralStorageStrategy::~CentralStorageStrategy() = default;

void CentralStorageStrategy::run_on_replicas(FunctionRef<void(int)> body) { pool_->run(body); }

}  // namespace tutti::distribute
