// Rows of spec/user_issues.md on datasets. Row 61 has its tests in readers_test.cpp and
// file_cache_test.cpp, row 62 in auto_shard_test.cpp, beside the files that they need.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "data/elements.h"
#include "tutti/base/log.h"
#include "tutti/base/seed.h"
#include "tutti/data/element_random.h"

namespace tutti::data {
namespace {

// ---- 59: a shuffle cut in two

Numbers pass_of(const Dataset<Tensor>& dataset) {
  Numbers all = numbers(dataset);
  std::sort(all.begin(), all.end());
  return all;
}

TEST(UserIssues, Issue59_ASplitOfAShuffleThatDoesNotReshuffleIsDisjointAndStable) {
  const auto shuffled = range(100).shuffle(100, {.seed = 5, .reshuffle_each_iteration = false});
  const auto train = shuffled.take(80);
  const auto test = shuffled.skip(80);
  for (int epoch = 0; epoch < 2; ++epoch) {
    Numbers both = numbers(train);
    const Numbers held_out = numbers(test);
    both.insert(both.end(), held_out.begin(), held_out.end());
    std::sort(both.begin(), both.end());
    EXPECT_EQ(both, numbers(range(100)));
    EXPECT_EQ(pass_of(train), pass_of(train));
  }
}

TEST(UserIssues, Issue59_NothingIsWrongWithOtherOrdersOfTheCalls) {
  ::testing::internal::CaptureStderr();
  const auto fixed = range(100).shuffle(100, {.seed = 5, .reshuffle_each_iteration = false});
  fixed.take(80);
  fixed.skip(80);
  range(100).shuffle(100).batch(10).take(2);
  range(100).shuffle(100).take(-1);
  range(100).shuffle(100).skip(0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

std::string said_of_a_split() {
  ::testing::internal::CaptureStderr();
  range(10).shuffle(10).take(8);
  range(10).shuffle(10).skip(8);
  return ::testing::internal::GetCapturedStderr();
}

// In a process of its own, since the warning comes once in each.
TEST(UserIssuesDeathTest, Issue59_ASplitOfAReshufflingShuffleWarnsOnceAndSaysHowToSplit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string said = said_of_a_split();
        const bool once = said.find("skip directly") == std::string::npos;
        std::cerr << said;
        std::exit(once ? 0 : 1);
      },
      ::testing::ExitedWithCode(0),
      "take directly behind shuffle.*reshuffle_each_iteration = false");
}

TEST(UserIssues, Issue59_ASplitOfAReshufflingShuffleOverlapsFromPassToPass) {
  const auto shuffled = range(100).shuffle(100, {.seed = 5});
  EXPECT_NE(pass_of(shuffled.take(80)), pass_of(shuffled.take(80)));
}

// ---- 60: a parallel map that draws random numbers

/// x with noise of its own. Takes a time that no seed decides.
Tensor noisy_after_a_while(const Tensor& x) {
  std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 3000));
  return x + at::rand({3}, element_random());
}

/// Two passes of a pipeline whose seed is set.
std::vector<Tensor> two_passes(const std::function<Dataset<Tensor>(const Dataset<Tensor>&)>& over) {
  tutti::internal::set_global_seed(21);
  const auto dataset = over(range(16).shuffle(16));
  std::vector<Tensor> all;
  for (int pass = 0; pass < 2; ++pass) {
    for (const Tensor& element : dataset) all.push_back(element);
  }
  return all;
}
void expect_bitwise(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                    const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(at::equal(found[i], expected[i])) << what << ": element " << i;
}

TEST(UserIssues, Issue60_AParallelMapDrawsTheSameWhateverTheCallsAndTheTiming) {
  const auto run = [](std::optional<int64_t> calls) {
    return two_passes([&](const Dataset<Tensor>& input) {
      return input.map(noisy_after_a_while, {.num_parallel_calls = calls, .deterministic = true});
    });
  };
  const auto one_by_one = run(std::nullopt);
  ASSERT_EQ(one_by_one.size(), 32u);
  EXPECT_FALSE(at::equal(one_by_one[0].frac(), one_by_one[16].frac())) << "passes differ";
  for (const int64_t calls : {1, 2, 4, 8}) {
    for (const int again : {1, 2})
      expect_bitwise(run(calls), one_by_one, cat(calls, " calls, run ", again));
  }
}

TEST(UserIssues, Issue60_SoDoParallelInterleavesAndBatchesAheadOfThem) {
  const auto run = [](std::optional<int64_t> calls) {
    return two_passes([&](const Dataset<Tensor>& input) {
      return input.batch(4).interleave(
          [](const Tensor& rows) { return from_tensor_slices(rows).map(noisy_after_a_while); },
          {.cycle_length = 3, .num_parallel_calls = calls});
    });
  };
  const auto one_by_one = run(std::nullopt);
  ASSERT_EQ(one_by_one.size(), 32u);
  for (const int64_t calls : {1, 3}) expect_bitwise(run(calls), one_by_one, cat(calls, " calls"));
}

}  // namespace
}  // namespace tutti::data
