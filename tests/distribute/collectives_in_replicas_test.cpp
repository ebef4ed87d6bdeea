// all_reduce and all_gather inside replicas: packs, nests, sparse values, and their gradients.

#include <gtest/gtest.h>

#include "support/expect.h"
#include "support/message_checks.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::throws_saying;
using Tensors = std::vector<Tensor>;

MirroredStrategyOptions cpus(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return options;
}
ReplicaContext& here() { return *get_replica_context(); }
int replica_id() { return here().replica_id_in_sync_group(); }
Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kFloat); }
Tensor indices(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

/// The algorithms among which gradients must not differ.
class Collectives : public ::testing::TestWithParam<bool> {
 protected:
  MirroredStrategyOptions options(int count) const {
    MirroredStrategyOptions options = cpus(count);
    if (GetParam()) options.cross_device_ops = HierarchicalCopyAllReduce({.num_packs = 2});
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Algorithms, Collectives, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Hierarchical" : "Together");
});

// ---- packs

/// How many collectives each replica made for the nest.
int64_t collectives_of(Strategy& strategy, const CommunicationOptions& options, Tensors values) {
  const auto counts = strategy.run([&] {
    const int64_t before = here().communicator().num_calls();
    const Tensors sums = here().all_reduce("SUM", values, options);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TENSOR_EQ(sums[i], values[i] * strategy.num_replicas_in_sync());
    return here().communicator().num_calls() - before;
  });
  EXPECT_EQ(counts[0], counts[1]);
  return counts[0];
}

TEST(AllReduceOfNests, WithoutABoundOneDtypeIsOnePack) {
  MirroredStrategy strategy(cpus(2));
  const Tensors floats{at::ones({100}), at::ones({3, 4}), at::ones({}), at::ones({0})};
  EXPECT_EQ(collectives_of(strategy, {}, floats), 1);
  Tensors mixed = floats;
  mixed.push_back(at::ones({5}, at::kDouble));
  mixed.push_back(at::ones({5}, at::kLong));
  mixed.push_back(at::ones({2}, at::kDouble));
  EXPECT_EQ(collectives_of(strategy, {}, mixed), 3);
}

TEST(AllReduceOfNests, APackIsClosedOnceItHasMoreBytesThanTheBound) {
  MirroredStrategy strategy(cpus(2));
  const Tensors four{at::ones({10}), at::ones({10}), at::ones({10}), at::ones({10})};  // 40 bytes
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 1}, four), 4);
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 39}, four), 4);
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 40}, four), 2);  // 40 does not exceed 40
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 80}, four), 2);  // 120, 40
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 1000}, four), 1);
}

TEST(AllReduceOfNests, PacksBeginWithTheLastTensor) {
  MirroredStrategy strategy(cpus(2));
  // From the end: 8 and 40 bytes, more than 40, then the rest; from the front it would be three.
  const Tensors values{at::ones({2}), at::ones({2}), at::ones({10}), at::ones({2})};
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 40}, values), 2);
  const Tensors other{at::ones({12}), at::ones({12}), at::ones({2})};
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 40}, other), 2);
}

TEST(AllReduceOfNests, TheStrategysOptionsAreTheDefaultsOfACall) {
  MirroredStrategyOptions options = cpus(2);
  options.communication_options.bytes_per_pack = 1;
  MirroredStrategy strategy(options);
  const Tensors values{at::ones({10}), at::ones({10}), at::ones({10})};
  EXPECT_EQ(collectives_of(strategy, {}, values), 3);
  EXPECT_EQ(collectives_of(strategy, {.bytes_per_pack = 1000}, values), 1);
  EXPECT_THROW(collectives_of(strategy, {.bytes_per_pack = -1}, values), InvalidArgument);
}

TEST_P(Collectives, ANestKeepsItsStructureAndItsValuesAreLeftAlone) {
  MirroredStrategy strategy(options(2));
  const auto sums = strategy.run([] {
    std::map<std::string, std::pair<Tensor, Tensors>> nest;
    nest["a"] = {at::full({2}, replica_id() + 1.0), {at::full({}, 2.0), at::full({1, 3}, 4.0)}};
    nest["b"] = {at::full({3}, 5, at::kInt), {}};
    const auto before = nest;
    auto sum = here().all_reduce("MEAN", nest);
    EXPECT_TENSOR_EQ(nest["a"].first, at::full({2}, replica_id() + 1.0));
    sum["a"].second[1].add_(100);
    EXPECT_TENSOR_EQ(nest["a"].second[1], at::full({1, 3}, 4.0));
    EXPECT_TENSOR_EQ(sum["a"].second[0], at::full({}, 2.0));
    return std::tuple(sum["a"].first, sum["a"].second[1], sum["b"].first);
  });
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TENSOR_EQ(std::get<0>(sums)[r], numbers({1.5, 1.5}));
    EXPECT_TENSOR_EQ(std::get<1>(sums)[r], at::full({1, 3}, 104.0));
    EXPECT_EQ(std::get<2>(sums)[r].scalar_type(), at::kDouble);
  }
}

