#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "distribute/thread_team.h"
#include "support/comes_true.h"
#include "support/workers.h"
#include "tutti/base/text.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::comes_true;

MirroredStrategyOptions cpus(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return options;
}

PerReplica<Tensor> ids(Strategy& strategy) {
  return strategy.distribute_values_from_function([](ValueContext context) {
    return at::tensor(static_cast<float>(context.replica_id_in_sync_group));
  });
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Contexts, AFreshThreadIsInTheDefaultReplica) {
  std::thread([] {
    EXPECT_FALSE(has_strategy());
    EXPECT_FALSE(in_cross_replica_context());
    ASSERT_NE(get_replica_context(), nullptr);
    EXPECT_EQ(get_replica_context()->num_replicas_in_sync(), 1);
  }).join();
}

TEST(Contexts, AScopeIsCrossReplicaAndARunIsNot) {
  MirroredStrategy strategy(cpus(2));
  {
    auto scope = strategy.scope();
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(&get_strategy(), &strategy);
    strategy.run([&] {
      EXPECT_FALSE(in_cross_replica_context());
      EXPECT_EQ(&get_replica_context()->strategy(), &strategy);
    });
  }
  EXPECT_FALSE(has_strategy());
}

TEST(Contexts, TheSameScopeNestsAndAnotherStrategysDoesNot) {
  MirroredStrategy one(cpus(2)), two(cpus(2));
  auto outer = one.scope();
  {
    auto inner = one.scope();
    EXPECT_EQ(&get_strategy(), &one);
  }
  EXPECT_EQ(&get_strategy(), &one);
  EXPECT_THROW(static_cast<void>(two.scope()), FailedPrecondition);
  EXPECT_EQ(&get_strategy(), &one);
  EXPECT_NE(message_of([&] { static_cast<void>(two.scope()); }).find("mixing strategies"),
            std::string::npos);
}

TEST(Contexts, LeavingOutOfOrderIsAnError) {
  MirroredStrategy strategy(cpus(1));
  auto outer = strategy.scope();
  auto inner = strategy.scope();
  EXPECT_THROW(outer.exit(), FailedPrecondition);
  inner.exit();
  outer.exit();
  EXPECT_FALSE(has_strategy());
}

TEST(Contexts, AScopeInsideAReplicaIsAnError) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THROW(strategy.run([&] { auto scope = strategy.scope(); }), FailedPrecondition);
}

TEST(Devices, SpellingsAreTensorFlowsAndRepeatsAreRefused) {
  MirroredStrategy strategy(
      {.devices = {"/cpu:0", "CPU:1", "/job:localhost/replica:0/task:0/device:CPU:5"}});
  EXPECT_EQ(cat(join(strategy.devices(), " ")), "cpu:0 cpu:1 cpu:5");
  EXPECT_THROW(MirroredStrategy({.devices = {"cpu:0", "/cpu:0"}}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({.devices = {"tpu:0"}}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({.devices = {"cpu:64"}}), InvalidArgument);
}

TEST(Devices, TheDefaultIsWhatTheConfigurationSays) {
  config::set_logical_device_configuration("cpu", 3);
  EXPECT_EQ(MirroredStrategy().num_replicas_in_sync(), 3);
  config::set_logical_device_configuration("cpu", 1);
  EXPECT_EQ(MirroredStrategy().num_replicas_in_sync(), 1);
  EXPECT_THROW(config::set_logical_device_configuration("cpu", 0), InvalidArgument);
  EXPECT_THROW(config::set_logical_device_configuration("gpu", 1), InvalidArgument);
}

TEST(Run, GivesEachReplicaItsComponentAtAnyDepth) {
  MirroredStrategy strategy(cpus(3));
  const auto id = ids(strategy);
  std::map<std::string, std::vector<PerReplica<Tensor>>> nest{{"a", {id, id}}};
  auto sums = strategy.run([](const std::map<std::string, std::vector<Tensor>>& part,
                              double plain) { return part.at("a")[0] + part.at("a")[1] + plain; },
                           nest, 0.5);
  for (int r = 0; r < 3; ++r)
    EXPECT_EQ(sums[static_cast<std::size_t>(r)].item<float>(), 2 * r + 0.5);
}

TEST(Run, SpreadsATupleOnlyWhenTheFunctionDoesNotTakeIt) {
  MirroredStrategy strategy(cpus(2));
  const auto pair = std::tuple(ids(strategy), 10.0);
  auto spread = strategy.run([](Tensor id, double ten) { return id + ten; }, pair);
  auto whole =
      strategy.run([](auto tuple) { return std::get<0>(tuple) + std::get<1>(tuple); }, pair);
  EXPECT_EQ(spread[1].item<float>(), 11);
  EXPECT_EQ(whole[1].item<float>(), 11);
}

TEST(Run, RegroupsNestsOfResults) {
  MirroredStrategy strategy(cpus(2));
  auto [tensors, names] = strategy.run(
      [](Tensor id) {
        return std::tuple(std::vector<Tensor>{id, id * 2},
                          std::map<std::string, bool>{{"first", id.item<float>() == 0}});
      },
      ids(strategy));
  EXPECT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[1][1].item<float>(), 2);
  EXPECT_TRUE(names.at("first")[0]);
  EXPECT_FALSE(names.at("first")[1]);
}

TEST(Run, ListsOfDifferentLengthsAreAnError) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THROW(strategy.run(
                   [](Tensor id) {
                     return std::vector<Tensor>(static_cast<std::size_t>(id.item<float>()) + 1, id);
                   },
                   ids(strategy)),
               InvalidArgument);
}

