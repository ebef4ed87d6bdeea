#pragma once
// Strategies and short names that the tests of variables share.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/expect.h"
#include "tutti/base/text.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute::testing {

using Sync = VariableSynchronization;
using Agg = VariableAggregation;
using Values = std::vector<double>;

inline std::vector<std::string> cpus(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(cat("cpu:", i));
  return devices;
}

inline std::unique_ptr<MirroredStrategy> mirrored(int replicas) {
  return std::make_unique<MirroredStrategy>(MirroredStrategyOptions{.devices = cpus(replicas)});
}

inline std::unique_ptr<CentralStorageStrategy> central(int replicas) {
  return std::make_unique<CentralStorageStrategy>(
      CentralStorageStrategyOptions{.compute_devices = cpus(replicas)});
}

/// A strategy to run a test under; the default one lives for ever.
struct Setting {
  std::string name;
  std::function<std::shared_ptr<Strategy>()> make;
};

inline void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

inline std::shared_ptr<Strategy> default_setting() {
  return std::shared_ptr<Strategy>(&get_strategy(), [](Strategy*) {});
}

inline std::vector<Setting> all_settings() {
  return {{"Default", [] { return default_setting(); }},
          {"OneDevice", [] { return std::make_shared<OneDeviceStrategy>("cpu:0"); }},
          {"Mirrored1", [] { return std::shared_ptr<Strategy>(mirrored(1)); }},
          {"Mirrored2", [] { return std::shared_ptr<Strategy>(mirrored(2)); }},
          {"Mirrored4", [] { return std::shared_ptr<Strategy>(mirrored(4)); }},
          {"Central2", [] { return std::shared_ptr<Strategy>(central(2)); }}};
}

/// A test that runs under each of the settings.
class UnderEachStrategy : public ::testing::TestWithParam<Setting> {
 protected:
  UnderEachStrategy() : strategy_(GetParam().make()), scope_(strategy_->scope()) {}
  int replicas() const { return strategy_->num_replicas_in_sync(); }
  bool is_central() const { return strategy_->parameter_device().has_value(); }
  Values everywhere(double value) const {  // one for each component of a variable
    return Values(is_central() ? 1 : static_cast<std::size_t>(replicas()), value);
  }
  std::shared_ptr<Strategy> strategy_;
  Scope scope_;
};

inline std::string setting_name(const ::testing::TestParamInfo<Setting>& info) {
  return info.param.name;
}

inline Variable make(Sync synchronization, Agg aggregation, double value = 10) {
  return Variable(at::scalar_tensor(value),
                  {.name = "v", .synchronization = synchronization, .aggregation = aggregation});
}

inline int replica_id() { return get_replica_context()->replica_id_in_sync_group(); }
inline Tensor tensor_of(double value) { return at::scalar_tensor(value, at::kFloat); }
inline Tensor id_tensor() { return tensor_of(replica_id()); }

inline Values components(const Variable& variable) {
  Values values;
  for (const Tensor& component : variable.components()) values.push_back(component.item<double>());
  return values;
}

inline Values rows(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return Values(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
}

/// What each replica reads.
inline Values replica_reads(Strategy& strategy, const Variable& variable) {
  Values values;
  for (const Tensor& read :
       strategy.local_results(strategy.run([&] { return variable.read_value(); })))
    values.push_back(read.item<double>());
  return values;
}

}  // namespace tutti::distribute::testing
