// Each strategy enters the contract suite here, by one line.

#include "contract/strategy_reduction_contract.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

/// A user's own algorithm: only the dense reduction is its own.
class AddBackwards : public CrossDeviceOps {
 public:
  std::string name() const override { return "AddBackwards"; }

 protected:
  Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions& options) const override {
    std::vector<Tensor> backwards(value.values().rbegin(), value.values().rend());
    return CrossDeviceOps::reduce_implementation(op, PerReplica<Tensor>(std::move(backwards)),
                                                 destinations, options);
  }
};

std::function<std::shared_ptr<Strategy>()> mirrored(int replicas, AnyCrossDeviceOps ops = {}) {
  return [=]() -> std::shared_ptr<Strategy> {
    MirroredStrategyOptions options{.cross_device_ops = ops};
    for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
    return std::make_shared<MirroredStrategy>(options);
  };
}
std::function<std::shared_ptr<Strategy>()> central(std::vector<std::string> devices) {
  return [=]() -> std::shared_ptr<Strategy> {
    return std::make_shared<CentralStorageStrategy>(
        CentralStorageStrategyOptions{.compute_devices = devices});
  };
}
std::string name_of(const ::testing::TestParamInfo<StrategyMaker>& info) { return info.param.name; }

const StrategyMaker kStrategies[] = {
    {"Default", [] { return std::shared_ptr<Strategy>(&get_strategy(), [](Strategy*) {}); }},
    {"OneDevice",
     []() -> std::shared_ptr<Strategy> { return std::make_shared<OneDeviceStrategy>("cpu:0"); }},
    {"Mirrored1", mirrored(1)},
    {"Mirrored2", mirrored(2)},
    {"Mirrored4", mirrored(4)},
    {"Mirrored2OneDevice", mirrored(2, ReductionToOneDevice({.reduce_to_device = "cpu:1"}))},
    {"Mirrored4OneDevice", mirrored(4, ReductionToOneDevice({.reduce_to_device = "cpu:3"}))},
    {"Mirrored1Hierarchical", mirrored(1, HierarchicalCopyAllReduce())},
    {"Mirrored2Hierarchical", mirrored(2, HierarchicalCopyAllReduce({.num_packs = 3}))},
    {"Mirrored4Hierarchical", mirrored(4, HierarchicalCopyAllReduce({.num_packs = 0}))},
    {"Mirrored2OwnOps", mirrored(2, AddBackwards())},
    {"Mirrored4OwnOps", mirrored(4, AddBackwards())},
    {"CentralStorage1", central({"cpu:0"})},
    {"CentralStorage2", central({"cpu:0", "cpu:1"})},
    {"CentralStorage4", central({"cpu:0", "cpu:1", "cpu:2", "cpu:3"})},
    {"MultiWorkerAlone",
     []() -> std::shared_ptr<Strategy> {
       return std::make_shared<MultiWorkerMirroredStrategy>(
           MultiWorkerMirroredStrategyOptions{.devices = {"cpu:0", "cpu:1"}}, nullptr);
     }},
    {"MultiWorker2x1", {}, 2, 1},
    {"MultiWorker2x2", {}, 2, 2},
    {"MultiWorker3x1", {}, 3, 1},
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Cpu, StrategyContract, ::testing::ValuesIn(kStrategies), name_of);

}  // namespace tutti::distribute
