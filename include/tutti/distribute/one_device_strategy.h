#pragma once
// One replica on one device: what a program that is written for many replicas runs on while it is
// being written.

#include <memory>
#include <string>

#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

class ReplicaPool;

class OneDeviceStrategy : public Strategy {
 public:
  /// `device` as in DeviceName::parse.
  explicit OneDeviceStrategy(const std::string& device);
  ~OneDeviceStrategy() override;
  std::string name() const override { return "OneDeviceStrategy"; }

 private:
  void run_on_replicas(FunctionRef<void(int)> body) override;
  std::unique_ptr<ReplicaPool> pool_;
};

}  // namespace tutti::distribute