TEST(Run, ReplicasAreInParallel) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<int> inside{0};
  strategy.run([&] {  // each waits for the other without a collective
    inside.fetch_add(1);
    EXPECT_TRUE(comes_true([&] { return inside.load() == 2; }));
  });
}

TEST(Run, WithOneReplicaAResultConvertsAndPrintsBare) {
  MirroredStrategy strategy(cpus(1));
  auto result = strategy.run([] { return at::scalar_tensor(2.5, at::kFloat); });
  Tensor bare = result;
  EXPECT_EQ(bare.item<float>(), 2.5f);
  EXPECT_EQ(cat(result), "Tensor(2.5, shape=(), dtype=float32)");
  MirroredStrategy two(cpus(2));
  auto pair = two.run([] { return at::tensor(2.5f); });
  EXPECT_THROW(static_cast<void>(static_cast<Tensor>(pair)), InvalidArgument);
}

TEST(Run, ASecondThreadAtTheSameMomentGetsAnError) {
  MirroredStrategy strategy(cpus(2));
  std::string message;
  strategy.run([&] {
    if (get_replica_context()->replica_id_in_sync_group() != 0) return;
    std::thread([&] { message = message_of([&] { strategy.run([] {}); }); }).join();
  });
  EXPECT_NE(message.find("another thread"), std::string::npos) << message;
}

TEST(Run, InsideAReplicaIsAnError) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THROW(strategy.run([&] { strategy.run([] {}); }), FailedPrecondition);
}

TEST(Failures, AThrowingReplicaEndsTheOthersWaitAndTheStrategyLives) {
  MirroredStrategy strategy(cpus(3));
  const std::string message = message_of([&] {
    strategy.run(
        [](Tensor id) {
          if (id.item<float>() == 1) throw InvalidArgument("the second replica is out of luck");
          get_replica_context()->all_reduce(ReduceOp::kSum, id);
        },
        ids(strategy));
  });
  EXPECT_EQ(message, "the second replica is out of luck");
  auto sum =
      strategy.run([](Tensor id) { return get_replica_context()->all_reduce(ReduceOp::kSum, id); },
                   ids(strategy));
  EXPECT_EQ(sum[0].item<float>(), 3);
}

TEST(Failures, ErrorsOfSeveralReplicasAreAllTold) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<int> inside{0};
  const std::string message = message_of([&] {
    strategy.run(
        [&](Tensor id) {
          inside.fetch_add(1);
          EXPECT_TRUE(comes_true([&] { return inside.load() == 2; }));
          throw InvalidArgument(cat("error of ", id.item<float>()));
        },
        ids(strategy));
  });
  EXPECT_NE(message.find("error of 0"), std::string::npos) << message;
  EXPECT_NE(message.find("error of 1"), std::string::npos) << message;
}

