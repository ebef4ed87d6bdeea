// fit. Expected numbers are worked out by hand: y = w x, mean squared error.
#include "tutti/keras/training.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "keras/line_model.h"
#include "tutti/distribute/config.h"

namespace tutti::keras {
namespace {

using callbacks::LambdaCallback;
using layers::Dense;
using testing::Calls;
using testing::column;
using testing::line;
using testing::Numbers;
using testing::Recorder;
using testing::replicas;
using testing::Steps;
using testing::still;
using testing::weight;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

// ---- the loop

TEST(Fit, CallsTheHooksInKerasOrder) {
  auto model = still();
  Recorder recorder;
  model->fit(column({1, 2, 3}), column({0, 0, 0}),
             {.batch_size = 2,
              .epochs = 2,
              .verbose = 0,
              .callbacks = {callbacks::make(recorder)},
              .validation_data = std::pair(column({5}), column({0})),
              .shuffle = false,
              .validation_freq = 2});
  EXPECT_EQ(*recorder.calls,
            (Calls{"train", "epoch 0", "batch 0", "batch end 0 2.5", "batch 1",
                   "batch end 1 4.66667", "epoch end 0 1", "epoch 1", "batch 0", "batch end 0 2.5",
                   "batch 1", "batch end 1 4.66667", "test", "test batch 0", "test batch end 0 25",
                   "test end 25", "epoch end 1 2", "train end 2"}));
}

TEST(Fit, TheLossIsTheMeanOverSamplesNotOverBatches) {
  auto model = still();
  const History history = model->fit(column({1, 2, 3}), column({0, 0, 0}),
                                     {.batch_size = 2, .verbose = 0, .shuffle = false});
  EXPECT_NEAR(history.history.at("loss")[0], 14. / 3, 1e-6);
  EXPECT_EQ(history.epoch, (Steps{0}));
}

TEST(Fit, StepsPerExecutionNamesTheStepAtWhichAnExecutionEnds) {
  auto model = still({.loss = "mse", .steps_per_execution = 2});
  Recorder recorder;
  model->fit(
      column({1, 2, 3}), column({0, 0, 0}),
      {.batch_size = 1, .verbose = 0, .callbacks = {callbacks::make(recorder)}, .shuffle = false});
  EXPECT_EQ(*recorder.calls, (Calls{"train", "epoch 0", "batch 0", "batch end 1 2.5", "batch 2",
                                    "batch end 3 4.66667", "epoch end 0 1", "train end 1"}));
}

TEST(Fit, StopTrainingIsLookedAtAfterEachBatch) {
  auto model = still();
  Steps batches;
  const History history = model->fit(
      column({1, 2, 3}), column({0, 0, 0}),
      {.batch_size = 1,
       .epochs = 3,
       .verbose = 0,
       .callbacks = {LambdaCallback({.on_train_batch_end = [&](int64_t batch, const Logs&) {
         batches.push_back(batch);
         model->stop_training = batch == 1;
       }})}});
  EXPECT_EQ(batches, (Steps{0, 1}));
  EXPECT_EQ(history.epoch, (Steps{0})) << "the epoch that was cut short is in the history";
}

TEST(Fit, StopTrainingBeforeABatchLetsThatBatchRun) {
  auto model = still();
  const History history = model->fit(
      column({1, 2}), column({0, 0}),
      {.batch_size = 1,
       .epochs = 3,
       .verbose = 0,
       .callbacks = {LambdaCallback(
           {.on_epoch_begin = [&](int64_t, const Logs&) { model->stop_training = true; }})},
       .shuffle = false});
  EXPECT_EQ(history.history.at("loss"), (Numbers{1}));
}

TEST(Fit, InitialEpochIsAnIndexAndEpochsTheLastOne) {
  auto model = still();
  const History history =
      model->fit(column({1}), column({0}), {.epochs = 4, .verbose = 0, .initial_epoch = 2});
  EXPECT_EQ(history.epoch, (Steps{2, 3}));
  EXPECT_TRUE(
      model->fit(column({1}), column({0}), {.verbose = 0, .initial_epoch = 1}).epoch.empty());
}

TEST(Fit, WorksOutsideTheScopeInWhichTheModelWasMade) {
  auto strategy = replicas(2);
  std::unique_ptr<Sequential> model;
  {
    auto scope = strategy->scope();
    model = line({.optimizer = optimizers::SGD({.learning_rate = .1}), .loss = "mse"});
  }
  model->fit(column({1, 1}), column({0, 0}), {.verbose = 0});
  EXPECT_NEAR(weight(*model), .8, 1e-6);
  EXPECT_NEAR(model->evaluate(column({1, 1}), column({0, 0}), {.verbose = 0})["loss"], .64, 1e-6);
}

TEST(Fit, ShuffleShowsEachRowOnceAnEpochInAnotherOrder) {
  auto model = still();
  std::vector<Numbers> epochs(2);
  double before = 0;
  model->fit(at::arange(1, 33, at::kFloat).unsqueeze(1), at::zeros({32, 1}),
             {.batch_size = 1,
              .epochs = 2,
              .verbose = 0,
              .callbacks = {LambdaCallback(
                  {.on_epoch_begin = [&](int64_t, const Logs&) { before = 0; },
                   .on_train_batch_end =
                       [&](int64_t batch, const Logs& logs) {
                         const double sum = logs["loss"] * static_cast<double>(batch + 1);
                         auto& rows = epochs[epochs[0].size() < 32 ? 0 : 1];
                         rows.push_back(std::round(std::sqrt(std::max(0., sum - before))));
                         before = sum;
                       }})}});
  EXPECT_NE(epochs[0], epochs[1]);
  for (Numbers& rows : epochs) {
    std::sort(rows.begin(), rows.end());
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], static_cast<double>(i + 1));
  }
}

