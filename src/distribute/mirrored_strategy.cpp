#include "tutti/distribute/mirrored_strategy.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "distribute/replica_pool.h"
#include "tutti/distribute/config.h"

namespace tutti::distribute {
namespace {

std::vector<DeviceName> default_devices() {
  std::vector<DeviceName> devices;
  const int gpus = at::globalContext().hasCUDA()
                       ? static_cast<int>(at::detail::getCUDAHooks().deviceCount())
                       : 0;
  for (int i = 0; i < gpus; ++i) devices.push_back({DeviceName::Kind::kCuda, i});
  if (!devices.empty()) return devices;
  for (int i = 0; i < config::logical_device_count("cpu"); ++i)
    devices.push_back({DeviceName::Kind::kCpu, i});
  return devices;
}

std::vector<DeviceName> parse_devices(const std::vector<std::string>& names) {
  if (names.empty()) return default_devices();
  std::vector<DeviceName> devices;
  for (const std::string& name : names) {
    const DeviceName device = DeviceName::parse(name);
    for (const DeviceName& earlier : devices) {
      if (earlier == device) {
        throw InvalidArgument(cat("MirroredStrategy [devices]: \"", name,
                                  "\" is named twice, expected one replica a device; use other "
                                  "indices (cpu:0, cpu:1, … are logical)"));
      }
      if (earlier.kind != device.kind) {
        throw InvalidArgument(cat("MirroredStrategy [devices]: ", earlier, " and ", device,
                                  ", expected devices of one kind"));
      }
    }
    devices.push_back(device);
  }
  return devices;
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredStrategyOptions& options)
    : Strategy(parse_devices(options.devices), options.cross_device_ops),
      pool_(std::make_unique<ReplicaPool>(*this, devices(), threads_per_replica())) {}

MirroredStrategy::~MirroredStrategy() = default;

void MirroredStrategy::run_on_replicas(FunctionRef<void(int)> body) { pool_->run(body); }

}  // namespace tutti::distribute