TEST(Failures, ReturningBeforeACollectiveIsAnError) {
  MirroredStrategy strategy(cpus(2));
  const std::string message = message_of([&] {
    strategy.run(
        [](Tensor id) {
          if (id.item<float>() == 0) get_replica_context()->all_reduce(ReduceOp::kSum, id);
        },
        ids(strategy));
  });
  EXPECT_NE(message.find("same number"), std::string::npos) << message;
}

TEST(Failures, DifferentCollectivesAreNamed) {
  MirroredStrategy strategy(cpus(2));
  const std::string message = message_of([&] {
    strategy.run(
        [](Tensor id) {
          if (id.item<float>() == 0)
            get_replica_context()->all_reduce(ReduceOp::kSum, id);
          else
            get_replica_context()->merge_call([](Strategy&) {});
        },
        ids(strategy));
  });
  EXPECT_NE(message.find("all_reduce"), std::string::npos) << message;
  EXPECT_NE(message.find("merge_call"), std::string::npos) << message;
}

TEST(Failures, ShapesThatDisagreeAreNamed) {
  MirroredStrategy strategy(cpus(2));
  const std::string message = message_of([&] {
    strategy.run(
        [](Tensor id) {
          get_replica_context()->all_reduce(ReduceOp::kSum, at::zeros({2 + id.item<int64_t>()}));
        },
        ids(strategy));
  });
  EXPECT_NE(message.find("(2,)"), std::string::npos) << message;
  EXPECT_NE(message.find("(3,)"), std::string::npos) << message;
}

TEST(Reduce, SumAndMeanOverReplicas) {
  MirroredStrategy strategy(cpus(4));
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ids(strategy)).item<float>(), 6);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, ids(strategy)).item<float>(), 1.5);
}

TEST(Reduce, MeanOverAnAxisWeighsByTrueCounts) {
  MirroredStrategy strategy(cpus(3));
  PerReplica<Tensor> uneven(std::vector<Tensor>{at::tensor({1.f, 2.f, 3.f, 4.f}),
                                                at::tensor({10.f, 20.f}), at::zeros({0})});
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kMean, uneven, 0).item<float>(), 40.f / 6);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, uneven, -1).item<float>(), 40.f);
  PerReplica<Tensor> whole(std::vector<Tensor>(3, at::ones({2, 2}, at::kLong)));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, whole, {0, 1}).item<double>(), 1);
  EXPECT_THROW(strategy.reduce(ReduceOp::kMean, uneven, 1), InvalidArgument);
}

TEST(Reduce, WhatIsTheSameEverywhereHasAMeanButNoSum) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, at::tensor(3.f)).item<float>(), 3);
  EXPECT_THROW(strategy.reduce(ReduceOp::kSum, at::tensor(3.f)), InvalidArgument);
}

TEST(Reduce, NestsAreReducedLeafByLeaf) {
  MirroredStrategy strategy(cpus(2));
  auto [a, b] =
      strategy.reduce(ReduceOp::kSum, std::tuple(ids(strategy), std::vector{ids(strategy)}));
  EXPECT_EQ(a.item<float>(), 1);
  EXPECT_EQ(b[0].item<float>(), 1);
}

TEST(Reduce, InAReplicaIsAnErrorThatNamesMergeCall) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_NE(message_of([&] {
              strategy.run([&] { strategy.reduce(ReduceOp::kMean, at::ones({})); });
            }).find("merge_call"),
            std::string::npos);
}

TEST(Reduce, EveryAlgorithmGivesTheSame) {
  MirroredStrategyOptions hierarchical = cpus(4);
  hierarchical.cross_device_ops = HierarchicalCopyAllReduce({.num_packs = 3});
  MirroredStrategy one(cpus(4)), two(hierarchical);
  auto values = [](Strategy& strategy) {
    return strategy.distribute_values_from_function([](ValueContext context) {
      return at::arange(10, at::kFloat) * (context.replica_id_in_sync_group + 1);
    });
  };
  EXPECT_TRUE(
      one.reduce(ReduceOp::kSum, values(one)).equal(two.reduce(ReduceOp::kSum, values(two))));
  auto inside = two.run(
      [](Tensor value) { return get_replica_context()->all_reduce(ReduceOp::kMean, value); },
      values(two));
  EXPECT_TRUE(inside[3].equal(at::arange(10, at::kFloat) * 2.5));
  EXPECT_THROW(HierarchicalCopyAllReduce({.num_packs = -1}), InvalidArgument);
}

