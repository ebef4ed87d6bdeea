// Partitioners and placement: what their own tests in TensorFlow claim, and the limits.
#include "ps/placement.h"

#include "support/expect.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::ps {
namespace {

using namespace distribute::partitioners;  // NOLINT: a test of these names
using Sizes = std::vector<int64_t>;

TEST(Partitioners, CutTheFirstAxisAsTheirFormulasSay) {
  const auto min = [](int64_t bytes, int64_t shards) {
    return MinSizePartitioner({.min_shard_bytes = bytes, .max_shards = shards});
  };
  EXPECT_EQ(min(4, 2)({6, 1}, at::kFloat), (Sizes{2, 1}));
  EXPECT_EQ(min(4, 6)({6, 1}, at::kFloat), (Sizes{6, 1}));
  EXPECT_EQ(min(4, 10)({6, 1}, at::kFloat), (Sizes{6, 1}));
  EXPECT_EQ(min(64, 2)({6, 1}, at::kFloat), (Sizes{1, 1}));
  EXPECT_EQ(min(1, 100)({0, 4}, at::kFloat), (Sizes{1, 1}));
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 4})({6, 1}, at::kFloat), (Sizes{6, 1}));
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 2})({6, 1}, at::kFloat),
            (Sizes{2, 1}));
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 1024})({6, 1}, at::kFloat), (Sizes{1, 1}));
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 4})({0, 4}, at::kFloat), (Sizes{0, 1}));
  EXPECT_EQ(FixedShardsPartitioner(5)({3, 2}, at::kFloat), (Sizes{3, 1}));
  EXPECT_EQ(FixedShardsPartitioner(2)({3, 5}, at::kFloat, 1), (Sizes{1, 2}));
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 32, .bytes_per_string = 8})({8}, kString),
            (Sizes{2}));
}

TEST(Partitioners, OfNumbersBelowOneAreRefused) {
  EXPECT_ERROR(FixedShardsPartitioner(0), InvalidArgument, "num_shards 0, expected at least 1");
  EXPECT_ERROR(MinSizePartitioner({.min_shard_bytes = 0}), InvalidArgument, "min_shard_bytes");
  EXPECT_ERROR(MinSizePartitioner({.max_shards = 0}), InvalidArgument, "max_shards");
  EXPECT_ERROR(MinSizePartitioner({.bytes_per_string = 0}), InvalidArgument, "bytes_per_string");
  EXPECT_ERROR(MaxSizePartitioner({}), InvalidArgument, "max_shard_bytes");
  EXPECT_ERROR(MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 0}), InvalidArgument,
               "max_shards");
  EXPECT_ERROR(FixedShardsPartitioner(2)({}, at::kFloat), InvalidArgument,
               "axis 0 of the shape ()");
  EXPECT_ERROR(Partitioner()({1}, at::kFloat), FailedPrecondition, "an empty handle");
}

TEST(Placement, DealsVariablesToServersInTurn) {
  Placement placement(3, {});
  for (int64_t i = 0; i < 7; ++i) {
    const auto plans = placement.place("v", {4, 2}, at::kFloat);
    ASSERT_EQ(plans.size(), 1u);
    EXPECT_EQ(plans[0].server, i % 3);
    EXPECT_EQ(plans[0].name, "v");
  }
}

TEST(Placement, GivesTheFirstShardsTheRemainderAndLeavesScalarsWhole) {
  Placement placement(2, FixedShardsPartitioner(4));
  const auto plans = placement.place("v", {10, 3}, at::kFloat);
  ASSERT_EQ(plans.size(), 4u);
  const Sizes rows{3, 3, 2, 2}, first{0, 3, 6, 8}, servers{0, 1, 0, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(plans[i].shape, (Sizes{rows[i], 3}));
    EXPECT_EQ(plans[i].first_row, first[i]);
    EXPECT_EQ(plans[i].server, servers[i]);
    EXPECT_EQ(plans[i].name, cat("v/part_", i));
  }
  EXPECT_EQ(placement.place("s", {}, at::kFloat)[0].name, "s");
}

TEST(Placement, RefusesPartsThatAreNone) {
  for (const Sizes& parts : {Sizes{2, 2}, Sizes{0, 1}, Sizes{2}, Sizes{}}) {
    Placement placement(2, Partitioner([parts](const auto&, auto, auto) { return parts; }));
    EXPECT_ERROR(placement.place("v", {4, 4}, at::kFloat), InvalidArgument,
                 "variable_partitioner [v]");
  }
  EXPECT_ERROR(Placement(0, {}), InvalidArgument, "0 parameter servers, expected at least 1");
}

}  // namespace
}  // namespace tutti::ps