TEST(Fit, EqualSeedsGiveEqualTrainings) {
  const auto train = [] {
    set_seed(7);
    auto model = line({.optimizer = optimizers::SGD({.learning_rate = .01}), .loss = "mse"});
    model->fit(at::arange(1, 10, at::kFloat).unsqueeze(1), at::zeros({9, 1}),
               {.batch_size = 2, .verbose = 0});
    return weight(*model);
  };
  EXPECT_EQ(train(), train());
}

// ---- data

TEST(Fit, DoublesAndIntegersAreTaken) {
  auto model = still();
  const Tensor x = at::tensor({1., 2.}, at::kDouble).unsqueeze(1);
  const Tensor y = at::tensor({0, 0}, at::kInt).unsqueeze(1);
  const auto weights = at::tensor({2., 4.}, at::kDouble);
  const History history = model->fit(x, y, {.verbose = 0, .sample_weight = weights});
  EXPECT_NEAR(history.history.at("loss")[0], (2 * 1 + 4 * 4) / 2., 1e-6);
}

TEST(Fit, ADatasetGivesXYAndSampleWeights) {
  auto model = still();
  const auto data =
      data::from_tensor_slices(column({1, 2, 3}), column({0, 0, 0}), at::tensor({1.f, 0.f, 2.f}))
          .batch(2);
  EXPECT_NEAR(model->fit(data, {.verbose = 0}).history.at("loss")[0], 19. / 3, 1e-6);
  EXPECT_NEAR(model->evaluate(data, {.verbose = 0})["loss"], 19. / 3, 1e-6);
}

TEST(Fit, ADistributedDatasetIsTakenAsItIs) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = still();
  auto data = strategy->distribute_dataset(
      data::from_tensor_slices(column({1, 2, 3}), column({0, 0, 0})).batch(2));
  EXPECT_NEAR(model->fit(data, {.verbose = 0, .validation_data = data}).history.at("val_loss")[0],
              14. / 3, 1e-6);
  EXPECT_NEAR(model->evaluate(data, {.verbose = 0})["loss"], 14. / 3, 1e-6);
  EXPECT_TENSOR_EQ(model->predict(data, {.verbose = 0}), column({1, 2, 3}));
}

TEST(Fit, ADatasetDistributedToAnotherNumberOfReplicasIsRefused) {
  auto two = replicas(2);
  auto three = replicas(3);
  const auto dataset = data::from_tensor_slices(column({1, 2, 3}), column({0, 0, 0})).batch(3);
  const auto data = two->distribute_dataset(dataset);
  auto scope = three->scope();
  auto model = still();
  EXPECT_ERROR(model->fit(data, {.verbose = 0}), InvalidArgument,
               "fit: a dataset that was distributed to 2 replicas, expected 3");
  EXPECT_ERROR(model->evaluate(data, {.verbose = 0}), InvalidArgument, "evaluate: a dataset");
  EXPECT_ERROR(model->predict(data, {.verbose = 0}), InvalidArgument, "predict: a dataset");
}