TEST(Gather, JoinsUnevenComponentsInReplicaOrder) {
  MirroredStrategy strategy(cpus(2));
  PerReplica<Tensor> parts(std::vector<Tensor>{at::ones({1, 2}), at::zeros({2, 2})});
  EXPECT_EQ(strategy.gather(parts, 0).sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_THROW(strategy.gather(parts, 1), InvalidArgument);
  EXPECT_THROW(
      strategy.gather(PerReplica<Tensor>(std::vector<Tensor>{at::ones({}), at::ones({})}), 0),
      InvalidArgument);
}

TEST(ReplicaContext, GradientsGoThroughAllReduce) {
  for (const auto& [op, expected] : {std::pair{ReduceOp::kSum, 4.f}, {ReduceOp::kMean, 2.f}}) {
    MirroredStrategy strategy(cpus(2));
    auto gradients = strategy.run(
        [op = op](Tensor id) {
          GradientTape tape;
          Tensor x = at::ones({});
          tape.watch(x);
          Tensor y = get_replica_context()->all_reduce(op, x) * (id * 2 + 1);
          return tape.gradient(y, x);
        },
        ids(strategy));
    EXPECT_EQ(gradients[0].item<float>(), expected);
    EXPECT_EQ(gradients[1].item<float>(), expected);
  }
}

TEST(ReplicaContext, GradientsGoThroughAllGather) {
  MirroredStrategy strategy(cpus(2));
  auto gradients = strategy.run(
      [](Tensor id) {
        GradientTape tape;
        Tensor x = at::ones({1 + id.item<int64_t>(), 2});
        tape.watch(x);
        Tensor all = get_replica_context()->all_gather(x, 0);
        EXPECT_EQ(all.size(0), 3);
        return tape.gradient((all * at::arange(6).view({3, 2}) * (id + 1)).sum(), x);
      },
      ids(strategy));
  EXPECT_TRUE(gradients[0].equal(at::tensor({0.f, 3.f}).view({1, 2})));
  EXPECT_TRUE(gradients[1].equal(at::tensor({6.f, 9.f, 12.f, 15.f}).view({2, 2})));
}

TEST(ReplicaContext, MergeCallRunsOnceAndHandsOutParts) {
  MirroredStrategy strategy(cpus(3));
  std::atomic<int> calls{0};
  auto parts = strategy.run(
      [&](Tensor id) {
        return get_replica_context()->merge_call(
            [&](Strategy& merged, const PerReplica<Tensor>& values) {
              ++calls;
              EXPECT_TRUE(in_cross_replica_context());
              EXPECT_EQ(&merged, &strategy);
              std::vector<Tensor> reversed(values.values().rbegin(), values.values().rend());
              return std::pair(PerReplica<Tensor>(std::move(reversed)), 7);
            },
            id);
      },
      ids(strategy));
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(parts.first[0].item<float>(), 2);
  EXPECT_EQ(parts.first[2].item<float>(), 0);
  EXPECT_EQ(parts.second[1], 7);
}

TEST(ReplicaContext, RandomStreamsFollowSeedAndReplica) {
  auto draw = [] {
    set_seed(11);
    MirroredStrategy strategy(cpus(2));
    auto numbers = strategy.run(
        [] { return at::empty({3}).uniform_(0, 1, get_replica_context()->generator()); });
    return strategy.local_results(numbers);
  };
  // The strategy's number in the process is part of its seed, so one strategy is asked twice.
  set_seed(11);
  MirroredStrategy strategy(cpus(2));
  auto first = strategy.run(
      [] { return at::empty({3}).uniform_(0, 1, get_replica_context()->generator()); });
  set_seed(11);
  auto again = strategy.run(
      [] { return at::empty({3}).uniform_(0, 1, get_replica_context()->generator()); });
  EXPECT_TRUE(first[0].equal(again[0]));
  EXPECT_TRUE(first[1].equal(again[1]));
  EXPECT_FALSE(first[0].equal(first[1]));
  EXPECT_EQ(draw().size(), 2u);
}

TEST(Threads, WorkersThatShareCoresHaveThemTogether) {
  const std::vector<int64_t> here{7, 0b0011, 0};
  EXPECT_TRUE(share_cores(here, here));
  EXPECT_TRUE(share_cores(here, {7, 0b0110, 0}));
  EXPECT_FALSE(share_cores(here, {7, 0b1100, 0}));
  EXPECT_FALSE(share_cores(here, {8, 0b0011, 0}));
  testing::on_workers(2, 1, [](const std::shared_ptr<Strategy>& strategy) {
    EXPECT_EQ(strategy->threads_per_replica(), std::max(1, available_cores() / 2));
  });
}

TEST(Threads, EachReplicaSizesItsTeamAndTheHostKeepsIts) {
  const int before = at::get_num_threads();
  MirroredStrategy strategy(cpus(2));
  auto teams = strategy.run([] { return at::get_num_threads(); });
  EXPECT_EQ(teams[0], strategy.threads_per_replica());
  EXPECT_EQ(teams[1], strategy.threads_per_replica());
  EXPECT_EQ(at::get_num_threads(), before);
  int fresh = 0;
  std::thread([&] { fresh = at::get_num_threads(); }).join();
  EXPECT_EQ(fresh, before);
}

TEST(Threads, SequentialReplicasRunOneByOneAndStillMeet) {
  setenv("TUTTI_SEQUENTIAL_REPLICAS", "1", 1);
  MirroredStrategy strategy(cpus(3));
  unsetenv("TUTTI_SEQUENTIAL_REPLICAS");
  std::atomic<int> inside{0};
  std::vector<int> order;
  auto sums = strategy.run(
      [&](Tensor id) {
        EXPECT_EQ(inside.fetch_add(1), 0);
        order.push_back(id.item<int>());
        inside.fetch_sub(1);
        Tensor sum = get_replica_context()->all_reduce(ReduceOp::kSum, id);
        EXPECT_EQ(inside.fetch_add(1), 0);
        order.push_back(10 + id.item<int>());
        inside.fetch_sub(1);
        return sum;
      },
      ids(strategy));
  EXPECT_EQ(sums[2].item<float>(), 3);
  EXPECT_EQ((std::vector<int>(order.begin(), order.begin() + 3)), (std::vector<int>{0, 1, 2}));
}

TEST(OneDevice, RunsOnceOnItsDevice) {
  OneDeviceStrategy strategy("cpu:0");
  int calls = 0;
  auto result = strategy.run([&] {
    ++calls;
    return get_replica_context()->replica_id_in_sync_group();
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result[0], 0);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, at::tensor(2.f)).item<float>(), 2);
}

