#include <gtest/gtest.h>

#include "tutti/base/text.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

std::unique_ptr<MirroredStrategy> mirrored(int replicas) {
  MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}

using Steps = std::vector<std::vector<std::vector<int64_t>>>;  // [step][replica][row]

Steps steps_of(const DistributedDataset<Tensor>& dataset) {
  Steps steps;
  for (auto parts : dataset) {
    steps.emplace_back();
    for (const Tensor& part : parts.values()) {
      const Tensor rows = part.contiguous();
      steps.back().emplace_back(rows.const_data_ptr<int64_t>(),
                                rows.const_data_ptr<int64_t>() + rows.numel());
    }
  }
  return steps;
}

TEST(DistributeDataset, CutsEachBatchIntoEqualPiecesAndTheRestUnevenly) {
  auto strategy = mirrored(2);
  EXPECT_EQ(steps_of(strategy->distribute_dataset(data::range(6).batch(4))),
            (Steps{{{0, 1}, {2, 3}}, {{4}, {5}}}));
}

TEST(DistributeDataset, ReplicasWithoutRowsGetEmptyPieces) {
  auto strategy = mirrored(5);
  EXPECT_EQ(steps_of(strategy->distribute_dataset(data::range(4).batch(4))),
            (Steps{{{0}, {1}, {2}, {3}, {}}}));
  auto three = mirrored(3);
  EXPECT_EQ(steps_of(three->distribute_dataset(data::range(8).batch(4))),
            (Steps{{{0, 1}, {2, 3}, {}}, {{4, 5}, {6, 7}, {}}}));
}

TEST(DistributeDataset, WithShardingOffBatchesAreCutByRows) {
  auto strategy = mirrored(2);
  auto dataset = data::range(6).batch(4).with_options(
      {.experimental_distribute = {.auto_shard_policy = data::AutoShardPolicy::kOff}});
  EXPECT_EQ(steps_of(strategy->distribute_dataset(dataset)),
            (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {}}}));
}

TEST(DistributeDataset, EveryLoopIsAPassOfItsOwn) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_dataset(data::range(4).batch(2));
  EXPECT_EQ(steps_of(dataset), steps_of(dataset));
  auto iterator = dataset.iterator();
  iterator.get_next();
  iterator.get_next();
  EXPECT_FALSE(iterator.get_next_as_optional().has_value());
  EXPECT_THROW(iterator.get_next(), OutOfRange);
  EXPECT_EQ(dataset.cardinality(), 2);
}

TEST(DistributeDataset, WithoutBatchItAsksForOne) {
  auto strategy = mirrored(2);
  try {
    steps_of(strategy->distribute_dataset(data::range(4)));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("batch()"), std::string::npos) << error.what();
  }
}

TEST(DistributeDataset, AStepInsideAReplicaIsAnError) {
  auto strategy = mirrored(2);
  auto iterator = strategy->distribute_dataset(data::range(4).batch(2)).iterator();
  EXPECT_THROW(strategy->run([&] { iterator.get_next(); }), InvalidArgument);
}

TEST(DistributeDatasetsFromFunction, ReplicasDrawInTurnAndTheLastStepIsFilled) {
  auto strategy = mirrored(2);
  InputContext seen;
  auto dataset = strategy->distribute_datasets_from_function([&](InputContext context) {
    seen = context;
    return data::range(5).batch(context.get_per_replica_batch_size(4));
  });
  EXPECT_EQ(seen.num_input_pipelines(), 1);
  EXPECT_EQ(seen.num_replicas_in_sync(), 2);
  EXPECT_EQ(steps_of(dataset), (Steps{{{0, 1}, {2, 3}}, {{4}, {}}}));
  EXPECT_THROW(seen.get_per_replica_batch_size(5), InvalidArgument);
}

TEST(ElementSpec, IsWrittenForEachReplica) {
  auto strategy = mirrored(2);
  auto spec = strategy->distribute_dataset(data::range(8).batch(4, {.drop_remainder = true}))
                  .element_spec();
  EXPECT_EQ(spec.to_string(),
            "PerReplicaSpec(TensorSpec(shape=(2,), dtype=int64),\n               "
            "TensorSpec(shape=(2,), dtype=int64))");
  auto one = mirrored(1);
  EXPECT_EQ(one->distribute_dataset(data::range(8).batch(4)).element_spec().to_string(),
            "TensorSpec(shape=(None,), dtype=int64)");
}

TEST(Elements, NestsBecomeNestsOfPerReplica) {
  auto strategy = mirrored(2);
  auto dataset = data::from_tensor_slices(
                     std::map<std::string, Tensor>{{"a", at::arange(4)}, {"b", at::ones({4, 2})}})
                     .batch(4);
  for (auto element : strategy->distribute_dataset(dataset)) {
    EXPECT_EQ(element.at("a")[1].equal(at::tensor({2, 3}, at::kLong)), true);
    auto rows = strategy->run(
        [](const std::map<std::string, Tensor>& part) { return part.at("b").size(0); }, element);
    EXPECT_EQ(rows[0], 2);
  }
  for (auto element : strategy->distribute_dataset(data::Dataset<Nest>(dataset)))
    EXPECT_EQ(element["b"].leaf().size(), 2u);
}

}  // namespace
}  // namespace tutti::distribute
