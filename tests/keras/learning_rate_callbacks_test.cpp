// LearningRateScheduler and ReduceLROnPlateau: the runs of real Keras.

#include <cmath>

#include "keras/callback_script.h"

namespace tutti::keras {
namespace {

using callbacks::AnyCallback;
using callbacks::LambdaCallback;
using callbacks::LearningRateScheduler;
using callbacks::ReduceLROnPlateau;
using testing::Script;
using testing::Still;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;

using Rates = std::vector<double>;

struct Trained {
  History history;
  Rates rates;  ///< the optimizer's after each epoch
};

/// A training of a rate, whose epochs end with these values of val_loss.
Trained run(const std::vector<double>& values, double rate, const AnyCallback& callback) {
  Script script{.values = values};
  Sequential& model = script.still.model;
  model.optimizer().set_learning_rate(rate);
  Trained run;
  struct After : callbacks::Callback {
    Rates* rates = nullptr;
    AnyCallback inner;
    explicit After(AnyCallback inner) : inner(std::move(inner)) {}
    void on_train_begin(const Logs& logs) override {
      inner->set_model(model());
      inner->on_train_begin(logs);
    }
    void on_epoch_begin(int64_t epoch, const Logs& logs) override {
      inner->on_epoch_begin(epoch, logs);
    }
    void on_epoch_end(int64_t epoch, Logs& logs) override {
      inner->on_epoch_end(epoch, logs);
      rates->push_back(model()->optimizer().learning_rate());
    }
  };
  After after(callback);
  after.rates = &run.rates;
  run.history = script.run(callbacks::make(after));
  return run;
}

void expect_rates(const Rates& found, const Rates& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-7) << "epoch " << i;
}

TEST(ReduceLROnPlateau, CutsAfterPatienceAndThenCoolsDown) {
  const Trained found = run(std::vector<double>(9, 1.0), .1,
                            ReduceLROnPlateau({.factor = .5, .patience = 2, .cooldown = 1}));
  expect_rates(found.rates, {.1, .1, .05, .05, .025, .025, .0125, .0125, .00625});
}

TEST(ReduceLROnPlateau, SaysSoInKerasWords) {
  CaptureStdout();
  run({1, 1, 1}, .1, ReduceLROnPlateau({.factor = .5, .patience = 2, .verbose = 1}));
  EXPECT_EQ(GetCapturedStdout(),
            "\nEpoch 3: ReduceLROnPlateau reducing learning rate to 0.05000000074505806.\n");
}

TEST(ReduceLROnPlateau, DoesNotGoBelowMinLr) {
  const Trained found =
      run({1, 1, 1, 1}, .1, ReduceLROnPlateau({.factor = .5, .patience = 1, .min_lr = .04}));
  expect_rates(found.rates, {.1, .05, .04, .04});
}

TEST(ReduceLROnPlateau, TheLogsHaveTheRateBeforeTheCut) {
  const Trained found = run({1, 1, 1}, .1, ReduceLROnPlateau({.factor = .5, .patience = 1}));
  expect_rates(found.history.history.at("learning_rate"), {.1, .1, .05});
}

TEST(ReduceLROnPlateau, AnImprovementBelowMinDeltaIsNone) {
  const Trained found =
      run({1, 1 - 5e-5, 1 - 2e-4}, .1, ReduceLROnPlateau({.factor = .5, .patience = 2}));
  expect_rates(found.rates, {.1, .1, .1});
  expect_rates(
      run({1, 1 - 5e-5, 1 - 9e-5}, .1, ReduceLROnPlateau({.factor = .5, .patience = 2})).rates,
      {.1, .1, .05});
}

TEST(ReduceLROnPlateau, WrongArgumentsAreRefused) {
  EXPECT_ERROR(ReduceLROnPlateau({.factor = 1}), InvalidArgument, "factor");
  EXPECT_ERROR(ReduceLROnPlateau({.factor = 1.5}), InvalidArgument, "below 1");
  EXPECT_ERROR(ReduceLROnPlateau({.patience = -1}), InvalidArgument, "patience -1");
  EXPECT_ERROR(ReduceLROnPlateau({.mode = "up"}), InvalidArgument, "auto, min or max");
}

TEST(LearningRateScheduler, SetsTheRateAtTheBeginOfAnEpochAndLogsIt) {
  const Trained found =
      run({1, 1, 1}, 1, LearningRateScheduler([](int64_t epoch) { return epoch < 2 ? .5 : .25; }));
  expect_rates(found.rates, {.5, .5, .25});
  expect_rates(found.history.history.at("learning_rate"), {.5, .5, .25});
}

TEST(LearningRateScheduler, AScheduleOfTwoArgumentsSeesTheRateSoFar) {
  const Trained found = run({1, 1, 1}, 1, LearningRateScheduler([](int64_t epoch, double rate) {
                              return epoch == 0 ? rate : rate / 2;
                            }));
  expect_rates(found.rates, {1, .5, .25});
}

TEST(LearningRateScheduler, SaysSoInKerasWords) {
  CaptureStdout();
  run({1}, 1, LearningRateScheduler([](int64_t) { return .1; }, {.verbose = 1}));
  EXPECT_EQ(GetCapturedStdout(),
            "\nEpoch 1: LearningRateScheduler setting learning rate to 0.1.\n");
}

TEST(LearningRateScheduler, ARateThatIsNoneIsAnError) {
  EXPECT_ERROR(run({1}, 1, LearningRateScheduler([](int64_t) { return std::nan(""); })),
               InvalidArgument, "LearningRateScheduler [epoch 0]: the schedule gave nan");
  EXPECT_ERROR(run({1}, 1, LearningRateScheduler([](int64_t) { return -1.; })), InvalidArgument,
               "0 or more");
  EXPECT_ERROR(LearningRateScheduler(std::function<double(int64_t)>()), InvalidArgument, "empty");
}

// tensorflow#36612.
TEST(LearningRateCallbacks, AnOptimizerWithAScheduleIsRefusedBeforeTraining) {
  for (const bool plateau : {false, true}) {
    Still still;
    still.model.compile(
        {.optimizer = optimizers::SGD(
             {.learning_rate = optimizers::schedules::ExponentialDecay(
                  {.initial_learning_rate = .1, .decay_steps = 10, .decay_rate = .5})}),
         .loss = "mse"});
    const AnyCallback callback =
        plateau ? ReduceLROnPlateau() : LearningRateScheduler([](int64_t) { return .1; });
    int64_t steps = 0;
    EXPECT_ERROR(still.model.fit(
                     at::ones({1, 1}), at::zeros({1, 1}),
                     {.verbose = 0,
                      .callbacks = {callback,
                                    LambdaCallback({.on_train_batch_begin =
                                                        [&](int64_t, const Logs&) { ++steps; }})}}),
                 InvalidArgument, "schedule");
    EXPECT_EQ(steps, 0);
  }
}

}  // namespace
}  // namespace tutti::keras
