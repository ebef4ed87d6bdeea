// fit and its relatives on datasets that were distributed before.

#include "keras/line_model.h"
#include "tutti/base/log.h"
#include "tutti/keras/training.h"

namespace tutti::keras {
namespace {

using testing::column;
using testing::replicas;
using testing::still;

data::Dataset<std::tuple<Tensor, Tensor>> six_rows() {
  return data::from_tensor_slices(column({1, 2, 3, 4, 5, 6}), at::zeros({6, 1})).batch(2);
}

TEST(DistributedInput, UserIssue63_AnUnknownLengthIsFoundInTheFirstEpoch) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = still();
  auto data = strategy->distribute_dataset(
      six_rows().filter([](const Tensor& x, const Tensor&) { return x[0].item<float>() != 3; }));
  ASSERT_EQ(data.cardinality(), data::kUnknown);
  const History history = model->fit(data, {.epochs = 2, .verbose = 0, .validation_data = data});
  const double loss = (1. + 4 + 25 + 36) / 4;
  for (const char* name : {"loss", "val_loss"}) {
    ASSERT_EQ(history.history.at(name).size(), 2u);
    for (double found : history.history.at(name)) EXPECT_NEAR(found, loss, 1e-5) << name;
  }
  EXPECT_EQ(model->predict(data, {.verbose = 0}).size(0), 4);
}

TEST(DistributedInput, UserIssue63_AnEndlessOneAsksForTheNumberOfSteps) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = still();
  auto finite = strategy->distribute_dataset(six_rows());
  auto endless = strategy->distribute_dataset(six_rows().repeat());
  EXPECT_ERROR(model->fit(endless, {.verbose = 0}), InvalidArgument, "steps_per_epoch");
  EXPECT_ERROR(model->fit(finite, {.verbose = 0, .validation_data = endless}), InvalidArgument,
               "validation_steps");
  EXPECT_NEAR(model
                  ->fit(endless, {.verbose = 0,
                                  .validation_data = endless,
                                  .steps_per_epoch = 2,
                                  .validation_steps = 1})
                  .history.at("val_loss")[0],
              2.5, 1e-6);
}

TEST(DistributedInput, Spec115_MovingStatisticsOfAnEmptyReplicaAreNumbers) {
  auto strategy = replicas(4);
  auto scope = strategy->scope();
  Sequential model({layers::BatchNormalization(), layers::Dense(1)});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01}), .loss = "mse"});
  model.fit(strategy->distribute_dataset(
                data::from_tensor_slices(column({1, 2, 3}), column({0, 1, 0})).batch(3)),
            {.epochs = 3, .verbose = 0});
  for (const Tensor& weight : model.get_weights())
    EXPECT_TRUE(at::isfinite(weight).all().item<bool>());
}

TEST(DistributedInput, TheDebugLogSaysHowLongAnEpochWaitedForData) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = still();
  const LogLevel before = log_level();
  set_log_level(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  model->fit(strategy->distribute_dataset(six_rows()), {.epochs = 2, .verbose = 0});
  const std::string said = ::testing::internal::GetCapturedStderr();
  set_log_level(before);
  EXPECT_NE(said.find("epoch 2: "), std::string::npos) << said;
  EXPECT_NE(said.find(" ms waiting for data"), std::string::npos) << said;
}

}  // namespace
}  // namespace tutti::keras