TEST(AllReduceOfNests, ReplicasWhoseTensorsOnlyAddUpAlikeAreRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto reduce = [&](auto nest_of) {
    strategy.run([&] { here().all_reduce("SUM", nest_of(replica_id())); });
  };
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        reduce([](int id) {
          return id == 0 ? Tensors{at::ones({2, 3}), at::ones({4})}
                         : Tensors{at::ones({4}), at::ones({2, 3})};
        });
      },
      {"tensor 0 is float32 (2, 3) on replica 0 and float32 (4,) on replica 1"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        reduce([](int id) {
          return id == 0 ? Tensors{at::ones({2})} : Tensors{at::ones({1}), at::ones({1})};
        });
      },
      {"replica 0 has 1 tensors, replica 1 2"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { reduce([](int) {
              return Tensors{at::ones({2}), Tensor()};
            }); }, {"undefined"}));
  reduce([](int) { return Tensors{}; });
  const auto after = strategy.run([] { return here().all_reduce("SUM", at::ones({1})); });
  EXPECT_TENSOR_EQ(after[1], numbers({2}));
}

TEST_P(Collectives, TheMeanOfIntegersIsFloat64) {
  MirroredStrategy strategy(options(4));
  const auto means = strategy.run([] {
    const int values[] = {1, 2, 4, 8};
    return here().all_reduce("MEAN", at::tensor(values[replica_id()], at::kInt));
  });
  EXPECT_EQ(means[3].scalar_type(), at::kDouble);
  EXPECT_EQ(means[3].item<double>(), 3.75);
}

TEST(ReplicaCollectives, Spec93_CollectivesMayStandInBranchesAndLoopsThatAllReplicasTake) {
  MirroredStrategy strategy(cpus(2));
  const auto sums = strategy.run([] {
    Tensor x = numbers({1});
    for (int i = 0; i < 3; ++i) {
      if (x.item<float>() < 4) x = here().all_reduce("SUM", x);
    }
    return x;
  });
  EXPECT_TENSOR_EQ(sums[0], numbers({4}));
  EXPECT_TENSOR_EQ(sums[1], numbers({4}));
}

// ---- gradients

TEST_P(Collectives, TheGradientOfANestIsTheSameReductionOfTheIncomingOnes) {
  for (const auto& [op, scale] : {std::pair{ReduceOp::kSum, 1.0}, {ReduceOp::kMean, 0.5}}) {
    for (const int64_t bytes : {0, 1}) {
      MirroredStrategy strategy(options(2));
      const auto gradients = strategy.run([op = op, bytes] {
        GradientTape tape;
        Tensor a = at::ones({2, 2}), b = at::ones({3}), c = at::ones({}, at::kDouble);
        for (Tensor* x : {&a, &b, &c}) tape.watch(*x);
        const auto sums = here().all_reduce(
            op,
            std::map<std::string, Tensors>{{"x", {a * a, b}}, {"y", {c, at::ones({2}, at::kInt)}}},
            {.bytes_per_pack = bytes});
        const double mine = replica_id() + 1;
        const Tensor loss = (sums.at("x")[0] * mine).sum() + (sums.at("x")[1] * 10 * mine).sum() +
                            sums.at("y")[0] * 100 * mine;
        return tape.gradient(loss, Tensors{a, b, c});
      });
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_TENSOR_NEAR(gradients[0][r], at::full({2, 2}, 2 * 3 * scale), 1e-6);
        EXPECT_TENSOR_NEAR(gradients[1][r], at::full({3}, 30 * scale), 1e-6);
        EXPECT_TENSOR_NEAR(gradients[2][r], at::full({}, 300 * scale), 1e-6);
      }
    }
  }
}

TEST_P(Collectives, ReplicasMayDependOnDifferentLeavesOfANest) {
  MirroredStrategy strategy(options(2));
  const auto gradients = strategy.run([] {
    GradientTape tape;
    Tensor a = at::ones({2}), b = at::ones({3});
    tape.watch(a);
    tape.watch(b);
    const Tensors sums = here().all_reduce("SUM", Tensors{a, b});
    const Tensor loss = replica_id() == 0 ? sums[0].sum() : (sums[1] * 5).sum();
    return tape.gradient(loss, Tensors{a, b});
  });
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TENSOR_EQ(gradients[0][r], at::ones({2}));
    EXPECT_TENSOR_EQ(gradients[1][r], at::full({3}, 5.0));
  }
}