TEST(Fit, ValidationSplitIsCutFromTheEndBeforeShuffling) {
  auto model = still();
  const History history =
      model->fit(column({1, 1, 1, 1, 1, 1, 1, 3, 3, 3}), at::zeros({10, 1}),
                 {.batch_size = 4, .epochs = 3, .verbose = 0, .validation_split = .3});
  EXPECT_EQ(history.history.at("loss"), (Numbers{1, 1, 1}));
  EXPECT_EQ(history.history.at("val_loss"), (Numbers{9, 9, 9}));
}

TEST(Fit, ValidationSplitTakesTheSampleWeightsAlong) {
  auto model = still();
  const History history = model->fit(
      column({1, 1, 2, 2}), at::zeros({4, 1}),
      {.verbose = 0, .validation_split = .5, .sample_weight = at::tensor({1.f, 3.f, 0.f, 1.f})});
  EXPECT_EQ(history.history.at("loss"), (Numbers{2}));
  EXPECT_EQ(history.history.at("val_loss"), (Numbers{2}));
}

TEST(Fit, ValidationDataWinsOverTheSplit) {
  auto model = still();
  const History history = model->fit(
      column({1, 1, 5, 5}), at::zeros({4, 1}),
      {.verbose = 0,
       .validation_split = .5,
       .validation_data = std::tuple(column({2, 2}), column({0, 0}), at::tensor({1.f, 3.f}))});
  EXPECT_EQ(history.history.at("loss"), (Numbers{13}));
  EXPECT_EQ(history.history.at("val_loss"), (Numbers{8}));
}

TEST(Fit, ASplitWithoutRowsOnOneSideIsRefused) {
  auto model = still();
  const Tensor x = column({1, 2});
  EXPECT_ERROR(model->fit(x, x, {.verbose = 0, .validation_split = .9}), InvalidArgument,
               "of 2 rows leaves 0 to train and 2 to validate on");
  EXPECT_ERROR(model->fit(x, x, {.verbose = 0, .validation_split = 1}), InvalidArgument,
               "validation_split 1, expected from 0 to below 1");
}

TEST(Fit, ClassWeightsMultiplyTheLossAndOnlyWeightedMetrics) {
  auto model = still({.loss = "mse", .metrics = {"mse"}, .weighted_metrics = {"mae"}});
  const Tensor x = column({2, 3});
  const Tensor y = at::tensor({0, 1}, at::kLong);
  const History history = model->fit(x, y, {.verbose = 0, .class_weight = {{1, 3}}});
  EXPECT_NEAR(history.history.at("loss")[0], (4 + 3 * 4) / 2., 1e-6);
  EXPECT_NEAR(history.history.at("mse")[0], 4, 1e-6);
  EXPECT_NEAR(history.history.at("mae")[0], (1 * 2 + 3 * 2) / 4., 1e-6);
  auto of_dataset = still({.loss = "mse"});
  EXPECT_NEAR(
      of_dataset
          ->fit(data::from_tensor_slices(x, y).batch(2), {.verbose = 0, .class_weight = {{1, 3}}})
          .history.at("loss")[0],
      8, 1e-6);
}

TEST(Fit, ClassWeightsOfOneHotLabelsGoByTheLargest) {
  Sequential model({Dense(2, {.use_bias = false, .input_shape = {2}})});
  model.set_weights({at::eye(2)});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
  const Tensor y = at::eye(2);
  EXPECT_NEAR(model.fit(at::zeros({2, 2}), y, {.verbose = 0, .class_weight = {{1, 3}}})
                  .history.at("loss")[0],
              (.5 + 1.5) / 2, 1e-6);
}

// ---- epochs of steps

TEST(StepsPerEpoch, KeepTheIteratorOfAnEndlessDataset) {
  auto model = still();
  const auto data = data::from_tensor_slices(column({1, 2, 3}), column({0, 0, 0})).batch(1);
  const History history =
      model->fit(data.repeat(), {.epochs = 3, .verbose = 0, .steps_per_epoch = 2});
  EXPECT_EQ(history.history.at("loss"), (Numbers{2.5, 5, 6.5})) << "1 2, 3 1, 2 3";
}

