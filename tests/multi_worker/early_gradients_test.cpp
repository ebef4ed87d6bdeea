// Jobs whose workers exchange gradients while backward goes on.

#include "multi_worker/launched_job.h"

namespace tutti::testing {
namespace {

Environment overlapping(const char* overlap) {
  Environment environment = short_limits();
  environment.push_back({"TUTTI_OVERLAP", overlap});
  return environment;
}

/// Packs of 16 numbers: several of this model's few.
Result run_early(const char* workers, std::vector<std::string> arguments,
                 const char* overlap = "1") {
  arguments.insert(arguments.end(), {"--pack", "64", "--timeout", "50"});
  return run_job({"--workers", workers}, arguments, overlapping(overlap));
}

TEST(EarlyGradientsJob, Issue6_ItsLossesAreThoseWithout) {
  const Result early = run_early("2", {"8"}), late = run_early("2", {"8"}, "0");
  EXPECT_EQ(early.code, 0) << early.err;
  EXPECT_EQ(late.code, 0) << late.err;
  EXPECT_EQ(losses_of(early)["worker 0"].size(), 8u) << early.out;
  EXPECT_EQ(losses_of(early), losses_of(late));
}

TEST(EarlyGradientsJob, Issue6_GradientsThatOneWorkerTakesForItselfHoldUpNobody) {
  const Result late = run_early("3", {"6"}, "0");
  for (const char* fault : {"worker:0@3=look", "worker:0@5=look", "worker:2@5=look"}) {
    const Result early = run_early("3", {"6", fault});
    EXPECT_EQ(early.code, 0) << fault << early.err;
    EXPECT_EQ(losses_of(early), losses_of(late)) << fault;
  }
}

TEST(EarlyGradientsJob, Issue6_AWorkerThatDiesInBackwardIsNamedByAll) {
  for (const char* task : {"worker:0", "worker:1"}) {
    const Result result = run_early("3", {"6", cat(task, "@3=backward kill")});
    EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
    EXPECT_TRUE(all_blame(task, result));
    EXPECT_EQ(blamed_by("worker 2", result), task) << result.err;
  }
}

TEST(EarlyGradientsJob, Issue6_AnErrorInBackwardIsHeardByAll) {
  for (const char* task : {"worker:0", "worker:1"}) {
    const Result result = run_early("2", {"6", cat(task, "@3=backward throw")});
    EXPECT_EQ(result.code, 128 + SIGABRT) << result.err;
    EXPECT_TRUE(all_blame(task, result));
    EXPECT_EQ(blamed_by(task == std::string("worker:0") ? "worker 1" : "worker 0", result), task);
    EXPECT_GE(launcher::count_of(result.err, "the disk is full"), 3u) << result.err;
  }
}

TEST(EarlyGradientsJob, Issue6_AWorkerThatHangsInBackwardIsNamedWithinTheProgressLimit) {
  const Result result = run_early("2", {"6", "worker:1@3=backward hang"});
  EXPECT_NE(result.code, 124) << "all end";
  EXPECT_TRUE(all_blame("worker:1", result));
  EXPECT_TRUE(says(result.err, "stuck: heartbeats, but no progress for"));
}

}  // namespace
}  // namespace tutti::testing
