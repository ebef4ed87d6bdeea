// What strategies are made from, and what they say about themselves.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/comes_true.h"
#include "support/message_checks.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::comes_true;
using testing::throws_saying;

TEST(MirroredArguments, ComputeDevicesIsAnotherNameOfDevices) {
  EXPECT_EQ(MirroredStrategy({.compute_devices = {"cpu:0", "cpu:1"}}).num_replicas_in_sync(), 2);
  EXPECT_EQ(
      MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .compute_devices = {"/cpu:0", "CPU:1"}})
          .num_replicas_in_sync(),
      2);
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .compute_devices = {"cpu:0"}});
      },
      {"compute_devices", "cpu:0, cpu:1"}));
}

TEST(MirroredArguments, AClusterOfOneLocalTaskIsTakenAndNoOther) {
  for (const char* address : {"localhost:2222", "127.0.0.1:1", "[::1]:80", "localhost"}) {
    MirroredStrategy strategy({.devices = {"cpu:0"}, .cluster_spec = {{"worker", {address}}}});
    EXPECT_EQ(strategy.num_replicas_in_sync(), 1) << address;
  }
  const auto made = [](std::map<std::string, std::vector<std::string>> cluster) {
    return [cluster] { MirroredStrategy({.devices = {"cpu:0"}, .cluster_spec = cluster}); };
  };
  EXPECT_TRUE(throws_saying<InvalidArgument>(made({{"worker", {"localhost:1", "localhost:2"}}}),
                                             {"cluster_spec", "2 tasks", "MultiWorker"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      made({{"chief", {"localhost:1"}}, {"worker", {"localhost:2"}}}), {"2 jobs"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made({{"worker", {"10.0.0.7:1"}}}), {"10.0.0.7"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made({{"worker", {}}}), {"0 tasks"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made({{"worker", {""}}}), {"another machine"}));
}

TEST(MirroredArguments, NcclOnCpuDevicesIsRefusedWithTheAlternatives) {
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .cross_device_ops = NcclAllReduce()});
      },
      {"NcclAllReduce", "cpu:0", "ReductionToOneDevice", "HierarchicalCopyAllReduce"}));
}

TEST(MirroredArguments, BadCommunicationOptionsAreRefused) {
  EXPECT_THROW(
      MirroredStrategy({.devices = {"cpu:0"}, .communication_options = {.bytes_per_pack = -1}}),
      InvalidArgument);
  EXPECT_THROW(
      MirroredStrategy({.devices = {"cpu:0"}, .communication_options = {.timeout_seconds = -1}}),
      InvalidArgument);
}

TEST(MirroredArguments, CommunicationOptionsAreDefaultsOfTheReplicasCollectives) {
  MirroredStrategy strategy(
      {.devices = {"cpu:0", "cpu:1"}, .communication_options = {.timeout_seconds = 0.05}});
  std::atomic<bool> gave_up{false};
  EXPECT_TRUE(throws_saying<DeadlineExceeded>(
      [&] {
        strategy.run([&] {
          if (get_replica_context()->replica_id_in_sync_group() == 1) {
            EXPECT_TRUE(comes_true([&] { return gave_up.load(); }));
            return;
          }
          try {
            get_replica_context()->all_reduce("SUM", at::ones({}));
          } catch (const DeadlineExceeded&) {
            gave_up = true;
            throw;
          }
          gave_up = true;
        });
      },
      {"all_reduce"}));
}

TEST(OneDeviceArguments, ABadDeviceIsRefused) {
  EXPECT_THROW(OneDeviceStrategy("tpu:0"), InvalidArgument);
  EXPECT_THROW(OneDeviceStrategy(""), InvalidArgument);
}

TEST(CentralStorageArguments, TheParameterDeviceIsTheFirstCpuUnlessItIsNamed) {
  CentralStorageStrategy strategy({.compute_devices = {"cpu:1", "cpu:2"}});
  EXPECT_EQ(cat(strategy.parameter_devices()[0]), "cpu:0");
  CentralStorageStrategy named({.compute_devices = {"cpu:1"}, .parameter_device = "/cpu:3"});
  EXPECT_EQ(cat(named.parameter_devices()[0]), "cpu:3");
  EXPECT_THROW(CentralStorageStrategy({.parameter_device = "disk:0"}), InvalidArgument);
  EXPECT_THROW(CentralStorageStrategy({.compute_devices = {"cpu:1", "cpu:1"}}), InvalidArgument);
}

std::string summary_of(const Strategy& strategy) { return strategy.summary(); }
::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text << "lacks \"" << part << "\"";
}

TEST(Summary, SaysWhichReductionRunsAndWhy) {
  EXPECT_TRUE(has(summary_of(MirroredStrategy({.devices = {"cpu:0", "cpu:1"}})),
                  "reduction: ReductionToOneDevice (the default of CPU devices"));
  EXPECT_TRUE(has(summary_of(MirroredStrategy({.devices = {"cpu:0", "cpu:1"},
                                               .cross_device_ops = HierarchicalCopyAllReduce()})),
                  "reduction: HierarchicalCopyAllReduce (as asked for)"));
  EXPECT_TRUE(has(summary_of(OneDeviceStrategy("cpu:0")), "one replica: nothing to reduce"));
}

TEST(Summary, SaysWhatABatchIsAndWhereVariablesAre) {
  const std::string two = summary_of(MirroredStrategy({.devices = {"cpu:0", "cpu:1"}}));
  EXPECT_TRUE(has(two, "MirroredStrategy: 2 replicas on cpu:0, cpu:1"));
  EXPECT_TRUE(has(two, "batch: a global batch is cut among 2 replicas"));
  EXPECT_TRUE(has(two, "steps: ceil(rows / global batch)"));
  EXPECT_TRUE(has(two, "variables: one component a replica"));
  const std::string central =
      summary_of(CentralStorageStrategy({.compute_devices = {"cpu:1", "cpu:2"}}));
  EXPECT_TRUE(has(central, "variables: one copy, on cpu:0"));
  EXPECT_TRUE(has(summary_of(OneDeviceStrategy("cpu:2")), "variables: on cpu:2"));
}

}  // namespace
}  // namespace tutti::distribute