TEST(StepsPerEpoch, AFiniteDatasetBeginsAgainAtTheBorderOfAnEpoch) {
  auto model = still();
  const auto data = data::from_tensor_slices(column({1, 3}), column({0, 0})).batch(1);
  CaptureStderr();
  const History history = model->fit(data, {.epochs = 2, .verbose = 0, .steps_per_epoch = 2});
  EXPECT_EQ(GetCapturedStderr(), "");
  EXPECT_EQ(history.history.at("loss"), (Numbers{5, 5}));
}

TEST(StepsPerEpoch, DataThatRunOutStopTrainingWithAWarning) {
  auto model = still();
  const auto data = data::from_tensor_slices(column({1, 2, 3}), column({0, 0, 0})).batch(1);
  CaptureStderr();
  const History history =
      model->fit(data, {.epochs = 5, .verbose = 0, .validation_data = data, .steps_per_epoch = 2});
  EXPECT_NE(GetCapturedStderr().find(
                "Your input ran out of data; interrupting training. Make sure that your dataset or "
                "generator can generate at least `steps_per_epoch * epochs` batches. You may need "
                "to use the `.repeat()` function when building your dataset."),
            std::string::npos);
  EXPECT_EQ(history.history.at("loss"), (Numbers{2.5, 9}));
  EXPECT_EQ(history.history.at("val_loss").size(), 2u) << "the cut epoch is validated too";
}

TEST(StepsPerEpoch, AnEndlessDatasetNeedsThem) {
  auto model = still();
  const auto data = data::from_tensor_slices(column({1}), column({0})).batch(1).repeat();
  EXPECT_ERROR(model->fit(data, {.verbose = 0}), InvalidArgument,
               "fit: a dataset without end, expected steps_per_epoch");
  EXPECT_ERROR(model->evaluate(data, {.verbose = 0}), InvalidArgument,
               "evaluate: a dataset without end, expected steps");
  EXPECT_ERROR(model->predict(data, {.verbose = 0}), InvalidArgument, "predict: a dataset without");
  EXPECT_ERROR(model->fit(column({1}), column({0}), {.verbose = 0, .validation_data = data}),
               InvalidArgument, "expected validation_steps");
  EXPECT_EQ(model->evaluate(data, {.verbose = 0, .steps = 2})["loss"], 1);
  EXPECT_EQ(model->predict(data, {.verbose = 0, .steps = 2}).size(0), 2);
  EXPECT_EQ(model
                ->fit(column({1}), column({0}),
                      {.verbose = 0, .validation_data = data, .validation_steps = 3})
                .history.at("val_loss"),
            (Numbers{1}));
}

TEST(StepsPerEpoch, AnUnknownLengthIsFoundOutAndMayChange) {
  auto model = still();
  int64_t pass = 0;
  const auto all = data::from_tensor_slices(column({1, 1, 1, 3}), column({0, 0, 0, 0}));
  const auto data =
      all.filter([&pass](Tensor x, Tensor) { return x.item<float>() < 2 || pass > 0; }).batch(2);
  CaptureStdout();
  const History history = model->fit(
      data,
      {.epochs = 2,
       .verbose = 2,
       .callbacks = {LambdaCallback({.on_epoch_end = [&](int64_t, const Logs&) { ++pass; }})}});
  const std::string text = GetCapturedStdout();
  EXPECT_EQ(history.history.at("loss"), (Numbers{1, 3})) << "3 rows, then 4";
  EXPECT_NE(text.find("Epoch 1/2\n2/2 - "), std::string::npos) << text;
  EXPECT_NE(text.find("Epoch 2/2\n2/2 - "), std::string::npos) << text;
}

TEST(StepsPerEpoch, AnUnknownLengthShowsInTheFirstBarOnly) {
  auto model = still();
  const auto data = data::from_tensor_slices(column({1, 1}), column({0, 0}))
                        .filter([](Tensor, Tensor) { return true; })
                        .batch(1);
  CaptureStdout();
  model->fit(data, {.epochs = 2, .verbose = 1});
  const std::string text = GetCapturedStdout();
  const auto second = text.find("Epoch 2/2");
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_LT(text.find("      1/Unknown"), second) << text;
  EXPECT_EQ(text.find("Unknown", second), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::keras
