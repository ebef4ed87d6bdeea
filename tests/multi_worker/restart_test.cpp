// Killed jobs that tutti-run starts again: they end with the bits of a run that nothing disturbed.
#include "multi_worker/launched_job.h"
#include "support/temporary_folder.h"

namespace tutti::testing {
namespace {

class Restarted : public TemporaryFolder {
 protected:
  Result run(const std::string& folder, std::vector<std::string> faults) const {
    faults.insert(faults.begin(), {"6", "--fit", path(folder)});
    return run_job({"--workers", "2", "--max-restarts", "2", "--backoff", "0"}, faults);
  }
};

TEST_F(Restarted, AfterTheDeathOfAnyWorkerAtAnyStepTheLossesAreThoseOfAnUndisturbedRun) {
  const Result undisturbed = run("undisturbed", {});
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.err;
  const auto expected = losses_of(undisturbed);
  EXPECT_EQ(expected.at("worker 0").size(), 6u);
  EXPECT_EQ(expected.at("worker 0"), expected.at("worker 1"));
  for (const std::string fault : {"worker:1@0=kill", "worker:1@3=kill", "worker:0@1=kill",
                                  "worker:0@5=kill", "worker:0@2=throw", "worker:1@4=throw"}) {
    const Result result = run(fault, {fault});
    EXPECT_EQ(result.code, 0) << fault << "\n" << result.err;
    EXPECT_EQ(losses_of(result), expected) << fault;
    EXPECT_EQ(launcher::count_of(result.err, "restart 1 of 2"), 1u) << result.err;
  }
}

TEST_F(Restarted, AStoppedWorkerIsReplacedToo) {
  const Result undisturbed = run("undisturbed", {});
  const Result result = run("stopped", {"worker:1@3=stop"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(losses_of(result), losses_of(undisturbed));
}

TEST_F(Restarted, AllKilledAtOnceComeBackToo) {
  const Result undisturbed = run("undisturbed", {});
  const Result result = run("all", {"worker:0@3=kill", "worker:1@3=kill"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(losses_of(result), losses_of(undisturbed));
}

}  // namespace
}  // namespace tutti::testing