TEST_P(Collectives, AllReduceGoesThroughTheChainRuleAsRecorded) {
  // z_r = (r + 1) * sum(a^2): dz/da = 2 a * sum over replicas of (r + 1).
  MirroredStrategy strategy(options(4));
  const auto gradients = strategy.run([] {
    const double values[] = {1, 2, 3, 4.5};
    GradientTape tape;
    Tensor a = at::scalar_tensor(values[replica_id()], at::kFloat);
    tape.watch(a);
    return tape.gradient(here().all_reduce("SUM", a * a) * (replica_id() + 1), a);
  });
  const double expected[] = {20, 40, 60, 90};
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(gradients[r].item<double>(), expected[r]);
}

TEST_P(Collectives, TheGradientOfAnUnevenGatherIsEachReplicasPart) {
  MirroredStrategy strategy(options(3));
  const auto gradients = strategy.run([] {
    GradientTape tape;
    Tensor x = at::ones({2, replica_id() + 1});
    tape.watch(x);
    const Tensor all = here().all_gather(x * 2, -1);
    EXPECT_EQ(all.sizes(), at::IntArrayRef({2, 6}));
    return tape.gradient(all * at::arange(12).view({2, 6}) * (replica_id() + 1), x);
  });
  const Tensor whole = at::arange(12, at::kFloat).view({2, 6}) * 12;  // twice 1 + 2 + 3
  EXPECT_TENSOR_EQ(gradients[0], whole.narrow(1, 0, 1));
  EXPECT_TENSOR_EQ(gradients[1], whole.narrow(1, 1, 2));
  EXPECT_TENSOR_EQ(gradients[2], whole.narrow(1, 3, 3));
}

TEST_P(Collectives, APersistentTapeRunsTheCollectivesOfItsBackwardAgain) {
  MirroredStrategy strategy(options(2));
  strategy.run([] {
    GradientTape tape({.persistent = true});
    Tensor x = at::ones({3});
    tape.watch(x);
    const Tensor y = here().all_reduce("SUM", x * (replica_id() + 1));
    for (int i = 0; i < 3; ++i)
      EXPECT_TENSOR_EQ(tape.gradient(y, x), at::full({3}, 2.0 * (replica_id() + 1)));
  });
}

TEST_P(Collectives, TwoForwardsBeforeOneBackwardKeepTheirValues) {
  MirroredStrategy strategy(options(2));
  strategy.run([] {
    GradientTape tape;
    Tensor x = at::full({4}, replica_id() + 1.0);
    tape.watch(x);
    const Tensor first = here().all_reduce("SUM", x);
    const Tensor kept = first.detach().clone();
    const Tensors second = here().all_reduce("SUM", Tensors{x * 2, x * 3});
    EXPECT_TENSOR_EQ(first, kept);
    // Squares need the values of both forwards.
    const Tensor loss = (first * first).sum() + (second[0] * second[1]).sum();
    // d/dx_r of sum over replicas: 2 * (2 * 3) + 2 * (2 * 9 + 3 * 6).
    EXPECT_TENSOR_EQ(tape.gradient(loss, x), at::full({4}, 12.0 + 72.0));
  });
}

TEST(ReplicaCollectives, ABackwardOutsideTheReplicaIsRefused) {
  MirroredStrategy strategy(cpus(2));
  Tensor x = at::ones({2}).requires_grad_(true);
  const auto sums = strategy.run([&] {
    Tensor mine = replica_id() == 0 ? x : at::ones({2}).requires_grad_(true);
    return here().all_reduce("SUM", mine);
  });
  EXPECT_ERROR(sums[0].sum().backward(), FailedPrecondition, "outside the replica");
}

// ---- IndexedSlices

/// Replica r brings r + 1 rows of 10 (r + 1) + i; row 1 comes from everybody.
IndexedSlices example(int replica) {
  std::vector<int64_t> rows;
  for (int i = 0; i <= replica; ++i) rows.push_back(1 + 2 * i);
  return {(at::arange(replica + 1, at::kFloat) + 10 * (replica + 1)).unsqueeze(1),
          indices(rows),
          {8, 1}};
}

