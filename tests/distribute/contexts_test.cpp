// Which strategy and which replica is current where, and what is refused there. What every strategy
// does alike is in contract/strategy_contract.h. Numbers: spec/distribute.md, 7.

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::throws_saying;

MirroredStrategyOptions cpus(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return options;
}

TEST(StrategyContexts, Spec1_AFreshThreadInheritsNothing) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  std::thread([] {
    EXPECT_FALSE(has_strategy());
    EXPECT_FALSE(in_cross_replica_context());
    ASSERT_NE(get_replica_context(), nullptr);
    EXPECT_EQ(get_replica_context()->num_replicas_in_sync(), 1);
    EXPECT_EQ(get_replica_context()->replica_id_in_sync_group(), 0);
  }).join();
}

TEST(StrategyContexts, Spec4_ScopeOfAnotherStrategyInsideIsRefusedAndTheOuterOneStays) {
  MirroredStrategy one(cpus(2)), two(cpus(2));
  auto scope = one.scope();
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { static_cast<void>(two.scope()); },
                                                {"mixing strategies"}));
  EXPECT_EQ(&get_strategy(), &one);
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { two.run([] {}); }, {"mixing strategies"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { two.reduce("MEAN", at::ones({})); },
                                                {"mixing strategies"}));
  EXPECT_EQ(&get_strategy(), &one);
}

TEST(StrategyContexts, Spec5_SetStrategiesReplaceOneAnotherAndNullClears) {
  MirroredStrategy one(cpus(2)), two(cpus(2));
  set_strategy(&one);
  EXPECT_EQ(&get_strategy(), &one);
  EXPECT_TRUE(in_cross_replica_context());
  set_strategy(&two);
  EXPECT_EQ(&get_strategy(), &two);
  set_strategy(nullptr);
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
}

TEST(StrategyContexts, Spec5_SettingInsideAScopeIsRefusedEvenForTheSameStrategyAndNull) {
  MirroredStrategy one(cpus(2));
  auto scope = one.scope();
  for (Strategy* strategy : {static_cast<Strategy*>(&one), static_cast<Strategy*>(nullptr)})
    EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { set_strategy(strategy); }, {"scope"}));
}

TEST(StrategyContexts, Spec5_SettingInsideAReplicaIsRefused) {
  MirroredStrategy one(cpus(2));
  set_strategy(&one);
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { one.run([] { set_strategy(nullptr); }); },
                                                {"replica"}));
  set_strategy(nullptr);
}

TEST(StrategyContexts, ASetStrategyRunsAndItsScopeMayBeEntered) {
  MirroredStrategy one(cpus(2)), two(cpus(2));
  set_strategy(&one);
  {
    auto scope = one.scope();
    EXPECT_EQ(&get_strategy(), &one);
    EXPECT_TRUE(throws_saying<FailedPrecondition>([] { set_strategy(nullptr); }, {"scope"}));
  }
  EXPECT_EQ(&get_strategy(), &one);
  EXPECT_TRUE(
      throws_saying<FailedPrecondition>([&] { static_cast<void>(two.scope()); }, {"mixing"}));
  std::atomic<int> inside{0};
  one.run([&] { inside += &get_strategy() == &one; });
  EXPECT_EQ(inside.load(), 2);
  set_strategy(nullptr);
}

TEST(StrategyContexts, AStrategyThatDiesWhileItIsSetIsNoLongerSet) {
  auto one = std::make_unique<MirroredStrategy>(cpus(2));
  set_strategy(one.get());
  one.reset();
  EXPECT_FALSE(has_strategy());
}

TEST(StrategyContexts, Spec10_TheDefaultMergeCallIsCrossReplicaAndHasNoStrategy) {
  const int result = get_replica_context()->merge_call(
      [](Strategy& strategy, const PerReplica<int>& five) {
        EXPECT_TRUE(strategy.is_default());
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_FALSE(has_strategy());
        return static_cast<int>(five) + 1;
      },
      5);
  EXPECT_EQ(result, 6);
  EXPECT_FALSE(in_cross_replica_context());
}

TEST(StrategyContexts, Spec11_TheDefaultScopeInsideAStrategysIsRefused) {
  Strategy& plain = get_strategy();
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { static_cast<void>(plain.scope()); },
                                                {"mixing strategies"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { plain.run([] {}); }, {"mixing strategies"}));
}

TEST(StrategyContexts, TheDefaultScopeNestsInItselfAndChangesNothing) {
  Strategy& plain = get_strategy();
  auto outer = plain.scope();
  auto inner = plain.scope();
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_TENSOR_EQ(plain.reduce("SUM", at::ones({})), at::ones({}));
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(strategy.run([] { return 1; }).size(), 2u);
}

TEST(StrategyContexts, InsideTheDefaultScopeAnotherStrategyMayBeEnteredButMakesNoVariables) {
  MirroredStrategy strategy(cpus(2));
  auto outer = get_strategy().scope();
  auto inner = strategy.scope();
  EXPECT_EQ(&get_strategy(), &strategy);
  EXPECT_TRUE(
      throws_saying<FailedPrecondition>([] { Variable v(at::ones({})); }, {"mixing strategies"}));
}

TEST(StrategyContexts, TheDefaultStrategyHasNoDevicesOfWorkers) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>([] { get_strategy().worker_devices(); }, {}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([] { get_strategy().parameter_devices(); }, {}));
}

TEST(StrategyContexts, InsideTheDefaultRunCrossReplicaCallsAreRefused) {
  Strategy& plain = get_strategy();
  MirroredStrategy other(cpus(2));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { plain.run([&] { plain.run([] {}); }); },
                                                {"cross-replica", "merge_call"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] {
        plain.run([&] {
          auto scope = plain.scope();  // changes nothing: this is still a replica
          plain.reduce("SUM", at::ones({}));
        });
      },
      {"cross-replica"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { plain.run([&] { other.run([] {}); }); },
                                                {"mixing strategies"}));
}

