#pragma once
// What every cluster resolver must do. A resolver enters by one line:
//   INSTANTIATE_TEST_SUITE_P(TfConfig, ClusterResolverContract,
//                            ::testing::Values(ResolverMaker{"tf_config", make_tf_config}));

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "support/message_checks.h"
#include "tutti/base/error.h"
#include "tutti/cluster/cluster_resolver.h"

namespace tutti::distribute::cluster_resolver {

using testing::throws_saying;

/// A resolver in surroundings that it finds a cluster in; two GPUs are visible there.
struct ResolverWorld {
  ClusterResolver resolver;
  /// At least three tasks of one job, `job`, and of others if need be.
  train::ClusterSpec cluster;
  std::string job = "worker";
  /// Which task this is, where the resolver finds that out.
  std::optional<int64_t> own_id = {};
  /// Whether it is found out by cluster_spec() only.
  bool own_id_comes_late = false;
  /// The surroundings change to those of `changed`; nothing where they never do.
  std::function<void()> change = {};
  train::ClusterSpec changed = {};
  bool task_type_settable = true;
  std::map<std::string, int64_t> accelerators = {{"GPU", 2}};
  /// What must live as long as the resolver.
  std::shared_ptr<void> surroundings = {};
};

struct ResolverMaker {
  const char* name;
  std::function<ResolverWorld()> make;
};
inline void PrintTo(const ResolverMaker& maker, std::ostream* out) { *out << maker.name; }

class ClusterResolverContract : public ::testing::TestWithParam<ResolverMaker> {
 protected:
  ResolverWorld world_ = GetParam().make();
  const ClusterResolver& resolver_ = world_.resolver;
};

TEST_P(ClusterResolverContract, TheClusterIsTheOneAtHand) {
  EXPECT_EQ(to_string(resolver_.cluster_spec()), to_string(world_.cluster));
  EXPECT_EQ(resolver_.cluster_spec(), resolver_.cluster_spec());
}

TEST_P(ClusterResolverContract, TheClusterIsFreshAtEveryCall) {
  resolver_.cluster_spec();
  if (!world_.change) return;
  world_.change();
  EXPECT_EQ(to_string(resolver_.cluster_spec()), to_string(world_.changed));
}

TEST_P(ClusterResolverContract, TheMasterOfATaskIsItsAddressBehindTheProtocol) {
  for (int64_t id : world_.cluster.task_indices(world_.job)) {
    EXPECT_EQ(resolver_.master(world_.job, id, "test"),
              "test://" + world_.cluster.task_address(world_.job, id));
    EXPECT_EQ(resolver_.master(world_.job, id, ""), world_.cluster.task_address(world_.job, id));
  }
}

TEST_P(ClusterResolverContract, TheOwnTaskIsKnownWhereItCanBe) {
  if (world_.own_id_comes_late) {
    EXPECT_EQ(resolver_.task_id(), std::nullopt);
  }
  resolver_.cluster_spec();
  EXPECT_EQ(resolver_.task_id(), world_.own_id);
  if (world_.own_id) {
    EXPECT_EQ(resolver_.task_type(), world_.job);
  }
}

TEST_P(ClusterResolverContract, AMasterThatCannotBeIsRefused) {
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.master("nobody", 0); },
                                             {"no job \"nobody\"", world_.job.c_str()}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.master(world_.job, 99); },
                                             {"no task with index 99", world_.job.c_str()}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.master(world_.job, -1); },
                                             {"[task_id]", "-1"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.master("a b", 0); },
                                             {"[task_type]", "\"a b\""}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.master(world_.job, 0, "a b"); },
                                             {"[rpc_layer]", "\"a b\""}));
}

TEST_P(ClusterResolverContract, WhatIsSetWins) {
  resolver_.set_task_id(2);
  EXPECT_EQ(resolver_.task_id(), 2);
  resolver_.set_rpc_layer("other");
  EXPECT_EQ(resolver_.rpc_layer(), "other");
  if (world_.task_type_settable) {
    resolver_.set_task_type("evaluator");
    EXPECT_EQ(resolver_.task_type(), "evaluator");
  } else {
    EXPECT_TRUE(
        throws_saying<FailedPrecondition>([&] { resolver_.set_task_type("ps"); }, {"[task_type]"}));
  }
  EXPECT_EQ(resolver_.master(world_.job, 1),
            "other://" + world_.cluster.task_address(world_.job, 1));
  resolver_.cluster_spec();
  EXPECT_EQ(resolver_.task_id(), 2);
}

TEST_P(ClusterResolverContract, WhatCannotBeSetChangesNothing) {
  const auto id = resolver_.task_id();
  const auto layer = resolver_.rpc_layer();
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.set_task_id(-1); }, {"[task_id]"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { resolver_.set_rpc_layer("1:"); }, {"[rpc_layer]"}));
  EXPECT_EQ(resolver_.task_id(), id);
  EXPECT_EQ(resolver_.rpc_layer(), layer);
}

TEST_P(ClusterResolverContract, CopiesAreOneResolver) {
  const ClusterResolver copy = resolver_;
  copy.set_task_id(1);
  EXPECT_EQ(resolver_.task_id(), 1);
}

TEST_P(ClusterResolverContract, TheEnvironmentIsEmptyUnlessSaid) {
  EXPECT_EQ(resolver_.environment(), "");
}

TEST_P(ClusterResolverContract, AcceleratorsAreThoseOfAWorker) {
  EXPECT_EQ(resolver_.num_accelerators(), world_.accelerators);
  EXPECT_EQ(resolver_.num_accelerators(world_.job, 1), world_.accelerators);
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver_.num_accelerators(world_.job, -1); },
                                             {"[task_id]"}));
}

}  // namespace tutti::distribute::cluster_resolver
