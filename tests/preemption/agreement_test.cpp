// How workers agree on the step after which all save. Workers are threads; each test runs over a
// table of this process and over that of a leader.
#include "preemption/agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <thread>

#include "preemption/coordinated.h"
#include "support/comes_true.h"
#include "support/expect_error.h"
#include "tutti/base/text.h"

namespace tutti::preemption {
namespace {

using Next = Agreement::Next;

using Channels = std::vector<std::unique_ptr<PreemptionChannel>>;

/// What makes the channels of some workers, and lives as long as they.
struct Maker {
  const char* name;
  std::function<std::shared_ptr<void>(int, Channels&)> make;
};
void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

std::shared_ptr<void> in_process(int count, Channels& channels) {
  auto table = std::make_shared<InProcessTable>();
  for (int i = 0; i < count; ++i) channels.push_back(in_process_channel(table, i, count));
  return table;
}

std::shared_ptr<void> over_agents(int count, Channels& channels) {
  auto job = std::make_shared<testing::Coordinated>(count);
  for (int i = 0; i < count; ++i)
    channels.push_back(agent_channel(job->agents[static_cast<std::size_t>(i)], i, count, "test"));
  return job;
}

class AgreementOverEach : public ::testing::TestWithParam<Maker> {
 protected:
  void start(int count, const AgreementOptions& options = {.timeout = 10}, int64_t steps = 0) {
    Channels channels;
    lifetime_ = GetParam().make(count, channels);
    for (auto& channel : channels)
      workers_.push_back(std::make_unique<Agreement>(std::move(channel), options, steps));
  }
  ~AgreementOverEach() override { workers_.clear(); }
  Agreement& worker(int i) { return *workers_[static_cast<std::size_t>(i)]; }
  /// `body(i)` on a thread for each worker.
  void on_all(const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < workers_.size(); ++i)
      threads.emplace_back([&, i] { body(static_cast<int>(i)); });
  }

