#include <gtest/gtest.h>

#include "cluster/surroundings.h"
#include "support/message_checks.h"
#include "tutti/base/error.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::throws_saying;
using train::ClusterSpec;

ClusterSpec example() {
  return ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                      {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}});
}

SimpleClusterResolver told(SimpleClusterResolverOptions options = {}) {
  return SimpleClusterResolver(example(), std::move(options));
}

SimpleClusterResolver of(ClusterSpec cluster) { return SimpleClusterResolver(std::move(cluster)); }

TEST(SimpleResolver, SaysWhatItWasTold) {
  const auto resolver = told({.master = "m:1",
                              .task_type = "ps",
                              .task_id = 1,
                              .environment = "cloud",
                              .num_accelerators = {{"GPU", 8}},
                              .rpc_layer = "grpc"});
  EXPECT_EQ(resolver.cluster_spec(), example());
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.environment(), "cloud");
  EXPECT_EQ(resolver.num_accelerators(), (std::map<std::string, int64_t>{{"GPU", 8}}));
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master(), "grpc://m:1");
}

TEST(SimpleResolver, ATaskAskedForOverridesTheMaster) {
  EXPECT_EQ(told().master("worker", 2), "worker2:2222");
  EXPECT_EQ(told().master("worker", 0, "grpc"), "grpc://worker0:2222");
  EXPECT_EQ(told({.master = "m:1"}).master("worker"), "m:1");
}

TEST(SimpleResolver, WithoutAMasterThereIsNone) {
  EXPECT_EQ(told().master(), "");
  EXPECT_EQ(told({.rpc_layer = "grpc"}).master(), "");
  EXPECT_TRUE(told().num_accelerators().empty());
}

TEST(SimpleResolver, FewerThanNoAcceleratorsAreRefused) {
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        told({.num_accelerators = {{"GPU", -1}}});
      },
      {"SimpleClusterResolver [num_accelerators]"}));
}

TEST(UnionResolver, OneIsAsItIs) {
  EXPECT_EQ(UnionResolver({told()}).cluster_spec(), example());
  const ClusterSpec sparse({{"worker", {{1, "a:1"}, {3, "b:1"}, {5, "c:1"}}}});
  EXPECT_EQ(UnionResolver({of(sparse)}).cluster_spec(), sparse);
}

TEST(UnionResolver, EverythingButTheClusterIsTheFirsts) {
  const UnionResolver both({told({.task_type = "ps",
                                  .task_id = 1,
                                  .environment = "cloud",
                                  .num_accelerators = {{"GPU", 8}},
                                  .rpc_layer = "grpc"}),
                            told({.task_type = "worker",
                                  .task_id = 2,
                                  .environment = "local",
                                  .num_accelerators = {{"GPU", 16}},
                                  .rpc_layer = "http"})});
  EXPECT_EQ(both.task_type(), "ps");
  EXPECT_EQ(both.task_id(), 1);
  EXPECT_EQ(both.environment(), "cloud");
  EXPECT_EQ(both.num_accelerators().at("GPU"), 8);
  EXPECT_EQ(both.rpc_layer(), "grpc");
  both.set_task_type("worker");
  both.set_task_id(0);
  both.set_rpc_layer("http");
  EXPECT_EQ(both.task_type(), "worker");
  EXPECT_EQ(both.task_id(), 0);
  EXPECT_EQ(both.rpc_layer(), "http");
}

TEST(UnionResolver, ArgumentsOverrideTheFirst) {
  const UnionResolver one({told({.task_type = "worker", .task_id = 2, .rpc_layer = "grpc"})},
                          {.rpc_layer = "", .task_type = "ps", .task_id = 0});
  EXPECT_EQ(one.task_type(), "ps");
  EXPECT_EQ(one.task_id(), 0);
  EXPECT_EQ(one.rpc_layer(), "");
}

TEST(UnionResolver, JobsOfSeveralAreTogether) {
  const UnionResolver both({of({{"ps", {"p:1"}}}), of({{"worker", {"w:1", "x:1"}}})});
  EXPECT_EQ(both.cluster_spec(), ClusterSpec({{"ps", {"p:1"}}, {"worker", {"w:1", "x:1"}}}));
  EXPECT_EQ(both.master(), "");
  EXPECT_EQ(both.master("worker", 1), "x:1");
  EXPECT_EQ(both.master("worker", 1, "grpc"), "grpc://x:1");
}

TEST(UnionResolver, TheMasterIsTheFirsts) {
  const UnionResolver both({told({.master = "m:1"}), told({.master = "n:1"})});
  EXPECT_EQ(both.master(), "m:1");
  EXPECT_EQ(both.master({}, {}, "grpc"), "grpc://m:1");
}

TEST(UnionResolver, ListsOfOneJobAreJoined) {
  const UnionResolver both(
      {of({{"worker", {"w4:1", "w5:1"}}}), of({{"worker", {"w0:1", "w1:1", "w2:1"}}})});
  EXPECT_EQ(both.cluster_spec(),
            ClusterSpec({{"worker", {"w4:1", "w5:1", "w0:1", "w1:1", "w2:1"}}}));
}

TEST(UnionResolver, SparseJobsAreJoinedByIndex) {
  const UnionResolver sparse({of({{"worker", {{5, "e:1"}, {9, "i:1"}}}}),
                              of({{"worker", {{3, "c:1"}, {6, "f:1"}, {7, "g:1"}}}})});
  EXPECT_EQ(
      sparse.cluster_spec(),
      ClusterSpec({{"worker", {{3, "c:1"}, {5, "e:1"}, {6, "f:1"}, {7, "g:1"}, {9, "i:1"}}}}));
  const UnionResolver mixed(
      {of({{"worker", {"a:1", "b:1"}}}), of({{"worker", {{3, "c:1"}, {6, "f:1"}}}})});
  EXPECT_EQ(mixed.cluster_spec(),
            ClusterSpec({{"worker", {{0, "a:1"}, {1, "b:1"}, {3, "c:1"}, {6, "f:1"}}}}));
}

TEST(UnionResolver, OneIndexWithTwoAddressesIsRefused) {
  const UnionResolver sparse(
      {of({{"worker", {{7, "a:1"}, {9, "b:1"}}}}), of({{"worker", {{3, "c:1"}, {7, "d:1"}}}})});
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { sparse.cluster_spec(); },
                                             {"UnionResolver [worker:7]", "a:1", "d:1"}));
  const UnionResolver mixed(
      {of({{"worker", {"a:1", "b:1"}}}), of({{"worker", {{1, "c:1"}, {2, "d:1"}}}})});
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { mixed.cluster_spec(); }, {"[worker:1]"}));
}

TEST(UnionResolver, ATaskThatTwoNameCountsOnce) {
  const auto config = of_tf_config(R"({"cluster": {"worker": ["a:1", "b:1"]},
                                       "task": {"type": "worker", "index": 1}})");
  const SimpleClusterResolver accelerators(config.cluster_spec(),
                                           {.num_accelerators = {{"GPU", 1}}});
  const UnionResolver both({accelerators, config});
  EXPECT_EQ(both.cluster_spec(), config.cluster_spec());
  EXPECT_EQ(both.num_accelerators().at("GPU"), 1);
}

TEST(UnionResolver, NoneAndHandlesOfNoneAreRefused) {
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { UnionResolver(std::vector<ClusterResolver>()); },
                                             {"UnionResolver [resolvers]", "at least one"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        UnionResolver({told(), ClusterResolver()});
      },
      {"UnionResolver [resolvers[1]]"}));
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
