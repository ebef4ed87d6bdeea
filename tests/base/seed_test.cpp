#include "tutti/base/seed.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {
namespace {

TEST(StreamSeed, DependsOnSeedStepAndReplicaAlone) {
  EXPECT_EQ(stream_seed(7, 3, 1), stream_seed(7, 3, 1));
  EXPECT_NE(stream_seed(7, 3, 1), stream_seed(8, 3, 1));
  EXPECT_NE(stream_seed(7, 3, 1), stream_seed(7, 4, 1));
  EXPECT_NE(stream_seed(7, 3, 1), stream_seed(7, 3, 2));
  EXPECT_NE(stream_seed(7, 3, 1), stream_seed(7, 1, 3));
}

TEST(StreamSeed, ReplicasOfAStepDifferInTheBitsThatTheGeneratorLooksAt) {
  for (int64_t step : {0, 1, 1000000}) {
    std::set<uint32_t> low;
    for (int64_t replica = 0; replica < 4096; ++replica)
      low.insert(static_cast<uint32_t>(stream_seed(5, step, replica)));
    EXPECT_EQ(low.size(), 4096u);
  }
}

TEST(StreamSeed, StepsHardlyEverMeet) {
  std::set<uint32_t> low;
  for (int64_t step = 0; step < 2000; ++step)
    low.insert(static_cast<uint32_t>(stream_seed(5, step, 0)));
  EXPECT_GE(low.size(), 1999u);
}

TEST(StreamBase, IsTheGlobalSeedOnceThereIsOne) {
  const uint64_t drawn = stream_base();
  if (!global_seed()) {
    EXPECT_EQ(stream_base(), drawn);
  }
  internal::set_global_seed(-3);
  EXPECT_EQ(stream_base(), static_cast<uint64_t>(int64_t{-3}));
}

}  // namespace
}  // namespace tutti
