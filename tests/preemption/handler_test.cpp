// The handler: what it restores, counts, saves and calls. Workers are threads.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <thread>

#include "preemption/channel.h"
#include "support/comes_true.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/workers.h"
#include "tutti/distribute/strategies.h"
#include "tutti/preemption/preemption.h"

namespace tutti::distribute {
namespace {

namespace fs = std::filesystem;

using cluster_resolver::ClusterResolver;
using cluster_resolver::SimpleClusterResolver;
using preemption::InProcessTable;
using Options = PreemptionCheckpointHandlerOptions;

/// What a user's exit function throws to get out.
struct Exit {};

/// A state of one number.
class Number : public Trackable {
 public:
  Nest state() const override { return Nest(at::scalar_tensor(value, at::kLong)); }
  void check_state(const Nest& state) const override { state.leaf(); }
  void set_state(const Nest& state) override { value = state.leaf().item<int64_t>(); }
  int64_t value = 0;
};

class Preemption : public testing::TemporaryFolder {
 protected:
  /// Ends by Exit; its watcher function says what `noticed_` is.
  TerminationConfig config() {
    return {.termination_watcher_fn = [this] { return noticed_.load(); },
            .exit_fn = [] { throw Exit(); }};
  }
  Options options() { return {.checkpoint_dir = path("state"), .termination_config = config()}; }
  /// Takes steps of `body` until the handler ends them.
  template <class Body>
  static void train(PreemptionCheckpointHandler& handler, Body body) {
    for (int n = 0; n < 1000000; ++n) handler.run(body);
    ADD_FAILURE() << "nothing ended the training";
  }

