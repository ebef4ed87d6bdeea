// Jobs that go well: what workers compute, who takes part.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "multi_worker/launched_job.h"

namespace tutti::testing {
namespace {

using Losses = std::map<int, std::string>;

TEST(Job, TwoWorkersHaveTheLossesOfOneProcessWithTwoReplicasBitForBit) {
  const Result two = run_job({"--workers", "2"}, {"6"});
  ASSERT_EQ(two.code, 0) << two.err;
  const Result one = run_job({"--workers", "1"}, {"6", "--replicas", "2"});
  ASSERT_EQ(one.code, 0) << one.err;
  auto losses = losses_of(two);
  const Losses expected = losses_of(one)["worker 0"];
  EXPECT_EQ(expected.size(), 6u);
  EXPECT_EQ(losses["worker 0"], expected);
  EXPECT_EQ(losses["worker 1"], expected);
}

TEST(Job, TwoWorkersOfTwoReplicasHaveTheLossesOfFourReplicasBitForBit) {
  const Result two = run_job({"--workers", "2"}, {"4", "--replicas", "2"});
  ASSERT_EQ(two.code, 0) << two.err;
  const Result one = run_job({"--workers", "1"}, {"4", "--replicas", "4"});
  ASSERT_EQ(one.code, 0) << one.err;
  auto losses = losses_of(two);
  const Losses expected = losses_of(one)["worker 0"];
  EXPECT_EQ(expected.size(), 4u);
  EXPECT_EQ(losses["worker 1"], losses["worker 0"]);
  for (const auto& [step, loss] : expected)  // sums are made in pairs on each worker first
    EXPECT_NEAR(std::stod(losses["worker 0"][step]), std::stod(loss), 1e-6);
}

TEST(Job, AChiefIsOneOfTheWorkersAndAnEvaluatorWorksAlone) {
  const Result own = run_job(
      {"--chief", "1", "--workers", "1", "--evaluator", "1", "--evaluator-wait", "30"}, {"3"});
  ASSERT_EQ(own.code, 0) << own.err;
  auto losses = losses_of(own);
  EXPECT_EQ(losses["chief 0"].size(), 3u);
  EXPECT_EQ(losses["worker 0"], losses["chief 0"]);
  EXPECT_EQ(losses["evaluator 0"].size(), 3u);
}

TEST(Job, StrategiesMayComeOneAfterAnother) {
  const Result result = run_job({"--workers", "2"}, {"2", "--times", "3"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(launcher::count_of(result.out, "step 1 loss"), 6u);
}

TEST(Job, AnErrorThatAllWorkersHaveMayBeCaughtAndTheJobGoesOn) {
  const Result result = run_job({"--workers", "2"}, {"4", "worker:0@2=try", "worker:1@2=try"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(launcher::count_of(result.out, "went on after: "), 2u) << result.out;
  EXPECT_EQ(losses_of(result)["worker 1"].size(), 4u);
}

TEST(Job, Issue62_OneFileForTwoWorkersIsRefusedByBothOrSharedOutByRows) {
  const auto file = std::filesystem::temp_directory_path() / cat("tutti_one_file_", ::getpid());
  std::ofstream(file) << "a\nbb\nccc\ndddd\neeeee\n";
  const Result result = run_job({"--workers", "2"}, {"0", "--file", file.string()});
  std::filesystem::remove(file);
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* worker : {"[worker 0]", "[worker 1]"}) {
    EXPECT_TRUE(says(result.out, cat(worker, " refused: ")));
  }
  EXPECT_EQ(launcher::count_of(result.out, "1 files for 2 workers"), 2u) << result.out;
  EXPECT_TRUE(says(result.out, "[worker 0] rows 3"));
  EXPECT_TRUE(says(result.out, "[worker 1] rows 2"));
}

TEST(Job, AParameterServerIsRefused) {
  const Result result = run_job({"--workers", "2", "--ps", "1", "--notice", "5"}, {"2"});
  EXPECT_TRUE(says(result.err, "parameter servers are no workers")) << result.code;
}

TEST(Job, AWorkerThatLeavesFirstWaitsForTheOthersAtItsEnd) {
  for (int i = 0; i < 3; ++i) {
    const Result result = run_job({"--workers", "3"}, {"2"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "") << "no failure is told of";
  }
}

}  // namespace
}  // namespace tutti::testing
