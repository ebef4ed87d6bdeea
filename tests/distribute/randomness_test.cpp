// What replicas draw is a function of (seed, step, replica).

#include <cstdlib>

#include "support/expect.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

MirroredStrategyOptions cpus(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return options;
}

Tensor draw() { return at::empty({4}).uniform_(0, 1, get_replica_context()->generator()); }
std::vector<Tensor> drawn_by(Strategy& strategy) {
  return strategy.local_results(strategy.run(draw));
}
void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TENSOR_EQ(a[i], b[i]);
}

TEST(RandomStreams, DifferBetweenReplicasAndBetweenSteps) {
  set_seed(1);
  MirroredStrategy strategy(cpus(3));
  std::vector<Tensor> all;
  for (int step = 0; step < 3; ++step) {
    for (const Tensor& numbers : drawn_by(strategy)) all.push_back(numbers);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(at::equal(all[i], all[j])) << i << " " << j;
  }
}

TEST(RandomStreams, EqualSeedsGiveEqualBitsInAnotherStrategyToo) {
  set_seed(2);
  MirroredStrategy first(cpus(2));
  const auto a = drawn_by(first), b = drawn_by(first);
  set_seed(2);
  MirroredStrategy second(cpus(2));
  expect_equal(drawn_by(second), a);
  expect_equal(drawn_by(second), b);
  set_seed(3);
  EXPECT_FALSE(at::equal(drawn_by(second)[0], a[0]));
}

TEST(RandomStreams, ReplicasRunOneByOneDrawTheSame) {
  set_seed(4);
  MirroredStrategy parallel(cpus(3));
  const auto wanted = drawn_by(parallel);
  setenv("TUTTI_SEQUENTIAL_REPLICAS", "1", 1);
  MirroredStrategy sequential(cpus(3));
  unsetenv("TUTTI_SEQUENTIAL_REPLICAS");
  set_seed(4);
  expect_equal(drawn_by(sequential), wanted);
}

TEST(RandomStreams, DoNotDependOnWhatWasDrawnInOtherSteps) {
  set_seed(5);
  MirroredStrategy busy(cpus(2));
  for (int step = 0; step < 3; ++step) {
    busy.run([step] {
      for (int i = 0; i <= step; ++i) draw();
    });
  }
  const auto wanted = drawn_by(busy);
  set_seed(5);
  MirroredStrategy idle(cpus(2));
  for (int step = 0; step < 3; ++step) idle.run([] {});
  expect_equal(drawn_by(idle), wanted);
}

TEST(RandomStreams, GoOnAtAnyStep) {
  set_seed(6);
  MirroredStrategy strategy(cpus(2));
  std::vector<std::vector<Tensor>> straight;
  for (int step = 0; step < 5; ++step) straight.push_back(drawn_by(strategy));
  EXPECT_EQ(strategy.random_step(), 4);
  set_seed(6);
  MirroredStrategy resumed(cpus(2));
  resumed.set_random_step(3);
  EXPECT_EQ(resumed.random_step(), 3);
  expect_equal(drawn_by(resumed), straight[3]);
  expect_equal(drawn_by(resumed), straight[4]);
  resumed.set_random_step(0);
  expect_equal(drawn_by(resumed), straight[0]);
  EXPECT_ERROR(resumed.set_random_step(-1), InvalidArgument, "-1, expected 0 or more");
}

TEST(RandomStreams, GoOnWithinAStep) {
  set_seed(7);
  MirroredStrategy strategy(cpus(2));
  const auto pairs = strategy.run([] { return std::pair(draw(), draw()); });
  EXPECT_FALSE(at::equal(pairs.first[0], pairs.second[0]));
}

TEST(RandomStreams, OneReplicaDrawsTheSameUnderEveryStrategy) {
  set_seed(8);
  MirroredStrategy two(cpus(2));
  const Tensor first = drawn_by(two)[0];
  OneDeviceStrategy one("cpu:0");
  EXPECT_TENSOR_EQ(drawn_by(one)[0], first);
  EXPECT_TENSOR_EQ(drawn_by(get_strategy())[0], first);  // the default strategy
}

TEST(RandomStreams, WithoutAStrategyOneStreamGoesOnFromTheSeed) {
  set_seed(9);
  const Tensor first = draw(), second = draw();
  EXPECT_FALSE(at::equal(first, second));
  set_seed(9);
  EXPECT_TENSOR_EQ(draw(), first);
  EXPECT_TENSOR_EQ(draw(), second);
}

TEST(RandomStreams, NormalNumbersOfAStepBeginAnewToo) {
  // The generator keeps the second of two normal numbers: one left over must not enter the next
  // step.
  auto normal = [](int64_t count) {
    return at::empty({count}).normal_(0, 1, get_replica_context()->generator());
  };
  set_seed(10);
  MirroredStrategy odd(cpus(2));
  odd.run([&] { normal(1); });
  const auto wanted = odd.run([&] { return normal(3); });
  set_seed(10);
  odd.run([&] { normal(2); });
  const auto again = odd.run([&] { return normal(3); });
  EXPECT_TENSOR_EQ(again[1], wanted[1]);
}

}  // namespace
}  // namespace tutti::distribute
