// Strings in datasets that are distributed, beside tensors in nests.

#include <gtest/gtest.h>

#include "support/expect.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/strategies.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {
namespace {

using Strings = std::vector<std::string>;

MirroredStrategy on_cpus(int replicas) {
  MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  return MirroredStrategy(options);
}

data::Dataset<std::string> five() {
  return data::from_tensor_slices(Strings{"s0", "s1", "s2", "s3", "s4"});
}

TEST(DistributedStrings, AreCutForTheReplicas) {
  auto strategy = on_cpus(2);
  const auto dataset = strategy.distribute_dataset(five().batch(4));
  EXPECT_EQ(cat(dataset.element_spec()),
            "PerReplicaSpec(TensorSpec(shape=(None,), dtype=string),\n"
            "               TensorSpec(shape=(None,), dtype=string))");
  EXPECT_EQ(dataset.cardinality(), 2);
  auto pass = dataset.iterator();
  const PerReplica<StringTensor> first = pass.get_next();
  EXPECT_EQ(first[0], (StringTensor{"s0", "s1"}));
  EXPECT_EQ(first[1], (StringTensor{"s2", "s3"}));
  const PerReplica<StringTensor> second = pass.get_next();
  EXPECT_EQ(second[0], (StringTensor{"s4"}));
  EXPECT_EQ(second[1].sizes(), (std::vector<int64_t>{0})) << "no rows, of the right rank";
  EXPECT_FALSE(pass.get_next_as_optional());
}

TEST(DistributedStrings, PrintAsTensorsOfStrings) {
  auto strategy = on_cpus(2);
  auto pass = strategy.distribute_dataset(five().batch(2)).iterator();
  EXPECT_EQ(cat(pass.get_next()),
            "PerReplica:{\n"
            "  0: Tensor([b's0'], shape=(1,), dtype=string),\n"
            "  1: Tensor([b's1'], shape=(1,), dtype=string)\n"
            "}");
}

TEST(DistributedStrings, BesideTensorsInRunTimeNestsAreEachReplicasOwn) {
  auto strategy = on_cpus(2);
  const data::Dataset<Nest> pairs = data::zip(data::range(4), five()).batch(4);
  auto pass = strategy.distribute_dataset(pairs).iterator();
  const NestOf<PerReplica<Tensor>> step = pass.get_next();
  EXPECT_EQ(step[1].strings()[1], (StringTensor{"s2", "s3"}));
  const Nest second = select_replica(1, step);
  EXPECT_TENSOR_EQ(second[0].leaf(), at::tensor({2, 3}));
  EXPECT_EQ(second[1].strings(), (StringTensor{"s2", "s3"}));
}

TEST(DistributedStrings, ReachTheFunctionThatRuns) {
  auto strategy = on_cpus(2);
  auto pass = strategy.distribute_dataset(data::zip(data::range(5), five()).batch(4)).iterator();
  const auto lengths = strategy.run(
      [](const Tensor& x, const StringTensor& s) { return x.numel() + 10 * s.numel(); },
      pass.get_next());
  EXPECT_EQ(lengths[0], 22);
  EXPECT_EQ(lengths[1], 22);
}

TEST(DistributedStrings, OfOneElementAreDealtInTurn) {
  auto strategy = on_cpus(2);
  auto pass =
      strategy.distribute_datasets_from_function([](const data::InputContext&) { return five(); })
          .iterator();
  const PerReplica<std::string> first = pass.get_next();
  EXPECT_EQ(first[0], "s0");
  EXPECT_EQ(first[1], "s1");
  pass.get_next();
  EXPECT_FALSE(pass.get_next_as_optional()) << "the fifth has no replica beside it";
}

TEST(DistributedStrings, WithoutABatchAskForOne) {
  auto strategy = on_cpus(2);
  EXPECT_ERROR(strategy.distribute_dataset(five()), InvalidArgument, "batch()");
}

TEST(DistributedStrings, CannotBeReduced) {
  auto strategy = on_cpus(2);
  const data::Dataset<Nest> pairs = data::zip(data::range(4), five()).batch(4);
  const auto step = strategy.distribute_dataset(pairs).iterator().get_next();
  EXPECT_ERROR(strategy.reduce(ReduceOp::kSum, step), InvalidArgument, "strings");
}

TEST(RegroupedStrings, OfResultsAreEachReplicasOwn) {
  std::vector<Nest> results{Nest::tuple({at::zeros({1}), StringTensor("a")}),
                            Nest::tuple({at::ones({1}), StringTensor("b")})};
  const auto regrouped = regroup(results);
  EXPECT_EQ(regrouped[1].strings()[0], StringTensor("a"));
  EXPECT_EQ(regrouped[1].strings()[1], StringTensor("b"));
  EXPECT_EQ(select_replica(1, regrouped)[1].strings(), StringTensor("b"));
}

}  // namespace
}  // namespace tutti::distribute
