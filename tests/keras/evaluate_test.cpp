// What fit, evaluate and predict print, evaluate and predict themselves, single batches.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "keras/line_model.h"

namespace tutti::keras {
namespace {

using callbacks::LambdaCallback;
using layers::Dense;
using testing::Calls;
using testing::column;
using testing::Numbers;
using testing::Recorder;
using testing::replicas;
using testing::still;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

// ---- output

TEST(Verbose, TwoIsALineAnEpochWithValidation) {
  auto model = still();
  CaptureStdout();
  model->fit(column({1, 2}), column({0, 0}),
             {.batch_size = 1,
              .epochs = 2,
              .verbose = 2,
              .validation_data = std::pair(column({3}), column({0}))});
  const std::string text = GetCapturedStdout();
  EXPECT_EQ(text.rfind("Epoch 1/2\n2/2 - ", 0), 0u) << text;
  EXPECT_NE(text.find("/step - loss: 2.5000 - val_loss: 9.0000\nEpoch 2/2\n"), std::string::npos)
      << text;
}

TEST(Verbose, OneEpochHasNoHeadline) {
  auto model = still();
  CaptureStdout();
  model->fit(column({1}), column({0}), {.verbose = 2});
  EXPECT_EQ(GetCapturedStdout().rfind("1/1 - ", 0), 0u);
}

TEST(Verbose, ZeroIsSilent) {
  auto model = still();
  CaptureStdout();
  model->fit(column({1}), column({0}), {.epochs = 2, .verbose = 0});
  model->evaluate(column({1}), column({0}), {.verbose = 0});
  model->predict(column({1}), {.verbose = 0});
  EXPECT_EQ(GetCapturedStdout(), "");
}

TEST(Verbose, WithoutATerminalAutoIsALineAnEpoch) {
  auto model = still();
  CaptureStdout();
  model->fit(column({1}), column({0}));
  model->evaluate(column({1}), column({0}));
  model->predict(column({1}));
  const std::string text = GetCapturedStdout();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

TEST(Verbose, ABatchCallbackThatThrowsLeavesTheLineEnded) {
  auto model = still();
  CaptureStdout();
  EXPECT_THROW(model->fit(column({1, 2, 3}), column({0, 0, 0}),
                          {.batch_size = 1,
                           .verbose = 1,
                           .callbacks = {LambdaCallback({.on_train_batch_begin =
                                                             [](int64_t batch, const Logs&) {
                                                               if (batch == 2)
                                                                 throw std::runtime_error("stop");
                                                             }})}}),
               std::runtime_error);
  const std::string text = GetCapturedStdout();
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(model->fit(column({1}), column({0}), {.verbose = 0}).history.at("loss"), (Numbers{1}))
      << "and the model goes on";
}

TEST(Verbose, OtherNumbersAreRefused) {
  auto model = still();
  EXPECT_ERROR(model->fit(column({1}), column({0}), {.verbose = 3}), InvalidArgument,
               "verbose: 3, expected kVerboseAuto, 0, 1 or 2");
}

// ---- evaluate, predict, single batches

TEST(Evaluate, InABatchHookLeavesTheEpochsNumbersAlone) {
  auto model = still({.loss = "mse", .metrics = {"mae"}});
  Numbers inner;
  const History history = model->fit(
      column({1, 2}), column({0, 0}),
      {.batch_size = 1,
       .verbose = 0,
       .callbacks = {LambdaCallback({.on_train_batch_end = [&](int64_t, const Logs&) {
         inner.push_back(model->evaluate(column({9}), column({0}), {.verbose = 0})["loss"]);
       }})}});
  EXPECT_EQ(inner, (Numbers{81, 81}));
  EXPECT_EQ(history.history.at("loss"), (Numbers{2.5}));
  EXPECT_EQ(history.history.at("mae"), (Numbers{1.5}));
}

TEST(Evaluate, ThatFailsInABatchHookLeavesThemAloneToo) {
  auto model = still();
  const History history = model->fit(
      column({1, 2}), column({0, 0}),
      {.batch_size = 1,
       .verbose = 0,
       .callbacks = {LambdaCallback({.on_train_batch_end = [&](int64_t, const Logs&) {
         EXPECT_THROW(model->evaluate(column({9}), at::zeros({1, 2}), {.verbose = 0}), Error);
       }})}});
  EXPECT_EQ(history.history.at("loss"), (Numbers{2.5}));
}

TEST(Evaluate, CallsTheTestHooks) {
  auto model = still();
  Recorder recorder;
  model->evaluate(column({1, 2}), column({0, 0}),
                  {.batch_size = 1, .verbose = 0, .callbacks = {callbacks::make(recorder)}});
  EXPECT_EQ(*recorder.calls, (Calls{"test", "test batch 0", "test batch end 0 1", "test batch 1",
                                    "test batch end 1 2.5", "test end 2.5"}));
}

TEST(Evaluate, ResetsTheMetricsFirst) {
  auto model = still();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(model->evaluate(column({2}), column({0}), {.verbose = 0})["loss"], 4);
}

TEST(Evaluate, MoreStepsThanThereIsDataIsAWarning) {
  auto model = still();
  CaptureStderr();
  EXPECT_EQ(model->evaluate(column({2}), column({0}), {.verbose = 0, .steps = 2})["loss"], 4);
  EXPECT_NE(GetCapturedStderr().find("evaluate ["), std::string::npos);
  EXPECT_ERROR(model->evaluate(column({2}), column({0}), {.verbose = 0, .steps = 0}),
               InvalidArgument, "evaluate: steps 0, expected at least 1");
}

TEST(Predict, KeepsTheOrderOfRowsAndCallsTheHooks) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    Recorder recorder;
    const Tensor x = at::arange(7, at::kFloat).unsqueeze(1);
    EXPECT_TENSOR_EQ(
        model->predict(x,
                       {.batch_size = 4, .verbose = 0, .callbacks = {callbacks::make(recorder)}}),
        x);
    EXPECT_EQ(*recorder.calls, (Calls{"predict", "predict batch 0", "predict batch end 0",
                                      "predict batch 1", "predict batch end 1", "predict end"}));
    EXPECT_TENSOR_EQ(model->predict(data::from_tensor_slices(x).batch(4), {.verbose = 0}), x);
  }
}

TEST(Predict, NeedsNoCompileAndGivesNoGradient) {
  Sequential model({Dense(1)});
  const Tensor y = model.predict(at::ones({2, 3}), {.verbose = 0});
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(y.size(0), 2);
}

TEST(TrainOnBatch, DoesNotResetTheMetrics) {
  auto model = still();
  EXPECT_EQ(model->train_on_batch(column({1}), column({0}))["loss"], 1);
  EXPECT_EQ(model->train_on_batch(column({3}), column({0}))["loss"], 5);
  model->reset_metrics();
  EXPECT_EQ(model->test_on_batch(column({3}), column({0}))["loss"], 9);
}

TEST(Metrics, AStringStaysTheName) {
  auto model = still({.loss = "mse", .metrics = {"acc", metrics::MeanAbsoluteError("own")}});
  const auto result = model->evaluate(column({.2f, .9f}), column({0, 1}), {.verbose = 0});
  EXPECT_EQ(result["acc"], 1);
  EXPECT_NEAR(result["own"], .15, 1e-6);
  std::vector<std::string> names;
  for (const auto& metric : model->metrics()) names.push_back(metric.name());
  EXPECT_EQ(names, (std::vector<std::string>{"loss", "acc", "own"}));
}

}  // namespace
}  // namespace tutti::keras