TEST_P(Collectives, SlicesOfDifferentNumbersOfRowsAreJoinedWithTheirDuplicates) {
  MirroredStrategy strategy(options(3));
  const auto joined = strategy.run([] { return here().all_reduce("SUM", example(replica_id())); });
  const auto mean = strategy.run([] { return here().all_reduce("MEAN", example(replica_id())); });
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_TENSOR_EQ(joined[r].indices, indices({1, 1, 3, 1, 3, 5}));
    EXPECT_TENSOR_EQ(joined[r].values.flatten(), numbers({10, 20, 21, 30, 31, 32}));
    EXPECT_EQ(joined[r].dense_shape, (std::vector<int64_t>{8, 1}));
    EXPECT_TENSOR_NEAR(mean[r].to_dense(), joined[r].to_dense() / 3, 1e-6);
  }
}

TEST(SparseAllReduce, AReplicaMayHaveNoRows) {
  MirroredStrategy strategy(cpus(2));
  const auto joined = strategy.run([] {
    IndexedSlices mine = example(0);
    if (replica_id() == 0) mine = {at::zeros({0, 1}), indices({}), {8, 1}};
    return here().all_reduce("SUM", mine);
  });
  EXPECT_TENSOR_EQ(joined[0].indices, indices({1}));
  EXPECT_TENSOR_EQ(joined[1].values, at::full({1, 1}, 10.0));
}

TEST_P(Collectives, TheGradientOfSlicesIsThisReplicasRowsOfTheSum) {
  for (const auto& [op, scale] : {std::pair{ReduceOp::kSum, 1.0}, {ReduceOp::kMean, 1.0 / 3}}) {
    MirroredStrategy strategy(options(3));
    const auto gradients = strategy.run([op = op] {
      GradientTape tape;
      IndexedSlices mine = example(replica_id());
      tape.watch(mine.values);
      const IndexedSlices all = here().all_reduce(op, mine);
      const Tensor weight = (at::arange(6, at::kFloat) + 1).unsqueeze(1) * (replica_id() + 1);
      return tape.gradient(all.values * weight, mine.values);
    });
    EXPECT_TENSOR_NEAR(gradients[0].flatten(), numbers({6}) * scale, 1e-6);
    EXPECT_TENSOR_NEAR(gradients[1].flatten(), numbers({12, 18}) * scale, 1e-6);
    EXPECT_TENSOR_NEAR(gradients[2].flatten(), numbers({24, 30, 36}) * scale, 1e-6);
  }
}

TEST_P(Collectives, Spec88_AMixedNestKeepsItsOrderAndBothKindsHaveGradients) {
  MirroredStrategy strategy(options(2));
  strategy.run([] {
    GradientTape tape;
    IndexedSlices first = example(replica_id());
    Tensor second = at::ones({2});
    tape.watch(first.values);
    tape.watch(second);
    const auto [sparse, dense, more] =
        here().all_reduce("SUM", std::tuple(first, second, std::vector<IndexedSlices>{first}));
    EXPECT_TENSOR_EQ(sparse.indices, indices({1, 1, 3}));
    EXPECT_TENSOR_EQ(dense, numbers({2, 2}));
    EXPECT_TENSOR_EQ(more[0].values, sparse.values);
    const auto gradients =
        tape.gradient(sparse.values.sum() + (dense * 3).sum(), Tensors{first.values, second});
    EXPECT_TENSOR_EQ(gradients[0], at::full({replica_id() + 1, 1}, 2.0));
    EXPECT_TENSOR_EQ(gradients[1], numbers({6, 6}));
  });
}

TEST(SparseAllReduce, SlicesOfDifferentTensorsAreRefusedOnEveryReplica) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.run([] {
          IndexedSlices mine = example(0);
          mine.dense_shape[0] += replica_id();
          here().all_reduce("SUM", mine);
        });
      },
      {"dense shapes of 8 rows on replica 0 and 9 on replica 1"}));
  EXPECT_THROW(strategy.run([] {
    IndexedSlices mine = example(0);
    mine.indices = indices({8});
    here().all_reduce("SUM", mine);
  }),
               InvalidArgument);
}

TEST(SparseAllReduce, TheMeanOfIntegersIsFloat64) {
  MirroredStrategy strategy(cpus(2));
  const auto means = strategy.run([] {
    return here().all_reduce(
        "MEAN", IndexedSlices{at::tensor({3}, at::kInt), indices({replica_id()}), {2}});
  });
  EXPECT_EQ(means[0].values.scalar_type(), at::kDouble);
  EXPECT_TENSOR_EQ(means[0].to_dense(), at::tensor({1.5, 1.5}, at::kDouble));
}

}  // namespace
}  // namespace tutti::distribute