TEST(Losses, AverageLossDividesByTheGlobalBatch) {
  MirroredStrategy strategy(cpus(2));
  PerReplica<Tensor> losses(std::vector<Tensor>{at::tensor({2.f, 3.f}), at::tensor({4.f, 5.f})});
  auto averaged =
      strategy.run([](Tensor loss) { return nn::compute_average_loss(loss, 4); }, losses);
  EXPECT_FLOAT_EQ(averaged[0].item<float>(), 1.25f);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, averaged).item<float>(), 3.5f);
  auto scaled = strategy.run([] { return nn::scale_regularization_loss(at::tensor(3.f)); });
  EXPECT_FLOAT_EQ(scaled[1].item<float>(), 1.5f);
  auto empty = strategy.run([] { return nn::compute_average_loss(at::zeros({0})); });
  EXPECT_EQ(empty[0].item<float>(), 0);
  auto scope = strategy.scope();
  EXPECT_THROW(nn::compute_average_loss(at::ones({2})), FailedPrecondition);
  EXPECT_THROW(nn::scale_regularization_loss(at::ones({})), FailedPrecondition);
  EXPECT_THROW(strategy.run([] { nn::compute_average_loss(at::ones({})); }), InvalidArgument);
  EXPECT_THROW(strategy.run([] { nn::compute_average_loss(at::ones({2}), 0); }), InvalidArgument);
}

}  // namespace
}  // namespace tutti::distribute
