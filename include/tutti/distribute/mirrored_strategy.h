#pragma once
// Replicas on several devices of this process, kept in step.

#include <memory>
#include <string>
#include <vector>

#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

struct MirroredStrategyOptions {
  /// Empty: all GPUs, else as many CPU devices as config::set_logical_device_configuration said
  /// (default 1).
  std::vector<std::string> devices = {};
  AnyCrossDeviceOps cross_device_ops = {};
};

class ReplicaPool;

/// One replica a device; variables are mirrored; replicas run in parallel, each on cores / replicas
/// threads. Throws InvalidArgument for unknown or repeated devices.
class MirroredStrategy : public Strategy {
 public:
  MirroredStrategy() : MirroredStrategy(MirroredStrategyOptions{}) {}
  explicit MirroredStrategy(const MirroredStrategyOptions& options);
  ~MirroredStrategy() override;
  std::string name() const override { return "MirroredStrategy"; }

 private:
  void run_on_replicas(FunctionRef<void(int)> body) override;
  std::unique_ptr<ReplicaPool> pool_;
};

}  // namespace tutti::distribute