TEST(StrategyContexts, Spec12_TheDefaultStrategyLeavesDatasetsAsTheyAre) {
  Strategy& plain = get_strategy();
  const Tensor first = at::arange(2, at::kLong);
  EXPECT_TENSOR_EQ(plain.distribute_dataset(data::range(10).batch(2)).iterator().get_next()[0],
                   first);
  int calls = 0;
  auto dataset = plain.distribute_datasets_from_function([&](const InputContext& context) {
    ++calls;
    EXPECT_EQ(context.num_input_pipelines(), 1);
    return data::range(10).batch(2);
  });
  EXPECT_TENSOR_EQ(dataset.iterator().get_next()[0], first);
  EXPECT_EQ(calls, 1);
}

TEST(StrategyContexts, Spec13_AnInputContextDividesBatches) {
  const InputContext context(2, 1, 6);
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { context.get_per_replica_batch_size(13); }, {"13", "6"}));
  EXPECT_EQ(context.to_string(), "InputContext(input pipeline id 1, total: 2)");
}

TEST(StrategyContexts, LeavingAScopeOutOfOrderNamesHowManyAreOpenInside) {
  MirroredStrategy strategy(cpus(1));
  auto outer = strategy.scope();
  auto inner = strategy.scope();
  outer.enter();
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { inner.exit(); }, {"1 scopes", "reverse"}));
  outer.exit();
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { outer.exit(); }, {"1 scopes", "reverse"}));
  inner.exit();
  outer.exit();
  EXPECT_FALSE(has_strategy());
  outer.exit();  // not entered: nothing to do
}

TEST(StrategyContexts, AScopeIsLeftOnTheThreadThatEnteredIt) {
  MirroredStrategy strategy(cpus(1));
  auto scope = strategy.scope();
  std::thread([&] {
    EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { scope.exit(); }, {"thread"}));
  }).join();
  EXPECT_EQ(&get_strategy(), &strategy);
}

TEST(StrategyContexts, AScopeDestroyedOutOfOrderClosesWhatIsInside) {
  MirroredStrategy strategy(cpus(1));
  auto* outer = new Scope(strategy.scope());
  auto* inner = new Scope(strategy.scope());
  delete outer;
  EXPECT_FALSE(has_strategy());
  inner->exit();  // closed already: nothing to do
  delete inner;
  EXPECT_FALSE(has_strategy());
}

TEST(StrategyContexts, MergeCallInCrossReplicaContextIsRefused) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] {
        strategy.run([&] {
          ReplicaContext* mine = get_replica_context();
          mine->merge_call([&](Strategy&) { mine->merge_call([](Strategy&) {}); });
        });
      },
      {"merge_call", "in cross-replica context"}));
}

TEST(StrategyContexts, MergeCallOfAnotherReplicaIsRefused) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<ReplicaContext*> first{nullptr};
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] {
        strategy.run([&] {
          ReplicaContext* mine = get_replica_context();
          if (mine->replica_id_in_sync_group() == 0) first = mine;
          mine->merge_call([](Strategy&) {});
          if (mine->replica_id_in_sync_group() == 1) first.load()->merge_call([](Strategy&) {});
        });
      },
      {"merge_call", "in replica 1 of the same strategy"}));
}

TEST(StrategyContexts, MergeCallOfAnotherStrategysReplicaIsRefused) {
  MirroredStrategy strategy(cpus(2));
  ReplicaContext* outside = get_replica_context();
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { strategy.run([&] { outside->merge_call([](Strategy&) {}); }); },
      {"merge_call", "in a replica of another strategy (MirroredStrategy)"}));
}

TEST(StrategyContexts, ANestedScopeKeepsTheUpdateContext) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  EXPECT_EQ(get_update_replica_id(), std::nullopt);
  strategy.update(v, [&](const Variable&) {
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(get_update_replica_id(), 0);
    auto inner = strategy.scope();
    EXPECT_EQ(get_update_replica_id(), 0);
  });
  EXPECT_EQ(get_update_replica_id(), std::nullopt);
}

TEST(StrategyContexts, DevicesAreAskedInsideTheReplicaItself) {
  MirroredStrategy strategy(cpus(2));
  ReplicaContext* kept = nullptr;
  const auto devices = strategy.run([&] {
    ReplicaContext* mine = get_replica_context();
    if (mine->replica_id_in_sync_group() == 0) kept = mine;
    return cat(mine->devices()[0]);
  });
  EXPECT_EQ(devices[1], "cpu:1");
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { kept->devices(); }, {"devices"}));
}

TEST(StrategyContexts, ExceptionsLeaveNoContextBehind) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THROW(strategy.run([] {
    get_replica_context()->merge_call([](Strategy&) { throw InvalidArgument("no"); });
  }),
               InvalidArgument);
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
}

}  // namespace
TEST(MergeCall, ArgumentsOfDifferentTypesOnTheReplicasAreAnErrorOnAll) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto step = [] {
    ReplicaContext& replica = *get_replica_context();
    if (replica.replica_id_in_sync_group() == 0) {
      replica.merge_call([](Strategy&, const PerReplica<int>&) {}, 1);
    } else {
      replica.merge_call([](Strategy&, const PerReplica<std::string>&) {}, std::string("one"));
    }
  };
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.run(step); }, {"different C++ types"}));
  EXPECT_EQ(strategy.run([] { return 1; })[1], 1);
}

}  // namespace tutti::distribute
