// PreemptionWatcher: hearing of a worker that is told that it will be ended.
#include <gtest/gtest.h>
#include <signal.h>

#include "preemption/channel.h"
#include "preemption/coordinated.h"
#include "support/comes_true.h"
#include "support/expect_error.h"
#include "tutti/preemption/preemption.h"

namespace tutti::distribute {
namespace {

using testing::comes_true;
using testing::Coordinated;

TEST(PreemptionWatchers, OfOneProcessHearsOfItsSignal) {
  PreemptionWatcher watcher;
  EXPECT_EQ(watcher.preemption_message(), std::nullopt);
  ::raise(SIGTERM);
  EXPECT_TRUE(comes_true([&] { return watcher.preemption_message().has_value(); }));
  EXPECT_EQ(watcher.preemption_message(), "SIGTERM");
  watcher.block_until_worker_exit();
}

TEST(PreemptionWatchers, HearOfAnotherWorkersSignal) {
  Coordinated job(2);
  PreemptionWatcher first(job.agents[0]);
  {
    PreemptionWatcher second(job.agents[1]);
    ::raise(SIGTERM);  // to both, in one process: either may be first
    EXPECT_TRUE(comes_true([&] { return second.preemption_message().has_value(); }));
    EXPECT_TRUE(comes_true([&] { return first.preemption_message().has_value(); }));
    EXPECT_EQ(first.preemption_message(), second.preemption_message());
    EXPECT_NE(first.preemption_message()->find(": SIGTERM"), std::string::npos);
  }
}

TEST(PreemptionWatchers, HearOfWhatAHandlerIsTold) {
  Coordinated job(2);
  PreemptionWatcher watcher(job.agents[0]);
  preemption::agent_channel(job.agents[1], 1, 2, "test")->lead("the machine is to be serviced");
  EXPECT_TRUE(comes_true([&] { return watcher.preemption_message().has_value(); }));
  EXPECT_EQ(watcher.preemption_message(), "worker:1: the machine is to be serviced");
}

TEST(PreemptionWatchers, BlockUntilAnotherWorkerHasEnded) {
  Coordinated job(2);
  PreemptionWatcher watcher(job.agents[0]);
  EXPECT_ERROR(watcher.block_until_worker_exit(0.05), DeadlineExceeded, "all workers are still");
  job.agents[1]->leave(coordination::Milliseconds(1000), /*together=*/false);
  watcher.block_until_worker_exit(10);
}

TEST(PreemptionWatchers, AFailureOfTheJobIsAnEndToo) {
  Coordinated job(2);
  PreemptionWatcher watcher(job.agents[0]);
  job.agents[1]->report_error(ErrorCode::kUnavailable, "the power is out");
  watcher.block_until_worker_exit(10);
}

}  // namespace
}  // namespace tutti::distribute