  std::atomic<bool> noticed_{false};
  std::shared_ptr<Number> number_ = std::make_shared<Number>();
  train::Checkpoint checkpoint_{{{"number", number_}}};
};

TEST_F(Preemption, RunGivesWhatTheFunctionGives) {
  PreemptionCheckpointHandler handler({}, checkpoint_, options());
  EXPECT_EQ(handler.run([](int a, int b) { return a + b; }, 3, 4), 7);
  int target = 0;
  int& reference = handler.run([](int& value) -> int& { return value; }, target);
  EXPECT_EQ(&reference, &target);
  auto moved =
      handler.run([](std::unique_ptr<int> value) { return value; }, std::make_unique<int>(5));
  EXPECT_EQ(*moved, 5);
  handler.run([&] { target = 1; });
  EXPECT_EQ(target, 1);
  EXPECT_EQ(handler.total_run_calls(), 4);
}

TEST_F(Preemption, ACallThatThrowsDoesNotCount) {
  PreemptionCheckpointHandler handler({}, checkpoint_, options());
  EXPECT_THROW(handler.run([] { throw OutOfRange("the end"); }), OutOfRange);
  EXPECT_EQ(handler.total_run_calls(), 0);
  handler.run([] {});
  EXPECT_EQ(handler.total_run_calls(), 1);
}

TEST_F(Preemption, AfterTheNoticeOneMoreStepIsTakenThenAllIsSavedAndTheExitFunctionCalled) {
  PreemptionCheckpointHandler handler({}, checkpoint_, options());
  int64_t noticed_at = -1;
  EXPECT_THROW(train(handler,
                     [&] {
                       ++number_->value;
                       if (number_->value == 5) noticed_ = true;
                       std::this_thread::sleep_for(std::chrono::milliseconds(5));
                     }),
               Exit);
  noticed_at = number_->value;
  EXPECT_EQ(handler.total_run_calls(), noticed_at);

  auto again = std::make_shared<Number>();
  train::Checkpoint restored({{"number", again}});
  noticed_ = false;
  PreemptionCheckpointHandler next({}, restored, options());
  EXPECT_EQ(next.total_run_calls(), noticed_at);
  EXPECT_EQ(again->value, noticed_at);
}

TEST_F(Preemption, ASignalDuringAStepSavesAfterTheNextOne) {
  Options options = this->options();
  options.termination_config.termination_watcher_fn = {};
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  // As TensorFlow: the signal comes in the third call, the save after the fourth.
  std::vector<int64_t> saved_at;
  EXPECT_THROW(
      {
        for (int n = 0; n < 100; ++n) {
          handler.run([&] {
            ++number_->value;
            if (n != 2) return;
            ::raise(SIGTERM);
            // The thread that the handler wakes is heard of in the log only: give it time.
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
          });
        }
      },
      Exit);
  EXPECT_EQ(number_->value, 4);
}

TEST_F(Preemption, WithoutAFolderACheckpointIsRefused) {
  EXPECT_ERROR(PreemptionCheckpointHandler({}, checkpoint_, Options{}), InvalidArgument,
               "checkpoint_dir");
}

TEST_F(Preemption, AManagerIsUsedInItsOwnFolder) {
  train::CheckpointManager manager(checkpoint_, path("own"), {.checkpoint_name = "mine"});
  Options options = this->options();
  options.checkpoint_dir = "";
  PreemptionCheckpointHandler handler({}, manager, options);
  noticed_ = true;
  EXPECT_THROW(train(handler, [&] { ++number_->value; }), Exit);
  EXPECT_EQ(manager.latest_checkpoint(), path("own/mine-1"));
  EXPECT_FALSE(fs::exists(path("state")));
}

TEST_F(Preemption, AManagersIntervalDoesNotKeepTheStateFromBeingSaved) {
  int64_t step = 0;
  train::CheckpointManager manager(
      checkpoint_, path("own"),
      {.step_counter = [&] { return step; }, .checkpoint_interval = 1000});
  manager.save();
  PreemptionCheckpointHandler handler({}, manager, options());
  noticed_ = true;
  EXPECT_THROW(train(handler, [&] { ++step; }), Exit);
  EXPECT_EQ(manager.latest_checkpoint(), path("own/ckpt-2"));
}

TEST_F(Preemption, WhoeverSavesTheCheckpointSavesTheCountOfNow) {
  train::CheckpointManager manager(checkpoint_, path("own"));
  {
    PreemptionCheckpointHandler handler({}, manager, options());
    for (int n = 0; n < 3; ++n) handler.run([] {});
    manager.save();
    handler.run([] {});
  }
  PreemptionCheckpointHandler handler({}, manager, options());
  EXPECT_EQ(handler.total_run_calls(), 3);
}

TEST_F(Preemption, ACheckpointThatWasSavedWithoutAHandlerCountsAsNoCall) {
  number_->value = 9;
  train::CheckpointManager(checkpoint_, path("state")).save();
  number_->value = 0;
  PreemptionCheckpointHandler handler({}, checkpoint_, options());
  EXPECT_EQ(number_->value, 9);
  EXPECT_EQ(handler.total_run_calls(), 0);
}

TEST_F(Preemption, ACheckpointOfAHandlerIsReadWithoutOne) {
  {
    PreemptionCheckpointHandler handler({}, checkpoint_, options());
    noticed_ = true;
    EXPECT_THROW(train(handler, [&] { ++number_->value; }), Exit);
  }
  auto other = std::make_shared<Number>();
  train::Checkpoint plain({{"number", other}});
  plain.restore(train::latest_checkpoint(path("state"))).expect_partial();
  EXPECT_EQ(other->value, number_->value);
}

TEST_F(Preemption, ASaveFunctionIsCalledInsteadWithTheArgumentsOfTheCall) {
  Options options = this->options();
  std::optional<int64_t> given;
  options.termination_config.save_fn = [&](const PreemptionSaveArguments& arguments) {
    given = arguments.checkpoint_number;
  };
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  noticed_ = true;
  EXPECT_THROW(
      {
        for (int n = 0; n < 1000; ++n) {
          handler.save_checkpoint_if_preempted({.checkpoint_number = 77});
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      },
      Exit);
  EXPECT_EQ(given, 77);
  EXPECT_EQ(train::latest_checkpoint(path("state")), "");
}

TEST_F(Preemption, ASaveFunctionNeedNotTakeArguments) {
  int saves = 0;
  Options options = this->options();
  options.termination_config.save_fn = [&] { ++saves; };
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  noticed_ = true;
  EXPECT_THROW(train(handler, [] {}), Exit);
  EXPECT_EQ(saves, 1);
}

TEST_F(Preemption, SaveIfPreemptedCountsItsCalls) {
  PreemptionCheckpointHandler handler({}, checkpoint_, options());
  for (int n = 0; n < 3; ++n) handler.save_checkpoint_if_preempted();
  EXPECT_EQ(handler.total_run_calls(), 3);
}

TEST_F(Preemption, AGracePeriodSavesTwiceAndTrainsBetween) {
  Options options = this->options();
  options.termination_config.grace_period = 0.5;
  std::vector<int64_t> saved_at;
  options.termination_config.save_fn = [&] { saved_at.push_back(number_->value); };
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  noticed_ = true;
  EXPECT_THROW(train(handler,
                     [&] {
                       ++number_->value;
                       std::this_thread::sleep_for(std::chrono::milliseconds(2));
                     }),
               Exit);
  ASSERT_EQ(saved_at.size(), 2u);
  EXPECT_GT(saved_at[1], saved_at[0] + 1);
}

TEST_F(Preemption, ASignalThatComesAgainWhileItEndsChangesNothing) {
  Options options = this->options();
  bool exited = false;
  options.termination_config.exit_fn = [&] {
    ::raise(SIGTERM);  // would end this process, were the listener gone
    exited = true;
  };
  options.termination_config.termination_watcher_fn = {};
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  ::raise(SIGTERM);
  for (int n = 0; !exited && n < 1000; ++n) {
    handler.run([] {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(exited);
}

TEST_F(Preemption, AfterAnExitFunctionThatReturnsTrainingGoesOnWithoutTheHandler) {
  Options options = this->options();
  int exits = 0;
  options.termination_config.exit_fn = [&] { ++exits; };
  options.termination_config.termination_watcher_fn = {};
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  ::raise(SIGTERM);
  for (int n = 0; exits == 0 && n < 1000; ++n) {
    handler.run([] {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (int n = 0; n < 10; ++n) handler.run([] {});
  EXPECT_EQ(exits, 1);
  struct sigaction present = {};
  ::sigaction(SIGTERM, nullptr, &present);
  EXPECT_EQ(present.sa_handler, SIG_DFL);
}

TEST_F(Preemption, AnErrorOfTheSaveReachesTheUser) {
  Options options = this->options();
  options.termination_config.save_fn = [] { throw DataLoss("the disk is full"); };
  PreemptionCheckpointHandler handler({}, checkpoint_, options);
  noticed_ = true;
  EXPECT_ERROR(train(handler, [] {}), DataLoss, "the disk is full");
}

TEST_F(Preemption, ScopesGiveWhatTheirBodyGivesOrThrows) {
  PreemptionCheckpointHandler handler({}, checkpoint_, options());
  EXPECT_EQ(handler.watch_preemption_scope([] { return 3; }), 3);
  EXPECT_THROW(handler.watch_preemption_scope([] { throw Aborted("so"); }), Aborted);
}

TEST_F(Preemption, MistakesAreRefused) {
  Options options = this->options();
  options.termination_config.grace_period = std::nan("");
  EXPECT_ERROR(PreemptionCheckpointHandler({}, checkpoint_, options), InvalidArgument,
               "grace_period");
  options = this->options();
  options.agreement_timeout_seconds = 0;
  EXPECT_ERROR(PreemptionCheckpointHandler({}, checkpoint_, options), InvalidArgument,
               "agreement_timeout_seconds");
  SimpleClusterResolver with_ps(train::ClusterSpec({{"worker", {"a:1"}}, {"ps", {"b:1"}}}),
                                {.task_type = "worker", .task_id = 0});
  EXPECT_ERROR(PreemptionCheckpointHandler(with_ps, checkpoint_, this->options()), Unimplemented,
               "parameter servers");
  SimpleClusterResolver two(train::ClusterSpec({{"worker", {"a:1", "b:1"}}}),
                            {.task_type = "worker", .task_id = 1});
  EXPECT_ERROR(PreemptionCheckpointHandler(two, checkpoint_, this->options()), FailedPrecondition,
               "MultiWorkerMirroredStrategy");
}

TEST_F(Preemption, AClusterOfOneAndAnEvaluatorAgreeWithNobody) {
  SimpleClusterResolver one(train::ClusterSpec({{"worker", {"a:1"}}}),
                            {.task_type = "worker", .task_id = 0});
  PreemptionCheckpointHandler(one, checkpoint_, options()).run([] {});
  SimpleClusterResolver evaluator(
      train::ClusterSpec({{"worker", {"a:1", "b:1"}}, {"evaluator", {"c:1"}}}),
      {.task_type = "evaluator", .task_id = 0});
  PreemptionCheckpointHandler(evaluator, checkpoint_, options()).run([] {});
}

TEST_F(Preemption, WorkersWithoutCoordinationAreRefused) {
  testing::on_workers(2, 1, [&](std::shared_ptr<Strategy> strategy) {
    train::Checkpoint own({{"number", std::make_shared<Number>()}});
    Options options = this->options();
    options.strategy = strategy.get();
    EXPECT_ERROR(PreemptionCheckpointHandler({}, own, options), FailedPrecondition,
                 "without coordination");
  });
}

TEST_F(Preemption, AllWorkersSaveTheSameStepAndTheNextStartGoesOnThereWithTheSameBits) {
  // A weight that every step moves by the workers' sum: `steps` of them, with or without an end.
  constexpr int64_t kSteps = 40;
  std::vector<float> undisturbed, interrupted;
  std::vector<int64_t> saved_after(2, -1);
  auto job = [&](const std::string& folder, std::vector<float>* result, bool ends) {
    auto table = std::make_shared<InProcessTable>();
    std::atomic<bool> told{false};
    testing::on_workers(2, 1, [&](std::shared_ptr<Strategy> strategy) {
      auto scope = strategy->scope();
      const int worker = strategy->workers()->worker();
      Variable weight(at::full({3}, 0.1f), {.name = "weight"});
      train::Checkpoint checkpoint({{"weight", weight}});
      Options options{.checkpoint_dir = path(folder)};
      options.termination_config.termination_watcher_fn = [&, worker] {
        return worker == 1 && told.load();
      };
      options.termination_config.exit_fn = [] { throw Exit(); };
      PreemptionCheckpointHandler handler(
          checkpoint, preemption::in_process_channel(table, worker, 2), options);
      try {
        while (handler.total_run_calls() < kSteps) {
          const auto step = static_cast<float>(handler.total_run_calls());
          handler.run([&] {
            const Tensor mine = at::full({3}, 0.01f * step + 0.1f * static_cast<float>(worker));
            const Tensor sum = strategy->reduce(ReduceOp::kSum, PerReplica<Tensor>({mine}));
            weight.assign(weight.value() * 0.9f + sum);
          });
          if (ends && step == 3) told = true;
          // The question is asked once a second.
          if (ends && step > 3) std::this_thread::sleep_for(std::chrono::milliseconds(60));
        }
        if (worker == 0) result->push_back(weight.value()[0].item<float>());
      } catch (const Exit&) {
        saved_after[static_cast<std::size_t>(worker)] = handler.total_run_calls();
      }
    });
  };
  job("never", &undisturbed, false);
  job("state", &interrupted, true);
  ASSERT_TRUE(interrupted.empty());
  EXPECT_GT(saved_after[0], 4);
  EXPECT_LT(saved_after[0], kSteps);
  EXPECT_EQ(saved_after[0], saved_after[1]);
  EXPECT_FALSE(fs::exists(path("workertemp_1")));  // TensorFlow's, of the others than the chief
  job("state", &interrupted, false);
  ASSERT_EQ(interrupted.size(), 1u);
  EXPECT_EQ(interrupted, undisturbed);
}

}  // namespace
}  // namespace tutti::distribute
