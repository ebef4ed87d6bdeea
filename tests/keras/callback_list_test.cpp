// CallbackList, History, ProgbarLogger, LambdaCallback's hooks, SwapEMAWeights, plot_history.

#include <cmath>

#include "keras/callback_script.h"
#include "keras/line_model.h"
#include "tutti/keras/plot.h"

namespace tutti::keras {
namespace {

using callbacks::AnyCallback;
using callbacks::CallbackList;
using callbacks::LambdaCallback;
using callbacks::ProgbarLogger;
using callbacks::SwapEMAWeights;
using testing::Calls;
using testing::column;
using testing::Folder;
using testing::line;
using testing::Recorder;
using testing::still;
using testing::text_of;
using testing::weight;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;

/// The bar of the process, as it was before.
class BarConfig {
 public:
  explicit BarConfig(const config::ProgressBarConfig& config) { config::set_progress_bar(config); }
  ~BarConfig() { config::set_progress_bar(before_); }

 private:
  config::ProgressBarConfig before_ = config::progress_bar();
};

// ---- CallbackList and History

TEST(CallbackList, CallsTheHooksOfAllInALoopOfOnesOwn) {
  Recorder recorder;
  CallbackList list({callbacks::make(recorder)}, {.add_history = true, .verbose = 0, .epochs = 2});
  list.on_train_begin();
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    list.on_epoch_begin(epoch);
    list.on_train_batch_begin(0);
    list.on_batch_end(0, {{"loss", 2}});
    list.on_epoch_end(epoch, {{"loss", 3. - static_cast<double>(epoch)}});
  }
  list.on_train_end({{"loss", 2}});
  list.on_predict_begin();
  list.on_predict_batch_begin(4);
  list.on_predict_batch_end(4);
  list.on_predict_end();
  EXPECT_EQ(*recorder.calls,
            (Calls{"train", "epoch 0", "batch 0", "batch end 0 2", "epoch end 0 1", "epoch 1",
                   "batch 0", "batch end 0 2", "epoch end 1 1", "train end 1", "predict",
                   "predict batch 4", "predict batch end 4", "predict end"}));
  EXPECT_EQ(list.history().history.at("loss"), (std::vector<double>{3, 2}));
  EXPECT_EQ(list.history().epoch, (std::vector<int64_t>{0, 1}));
}

TEST(CallbackList, WithoutAHistoryThereIsNone) {
  EXPECT_ERROR(CallbackList({}).history(), FailedPrecondition, "add_history");
}

TEST(CallbackList, WhatIsAppendedKnowsModelAndParams) {
  const auto model = still();
  CallbackList list({}, {.model = model.get(), .verbose = 2, .epochs = 7, .steps = 5});
  Recorder recorder;
  const AnyCallback handle = callbacks::make(recorder);
  list.append(handle);
  EXPECT_EQ(handle->model(), model.get());
  EXPECT_EQ(handle->params().epochs, 7);
  EXPECT_EQ(handle->params().steps, 5);
}

TEST(CallbackList, OnBatchIsAnotherNameOfOnTrainBatch) {
  struct Own : callbacks::Callback {
    Calls* calls = nullptr;
    void on_batch_begin(int64_t batch, const Logs&) override { calls->push_back(cat("b", batch)); }
    void on_batch_end(int64_t batch, const Logs&) override { calls->push_back(cat("e", batch)); }
  };
  Calls calls;
  Own own;
  own.calls = &calls;
  still()->fit(column({1, 2}), column({0, 0}),
               {.batch_size = 1, .verbose = 0, .callbacks = {callbacks::make(own)}});
  EXPECT_EQ(calls, (Calls{"b0", "e0", "b1", "e1"}));
}

TEST(History, AsACallbackItHasWhatFitReturns) {
  const auto own = std::make_shared<callbacks::History>();
  const auto model = still();
  for (int run = 0; run < 2; ++run) {
    const History history = model->fit(column({1, 2}), column({0, 0}),
                                       {.epochs = 4,
                                        .verbose = 0,
                                        .callbacks = {own},
                                        .validation_data = std::pair(column({5}), column({0})),
                                        .validation_freq = 2});
    EXPECT_EQ(own->history, history.history);
    EXPECT_EQ(own->epoch, history.epoch) << "a training begins anew";
    EXPECT_EQ(history.epochs_of.at("val_loss"), (std::vector<int64_t>{1, 3}));
  }
}

// ---- LambdaCallback

TEST(LambdaCallback, HasAFunctionForEveryHook) {
  Calls calls;
  const auto named = [&](const char* name) {
    return [&calls, name](const Logs&) { calls.emplace_back(name); };
  };
  const auto counted = [&](const char* name) {
    return [&calls, name](int64_t index, const Logs&) { calls.push_back(cat(name, " ", index)); };
  };
  const AnyCallback all = LambdaCallback({.on_epoch_begin = counted("epoch"),
                                          .on_epoch_end = counted("epoch end"),
                                          .on_train_begin = named("train"),
                                          .on_train_end = named("train end"),
                                          .on_train_batch_begin = counted("batch"),
                                          .on_train_batch_end = counted("batch end"),
                                          .on_test_begin = named("test"),
                                          .on_test_end = named("test end"),
                                          .on_test_batch_begin = counted("test batch"),
                                          .on_test_batch_end = counted("test batch end"),
                                          .on_predict_begin = named("predict"),
                                          .on_predict_end = named("predict end"),
                                          .on_predict_batch_begin = counted("predict batch"),
                                          .on_predict_batch_end = counted("predict batch end")});
  const auto model = still();
  model->fit(
      column({1}), column({0}),
      {.verbose = 0, .callbacks = {all}, .validation_data = std::pair(column({5}), column({0}))});
  model->predict(column({1}), {.verbose = 0, .callbacks = {all}});
  EXPECT_EQ(calls, (Calls{"train", "epoch 0", "batch 0", "batch end 0", "test", "test batch 0",
                          "test batch end 0", "test end", "epoch end 0", "train end", "predict",
                          "predict batch 0", "predict batch end 0", "predict end"}));
}

// ---- ProgbarLogger

/// Times are those of the run; digits and units in front of a step's are dropped.
std::string without_times(std::string text) {
  const auto cut = [&](const std::string& begin, const std::string& end) {
    for (std::size_t at = text.find(begin); at != std::string::npos;
         at = text.find(begin, at + begin.size())) {
      const std::size_t close = text.find(end, at + begin.size());
      if (close != std::string::npos) text.erase(at + begin.size(), close - at - begin.size());
    }
  };
  cut("] - ", " - ");
  cut("3/3 - ", " - loss");
  cut("1.0000 - 0", "\n");
  return text;
}

TEST(ProgbarLogger, GivenToFitItDrawsInsteadOfFit) {
  const auto text = [](std::vector<AnyCallback> callbacks) {
    CaptureStdout();
    still()->fit(column({1, 1, 1}), column({0, 0, 0}),
                 {.batch_size = 1, .epochs = 2, .verbose = 2, .callbacks = std::move(callbacks)});
    return without_times(GetCapturedStdout());
  };
  const std::string own = text({});
  EXPECT_EQ(text({ProgbarLogger()}), own);
  EXPECT_EQ(own, "Epoch 1/2\n3/3 -  - loss: 1.0000\nEpoch 2/2\n3/3 -  - loss: 1.0000\n");
}

TEST(ProgbarLogger, InAListItDrawsTheLastLineOfAnEpoch) {
  const BarConfig config({.layout = "classic", .dynamic = false});
  CallbackList list({}, {.add_progbar = true, .steps = 2});
  CaptureStdout();
  list.on_train_begin();
  list.on_epoch_begin(0);
  list.on_train_batch_end(0, {{"loss", 1}});
  list.on_train_batch_end(1, {{"loss", .5}});
  list.on_epoch_end(0, {{"loss", .5}, {"val_loss", .25}});
  list.on_train_end();
  EXPECT_EQ(without_times(GetCapturedStdout()),
            "1/2 [==============>...............] -  - loss: 1.0000\n"
            "2/2 [==============================] -  - loss: 0.5000 - val_loss: 0.2500\n");
}

TEST(ProgressBars, TheClassicOneHasNumbersInTheOrderOfCompile) {
  const BarConfig config({.layout = "classic", .dynamic = false});
  const auto model = still({.loss = "mse", .metrics = {"mse", "mae"}});
  CaptureStdout();
  model->fit(column({1}), column({0}),
             {.verbose = 1, .validation_data = std::pair(column({2}), column({0}))});
  const std::string text = GetCapturedStdout();
  EXPECT_NE(text.find("loss: 1.0000 - mse: 1.0000 - mae: 1.0000 - val_loss: 4.0000 - val_mse: "
                      "4.0000 - val_mae: 2.0000\n"),
            std::string::npos)
      << text;
}

TEST(ProgressBars, EvaluateAndPredictHaveBarsToo) {
  const BarConfig config({.layout = "classic", .dynamic = false});
  const auto model = still();
  CaptureStdout();
  model->evaluate(column({1, 1}), column({0, 0}), {.batch_size = 2, .verbose = 1});
  model->predict(column({1, 1}), {.batch_size = 2, .verbose = 1});
  const std::string text = without_times(GetCapturedStdout());
  EXPECT_NE(text.find("1/1 [==============================] -  - loss: 1.0000\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.rfind("1/1 [==============================] - "), std::string::npos) << text;
}

TEST(ProgressBars, AnUnknownLayoutIsRefused) {
  EXPECT_ERROR(config::set_progress_bar("fancy"), InvalidArgument, "\"keras3\" or \"classic\"");
  EXPECT_EQ(config::progress_bar().layout, "keras3");
}

// ---- SwapEMAWeights

CompileOptions with_average() {
  return {.optimizer = optimizers::SGD({.learning_rate = .1, .use_ema = true, .ema_momentum = .5}),
          .loss = "mse"};
}
double average_of(Model& model) {
  return model.optimizer().slots("average")[0].read_value().item<double>();
}

TEST(SwapEMAWeights, ValidationSeesTheAverageAndTrainingDoesNot) {
  const auto model = line(with_average());
  std::vector<double> during, after;
  model->fit(
      column({1, 1, 1}), column({0, 0, 0}),
      {.batch_size = 1,
       .epochs = 2,
       .verbose = 0,
       .callbacks = {SwapEMAWeights(),
                     LambdaCallback({.on_epoch_end =
                                         [&](int64_t, const Logs&) {
                                           after.push_back(weight(*model) - average_of(*model));
                                         },
                                     .on_test_begin =
                                         [&](const Logs&) {
                                           during.push_back(weight(*model) - average_of(*model));
                                         }})},
       .validation_data = std::pair(column({1}), column({0}))});
  EXPECT_EQ(during, (std::vector<double>{0, 0}));
  for (const double difference : after) EXPECT_LT(difference, -1e-3) << "the weights run ahead";
  EXPECT_EQ(weight(*model), average_of(*model)) << "after fit, as use_ema says";
}

TEST(SwapEMAWeights, TrainingIsWhatItIsWithoutIt) {
  const auto train = [](std::vector<AnyCallback> callbacks) {
    const auto model = line(with_average());
    model->fit(column({1, 2, 3}), column({0, 1, 0}),
               {.batch_size = 1,
                .epochs = 3,
                .verbose = 0,
                .callbacks = std::move(callbacks),
                .validation_data = std::pair(column({1}), column({0})),
                .shuffle = false});
    return weight(*model);
  };
  const double plain = train({});
  EXPECT_EQ(train({SwapEMAWeights()}), plain);
  EXPECT_EQ(train({SwapEMAWeights({.swap_on_epoch = true})}), plain);
}

TEST(SwapEMAWeights, OnEpochLaterCallbacksSeeTheAverageEvenWhenTrainingStops) {
  const auto model = line(with_average());
  std::vector<double> seen;
  model->fit(column({1, 1}), column({0, 0}),
             {.batch_size = 1,
              .epochs = 5,
              .verbose = 0,
              .callbacks = {SwapEMAWeights({.swap_on_epoch = true}),
                            LambdaCallback({.on_epoch_end = [&](int64_t epoch, const Logs&) {
                              seen.push_back(weight(*model) - average_of(*model));
                              model->stop_training = epoch == 1;
                            }})}});
  EXPECT_EQ(seen, (std::vector<double>{0, 0}));
  EXPECT_EQ(weight(*model), average_of(*model));
}

TEST(SwapEMAWeights, PredictLeavesTheWeightsAsTheyWere) {
  const auto model = line(with_average());
  model->train_on_batch(column({1}), column({0}));
  model->train_on_batch(column({1}), column({0}));
  const double trained = weight(*model);
  const Tensor y = model->predict(column({1}), {.verbose = 0, .callbacks = {SwapEMAWeights()}});
  EXPECT_EQ(y.item<double>(), average_of(*model));
  EXPECT_EQ(weight(*model), trained);
}

TEST(SwapEMAWeights, AnOptimizerWithoutAverageIsRefused) {
  EXPECT_ERROR(
      still()->fit(column({1}), column({0}), {.verbose = 0, .callbacks = {SwapEMAWeights()}}),
      InvalidArgument, "use_ema = true");
}

// ---- plot_history

TEST(PlotHistory, DrawsAChartForEachNameWithItsValidation) {
  const Folder folder;
  const History history = still({.loss = "mse", .metrics = {"mae"}})
                              ->fit(column({1, 2}), column({0, 0}),
                                    {.epochs = 4,
                                     .verbose = 0,
                                     .validation_data = std::pair(column({5}), column({0})),
                                     .validation_freq = 2});
  utils::plot_history(history, folder / "history.svg");
  const std::string svg = text_of(folder / "history.svg");
  EXPECT_EQ(svg.rfind("<svg", 0), 0u) << svg.substr(0, 80);
  for (const char* part : {">loss<", ">mae<", ">val_loss<", ">epoch<"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
}

TEST(PlotHistory, AHistoryWithoutEpochsIsRefused) {
  EXPECT_ERROR(utils::plot_history({}, "x.svg"), InvalidArgument, "without epochs");
}

}  // namespace
}  // namespace tutti::keras