  std::shared_ptr<void> lifetime_;
  std::vector<std::unique_ptr<Agreement>> workers_;
};

TEST_P(AgreementOverEach, WorkersWhoseStepsWaitForOneAnotherSaveAfterTheLeadersNextStep) {
  start(3);
  std::barrier step(3);
  std::vector<int64_t> saved_after(3, -1);
  on_all([&](int i) {
    for (int n = 0; n < 1000; ++n) {
      const Next next = worker(i).before_step();
      if (next != Next::kGo) {
        EXPECT_EQ(next, Next::kSaveAndExit);
        saved_after[static_cast<std::size_t>(i)] = worker(i).steps();
        worker(i).finish();
        return step.arrive_and_drop();
      }
      step.arrive_and_wait();
      // In its fourth step, of index 3: its next one is the fifth.
      if (i == 1 && n == 3) worker(i).notice("the test");
      worker(i).after_step(0.001);
    }
    step.arrive_and_drop();
  });
  EXPECT_EQ(saved_after, (std::vector<int64_t>{5, 5, 5}));
}

TEST_P(AgreementOverEach, WorkersThatAreFarApartSaveAfterTheSameStep) {
  start(3);
  std::vector<int64_t> saved_after(3, -1);
  // Steps that wait for nobody: worker 2 is far ahead of the one that is told.
  for (int n = 0; n < 50; ++n) {
    ASSERT_EQ(worker(2).before_step(), Next::kGo);
    worker(2).after_step({});
  }
  worker(0).notice("the test");
  on_all([&](int i) {
    for (int n = 0; n < 100000; ++n) {
      if (worker(i).before_step() == Next::kGo) {
        worker(i).after_step({});
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      saved_after[static_cast<std::size_t>(i)] = worker(i).steps();
      return worker(i).finish();
    }
  });
  EXPECT_GE(saved_after[0], 50);
  EXPECT_EQ(saved_after[0], saved_after[1]);
  EXPECT_EQ(saved_after[0], saved_after[2]);
}

TEST_P(AgreementOverEach, OfTwoNoticesAtOnceOneLeads) {
  start(2);
  std::vector<int64_t> saved_after(2, -1);
  std::barrier together(2);
  on_all([&](int i) {
    together.arrive_and_wait();
    worker(i).notice("the test");
    for (int n = 0; n < 100000; ++n) {
      if (worker(i).before_step() != Next::kGo) {
        saved_after[static_cast<std::size_t>(i)] = worker(i).steps();
        worker(i).finish();
        break;
      }
      worker(i).after_step({});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_GE(saved_after[0], 1);
  EXPECT_EQ(saved_after[0], saved_after[1]);
}

TEST_P(AgreementOverEach, AGracePeriodSavesTwiceWithStepsBetween) {
  start(2, {.grace_period = 0.4, .timeout = 10});
  std::barrier step(2);
  std::vector<std::vector<int64_t>> saved_after(2);
  worker(1).notice("the test");
  const auto start = Agreement::Clock::now();
  on_all([&](int i) {
    auto& saves = saved_after[static_cast<std::size_t>(i)];
    for (int n = 0; n < 100000; ++n) {
      Next next = worker(i).before_step();
      if (next == Next::kSave) {
        saves.push_back(worker(i).steps());
        worker(i).saved(0);
        next = worker(i).before_step();
      }
      if (next == Next::kSaveAndExit) {
        saves.push_back(worker(i).steps());
        worker(i).finish();
        return step.arrive_and_drop();
      }
      ASSERT_EQ(next, Next::kGo);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      step.arrive_and_wait();
      if (i == 0 && n == 10) worker(0).notice("again, which changes nothing");
      worker(i).after_step(0.002);
    }
    step.arrive_and_drop();
  });
  const double taken = std::chrono::duration<double>(Agreement::Clock::now() - start).count();
  ASSERT_EQ(saved_after[0].size(), 2u);
  EXPECT_EQ(saved_after[0], saved_after[1]);
  EXPECT_EQ(saved_after[0][0], 1);
  EXPECT_GT(saved_after[0][1], saved_after[0][0] + 1);
  EXPECT_GT(taken, 0.3);  // the period but six steps
}

TEST_P(AgreementOverEach, StepsOfEarlierRunsCount) {
  start(2, {.timeout = 10}, 7);
  worker(0).notice("the test");
  on_all([&](int i) {
    if (worker(i).before_step() == Next::kGo) worker(i).after_step({});
    // Worker 1 may not have heard of it before its first step.
    for (int n = 0; n < 100000 && worker(i).before_step() == Next::kGo; ++n) {
      worker(i).after_step({});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    worker(i).finish();
  });
  EXPECT_GE(worker(0).steps(), 8);
  EXPECT_EQ(worker(0).steps(), worker(1).steps());
}

TEST_P(AgreementOverEach, AWorkerThatDoesNotAnswerIsNamedWhenTheTimeIsOver) {
  Channels channels;
  lifetime_ = GetParam().make(2, channels);
  workers_.push_back(
      std::make_unique<Agreement>(std::move(channels[0]), AgreementOptions{.timeout = 0.2}, 0));
  worker(0).notice("the test");
  EXPECT_ERROR(worker(0).before_step(), DeadlineExceeded, "did not acknowledge within 0.2 s");
}

TEST_P(AgreementOverEach, NothingIsSavedWhenAWorkerHasEndedItsTraining) {
  start(2);
  workers_.pop_back();
  worker(0).notice("the test");
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(worker(0).before_step(), Next::kGo);
    worker(0).after_step({});
  }
}

INSTANTIATE_TEST_SUITE_P(, AgreementOverEach,
                         ::testing::Values(Maker{"in_process", in_process},
                                           Maker{"agents", over_agents}),
                         [](const auto& info) { return info.param.name; });

TEST(AgreementOfOne, SavesAfterTheNextStep) {
  Agreement worker(sole_channel(), {}, 0);
  EXPECT_EQ(worker.before_step(), Next::kGo);
  worker.after_step({});
  worker.notice("the test");
  EXPECT_EQ(worker.before_step(), Next::kGo);
  worker.after_step({});
  EXPECT_EQ(worker.before_step(), Next::kSaveAndExit);
  EXPECT_EQ(worker.steps(), 2);
  worker.finish();
  worker.notice("too late");
  EXPECT_EQ(worker.before_step(), Next::kGo);
}

TEST(AgreementOfOne, TheEndOfTheGracePeriodLeavesTimeForSixStepsAndASave) {
  Agreement worker(sole_channel(), {.grace_period = 100}, 0);
  worker.notice("the test");
  ASSERT_EQ(worker.before_step(), Next::kGo);
  worker.after_step(10.0);
  ASSERT_EQ(worker.before_step(), Next::kSave);
  worker.saved(39);  // 100 - 6 * 10 - 39: a second is left
  ASSERT_EQ(worker.before_step(), Next::kGo);
  worker.after_step(10.4);                     // 100 - 6 * 10.2 - 39 < 0
  ASSERT_EQ(worker.before_step(), Next::kGo);  // the one more that every save has
  worker.after_step(10.0);
  EXPECT_EQ(worker.before_step(), Next::kSaveAndExit);
  EXPECT_EQ(worker.steps(), 3);
  worker.finish();
}

TEST(AgreementOverAgents, AFailedJobEndsTheSteps) {
  Channels channels;
  auto job = std::make_shared<testing::Coordinated>(2);
  Agreement worker(agent_channel(job->agents[0], 0, 2, "test"), {.timeout = 10}, 0);
  ASSERT_EQ(worker.before_step(), Next::kGo);
  auto other = agent_channel(job->agents[1], 1, 2, "test");
  other->report_error(ErrorCode::kDataLoss, "no more data");
  std::string message;
  EXPECT_TRUE(testing::comes_true([&] {
    try {
      worker.before_step();
      return false;
    } catch (const DataLoss& error) {
      message = error.what();
      return true;
    }
  }));
  EXPECT_NE(message.find("no more data"), std::string::npos) << message;
}

}  // namespace
}  // namespace tutti::preemption
