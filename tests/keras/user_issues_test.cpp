// Rows of spec/user_issues.md on arithmetic, graphs, BatchNormalization and the training loop: one
// list in the order of its rows, longer than usual for that.

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "keras/line_model.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"

namespace tutti::keras {
namespace {

using distribute::get_replica_context;
using distribute::ReduceOp;
using layers::BatchNormalization;
using layers::Dense;
using testing::column;
using testing::line;
using testing::replicas;
using testing::still;
using testing::weight;

int own_id() { return get_replica_context()->replica_id_in_sync_group(); }
Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}
FitOptions quiet(int64_t batch, int64_t epochs = 1) {
  return {.batch_size = batch, .epochs = epochs, .verbose = 0, .shuffle = false};
}
/// Elements (x, y) of y = w x with labels 0: with w = 1 the loss of a row is x^2.
data::Dataset<Nest> squares(const std::vector<float>& x) {
  return data::from_tensor_slices(column(x), at::zeros({static_cast<int64_t>(x.size()), 1}));
}

// ---- uneven input

TEST(UserIssues, Issue5_APartialLastBatchAndASecondEpochJustWork) {
  for (int count : {1, 2, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    const History history =
        model->fit(squares({1, 2, 3, 4, 5}).batch(4), {.epochs = 3, .verbose = 0});
    for (double loss : history.history.at("loss")) EXPECT_NEAR(loss, 11, 1e-5);
  }
}

TEST(UserIssues, Issue6_AccuracyNeedsNeitherStepsPerEpochNorRepeat) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  Sequential model({Dense(3, {.input_shape = {4}})});
  model.compile({.loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const auto dataset = data::from_tensor_slices(rows(7, 4), at::arange(7, at::kLong) % 3).batch(3);
  const History history = model.fit(dataset, {.epochs = 2, .verbose = 0});
  EXPECT_EQ(history.history.at("accuracy").size(), 2u);
}

TEST(UserIssues, Issue8_EvaluationCoversEveryRowOnce) {
  for (int count : {1, 2, 3, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still({.loss = "mse", .metrics = {"mae"}});
    const Logs logs = model->evaluate(squares({1, 2, 4, 8, 16, 32, 64}).batch(3), {.verbose = 0});
    EXPECT_NEAR(logs["mae"] * 7, 127, 1e-3) << count;
    EXPECT_NEAR(logs["loss"] * 7, 5461, 1e-2) << count;
  }
}

// ---- batch size, loss, gradient arithmetic

TEST(UserIssues, Issue11_AReplicaWithoutRowsGivesNoNan) {
  auto strategy = replicas(4);
  auto scope = strategy->scope();
  auto model = still({.loss = "mse", .metrics = {"mae"}});
  const Logs logs = model->evaluate(column({2}), column({0}), {.verbose = 0});
  EXPECT_NEAR(logs["loss"], 4, 1e-6);
  EXPECT_NEAR(logs["mae"], 2, 1e-6);
}

TEST(UserIssues, Issue12_BatchesOfVaryingSizeWeighByTheirRows) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = line({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
    const auto dataset = squares({1, 2, 3, 4})
                             .batch(4)
                             .concatenate(squares({10}).batch(4))
                             .concatenate(squares({5, 6}).batch(4));
    const History history = model->fit(dataset, {.verbose = 0});
    EXPECT_NEAR(history.history.at("loss")[0], (30 + 100 + 61) / 7., 1e-4);
  }
}

TEST(UserIssues, Issue14_AMeanInsideAReplicaIsRefusedAndTheReductionsAreNamed) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  EXPECT_ERROR(strategy->run([] {
    losses::MeanSquaredError()(at::ones({2, 1}), at::ones({2, 1}));
  }),
               InvalidArgument, "expected SUM or NONE");
  EXPECT_ERROR(strategy->run([] {
    losses::MeanSquaredError()(at::ones({2, 1}), at::ones({2, 1}));
  }),
               InvalidArgument, "reduction sum_over_batch_size");
  EXPECT_ERROR(losses::reduction_from_name("auto"), InvalidArgument,
               "sum_over_batch_size, sum, none, mean, mean_with_sample_weight");
}

TEST(UserIssues, Issue15_FitAndALoopOfOnesOwnReportTheSameLoss) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto fitted = line({.optimizer = optimizers::SGD({.learning_rate = .01}), .loss = "mse"});
    auto looped = line({.optimizer = optimizers::SGD({.learning_rate = .01}), .loss = "mse"});
    const Tensor x = column({1, 2, 3, 4}), y = at::zeros({4, 1});
    const double reported = fitted->fit(x, y, quiet(4)).history.at("loss")[0];
    const losses::MeanSquaredError loss_object({.reduction = losses::Reduction::kNone});
    auto dataset = strategy->distribute_dataset(data::from_tensor_slices(x, y).batch(4));
    double own = 0;
    for (auto [images, labels] : dataset) {
      const auto parts = strategy->run(
          [&](const Tensor& x, const Tensor& y) {
            GradientTape tape;
            const Tensor loss = nn::compute_average_loss(loss_object(y, (*looped)(x, true)), 4);
            const auto variables = looped->trainable_variables();
            looped->optimizer().apply_gradients(tape.gradient(loss, variables), variables);
            return loss.detach();
          },
          images, labels);
      own = strategy->reduce(ReduceOp::kSum, parts).item<double>();
    }
    EXPECT_NEAR(own, reported, 1e-5);
    EXPECT_NEAR(weight(*looped), weight(*fitted), 1e-6);
  }
}

/// (x - y)^4 of each row.
struct FourthPower : losses::Loss::Impl {
  FourthPower() : Impl("fourth", losses::Reduction::kSumOverBatchSize) {}
  std::string class_name() const override { return "FourthPower"; }
  std::string config() const override { return "{}"; }
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    return (y_true - y_pred).pow(4).sum(-1);
  }
};

TEST(UserIssues, Issue16_ALossOfOnesOwnIsScaledOnce) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = line({.optimizer = optimizers::SGD({.learning_rate = .001}),
                       .loss = losses::Loss(std::make_shared<FourthPower>())});
    const History history = model->fit(column({1, 2, 3}), at::zeros({3, 1}), quiet(3));
    EXPECT_NEAR(history.history.at("loss")[0], (1 + 16 + 81) / 3., 1e-4);
    EXPECT_NEAR(weight(*model), 1 - .001 * 4 * (1 + 16 + 81) / 3., 1e-5);
  }
}

TEST(UserIssues, Issue18_WeightsAreSummedOverReplicasBeforeTheyDivide) {
  for (int count : {1, 2, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = line({.optimizer = optimizers::SGD({.learning_rate = .01}),
                       .loss = losses::MeanSquaredError(
                           {.reduction = losses::Reduction::kMeanWithSampleWeight})});
    FitOptions options = quiet(4);
    options.sample_weight = at::tensor({1.f, 0.f, 0.f, 3.f});
    const History history = model->fit(column({1, 2, 3, 4}), at::zeros({4, 1}), options);
    EXPECT_NEAR(history.history.at("loss")[0], (1 + 3 * 16) / 4., 1e-4);
    EXPECT_NEAR(weight(*model), 1 - .01 * 2 * (1 + 3 * 16) / 4., 1e-5);
  }
}

TEST(UserIssues, Issue20_TheLearningRateIsNeverScaledByTheReplicas) {
  std::vector<double> weights;
  for (int count : {1, 2, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = line({.optimizer = optimizers::SGD({.learning_rate = .01}), .loss = "mse"});
    model->fit(column({1, 2, 3, 4}), at::zeros({4, 1}), quiet(4));
    EXPECT_EQ(model->optimizer().learning_rate(), .01);
    weights.push_back(weight(*model));
  }
  EXPECT_NEAR(weights[1], weights[0], 1e-6);
  EXPECT_NEAR(weights[2], weights[0], 1e-6);
}

TEST(UserIssues, Issue21_OneUpdateIsOneIterationWhateverTheReplicas) {
  for (int count : {1, 2, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    model->fit(squares({1, 2, 3, 4, 5, 6}).batch(2), {.epochs = 2, .verbose = 0});
    EXPECT_EQ(model->optimizer().iterations(), 6);
  }
}

TEST(UserIssues, Issue26_AccumulationIsAnArgumentAndLeavesNothingToOneReplica) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  optimizers::SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 2});
  const Variable w(at::zeros({1}));
  for (int call = 0; call < 2; ++call) {
    strategy->run(
        [&] { optimizer.apply_gradients({at::full({1}, own_id() == 0 ? -1.f : -3.f)}, {w}); });
  }
  for (const Tensor& component : w.components())
    EXPECT_TENSOR_NEAR(component, at::tensor({4.f}), 1e-6);
  EXPECT_TRUE(w.is_shared());
}

TEST(UserIssues, Issue27_TheGradientsNormIsTheSameOnAnyNumberOfReplicas) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = line(
        {.optimizer = optimizers::SGD({.learning_rate = 1, .global_clipnorm = 1}), .loss = "mse"});
    // The gradient is the mean of 2 x^2, 15.
    model->fit(column({1, 2, 3, 4}), at::zeros({4, 1}), quiet(4));
    EXPECT_NEAR(weight(*model), 0, 1e-6);
    auto loose =
        line({.optimizer = optimizers::SGD({.learning_rate = .01, .global_clipnorm = 15.1}),
              .loss = "mse"});
    loose->fit(column({1, 2, 3, 4}), at::zeros({4, 1}), quiet(4));
    EXPECT_NEAR(weight(*loose), 1 - .15, 1e-6);
  }
}

// ---- graph and model mismatches

TEST(UserIssues, Issue34_UnusedVariablesStayAndTrainingGoesOn) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  optimizers::Adam optimizer({.learning_rate = .1});
  const Variable used(at::ones({1}), {.name = "used"}), unused(at::ones({1}), {.name = "unused"});
  for (int step = 0; step < 2; ++step) {
    strategy->run([&] {
      GradientTape tape;
      const Tensor loss = used.value().sum();
      const std::vector<Variable> variables{used, unused};
      optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    });
  }
  EXPECT_TENSOR_EQ(unused.value(), at::ones({1}));
  EXPECT_NEAR(used.read_value().item<double>(), .8, 1e-4);
}

TEST(UserIssues, Issue34_UsedByOneReplicaOnlyCountsForAll) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  optimizers::SGD optimizer({.learning_rate = 1});
  const Variable both(at::zeros({1})), one(at::zeros({1}));
  strategy->run([&] {
    GradientTape tape;
    Tensor loss = both.value().sum();
    if (own_id() == 1) loss = loss + 3 * one.value().sum();
    const std::vector<Variable> variables{both, one};
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
  });
  EXPECT_TENSOR_NEAR(both.value(), at::tensor({-2.f}), 1e-6);
  EXPECT_TENSOR_NEAR(one.value(), at::tensor({-3.f}), 1e-6);
}

TEST(UserIssues, Issue35_ReplicasWithOtherVariablesAreAnErrorThatNamesOne) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  optimizers::SGD optimizer;
  const Variable first(at::zeros({1}), {.name = "first"}),
      second(at::zeros({1}), {.name = "second"});
  EXPECT_ERROR(strategy->run([&] {
    optimizer.apply_gradients({at::ones({1})}, {own_id() == 0 ? first : second});
  }),
               InvalidArgument, "second");
  EXPECT_NO_THROW(strategy->run([&] { optimizer.apply_gradients({at::ones({1})}, {first}); }));
}

TEST(UserIssues, Issue38_AnOptimizerMadeAnywhereWorks) {
  optimizers::Adam outside({.learning_rate = .1});  // before there is a strategy
  auto strategy = replicas(2);
  std::optional<Variable> w;
  {
    auto scope = strategy->scope();
    w.emplace(at::ones({2}));
  }
  strategy->run([&] { outside.apply_gradients({at::ones({2})}, {*w}); });  // slots made in run
  EXPECT_EQ(outside.slots("momentum")[0].components().size(), w->components().size());
  optimizers::Adam built({.learning_rate = .1, .use_ema = true, .gradient_accumulation_steps = 2});
  built.build({*w});  // outside the scope
  for (int call = 0; call < 2; ++call)
    strategy->run([&] { built.apply_gradients({at::ones({2})}, {*w}); });
  EXPECT_EQ(built.iterations(), 1);
}

// ---- BatchNormalization

std::unique_ptr<Sequential> normalizing(bool synchronized) {
  auto model = std::make_unique<Sequential>(std::vector<layers::Layer>{
      BatchNormalization({.momentum = .5, .synchronized = synchronized, .input_shape = {2}}),
      Dense(1)});
  model->set_weights({at::ones({2}), at::zeros({2}), at::zeros({2}), at::ones({2}),
                      at::ones({2, 1}), at::zeros({1})});
  model->compile({.optimizer = optimizers::SGD({.learning_rate = .01}), .loss = "mse"});
  return model;
}

TEST(UserIssues, Issue39_StatisticsAreEachReplicasOwnAndTheFirstOnesAreSeenOutside) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = normalizing(false);
  strategy->run([&] { (*model)(at::full({2, 2}, own_id() == 0 ? 2.f : 6.f), true); });
  const Variable mean = model->weights()[2];
  EXPECT_TENSOR_NEAR(mean.components()[0], at::full({2}, 1.f), 1e-6);
  EXPECT_TENSOR_NEAR(mean.components()[1], at::full({2}, 3.f), 1e-6);
  EXPECT_TENSOR_NEAR(mean.read_value(), at::full({2}, 1.f), 1e-6);
}

TEST(UserIssues, Issue40_OneCallGivesEveryReplicaTheFirstOnesStatistics) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = normalizing(false);
  strategy->run([&] { (*model)(at::full({2, 2}, own_id() == 0 ? 2.f : 6.f), true); });
  model->set_weights(model->get_weights());
  for (std::size_t i : {2, 3}) {
    const auto components = model->weights()[i].components();
    EXPECT_TENSOR_EQ(components[1], components[0]);
  }
}

TEST(UserIssues, Issue41_ASavedModelEvaluatesAsTheTrainedOne) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti_issue41_", getpid(), ".tutti")).string();
  for (bool synchronized : {false, true}) {
    auto strategy = replicas(2);
    double trained = 0;
    {
      auto scope = strategy->scope();
      auto model = normalizing(synchronized);
      model->fit(rows(11, 2), rows(11, 1), quiet(4, 3));
      if (!synchronized) model->set_weights(model->get_weights());  // what the file will have
      trained = model->evaluate(rows(11, 2), rows(11, 1), {.verbose = 0})["loss"];
      model->save(path);
    }
    const auto loaded_loss = [&] {
      return load_model(path)->evaluate(rows(11, 2), rows(11, 1), {.verbose = 0})["loss"];
    };
    EXPECT_NEAR(loaded_loss(), trained, 1e-5) << "without a strategy";
    for (int count : {1, 2, 3}) {
      auto another = replicas(count);
      auto scope = another->scope();
      EXPECT_NEAR(loaded_loss(), trained, 1e-5) << count << " replicas";
    }
  }
  std::filesystem::remove(path);
}

TEST(UserIssues, Issue41_AFileHasWhatTheFirstReplicaEvaluatesWithAndSavingSaysSo) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti_issue41_", getpid(), ".tutti")).string();
  auto strategy = replicas(2);
  Tensor of_first;
  std::string said;
  {
    auto scope = strategy->scope();
    auto model = normalizing(false);
    model->fit(rows(11, 2), rows(11, 1), quiet(4, 3));
    of_first = strategy->run([&] { return (*model)(rows(11, 2), false); })[0].detach();
    ::testing::internal::CaptureStderr();
    model->save(path);
    said = ::testing::internal::GetCapturedStderr();
  }
  EXPECT_NE(said.find("differs between replicas"), std::string::npos) << said;
  EXPECT_NE(said.find("set_weights(model.get_weights())"), std::string::npos) << said;
  EXPECT_TENSOR_NEAR(load_model(path)->predict(rows(11, 2), {.verbose = 0}), of_first, 1e-6);
  std::filesystem::remove(path);
}

TEST(UserIssues, Issue42_ALoopOfOnesOwnWithBatchNormalizationTakesAPartialLastBatch) {
  // 9 rows in batches of 4 on 3 replicas: parts of 2, 2, 0 and at last 1, 0, 0.
  for (bool synchronized : {false, true}) {
    auto strategy = replicas(3);
    auto scope = strategy->scope();
    auto model = normalizing(synchronized);
    const losses::MeanSquaredError loss_object({.reduction = losses::Reduction::kNone});
    auto dataset =
        strategy->distribute_dataset(data::from_tensor_slices(rows(9, 2), rows(9, 1)).batch(4));
    for (auto [images, labels] : dataset) {
      strategy->run(
          [&](const Tensor& x, const Tensor& y) {
            GradientTape tape;
            const Tensor loss = nn::compute_average_loss(loss_object(y, (*model)(x, true)), 4);
            const auto variables = model->trainable_variables();
            model->optimizer().apply_gradients(tape.gradient(loss, variables), variables);
          },
          images, labels);
    }
    for (const Tensor& value : model->get_weights())
      EXPECT_TRUE(at::isfinite(value).all().item<bool>());
    EXPECT_EQ(model->optimizer().iterations(), 3);
  }
}

TEST(UserIssues, Issue42_SynchronizedTrainingIsThatOfOneReplica) {
  std::vector<std::vector<Tensor>> all;
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = normalizing(true);
    model->fit(rows(9, 2), rows(9, 1), quiet(4, 3));
    all.push_back(model->get_weights());
  }
  for (std::size_t run : {1, 2}) {
    for (std::size_t i = 0; i < all[0].size(); ++i)
      EXPECT_TENSOR_NEAR(all[run][i], all[0][i], 1e-5);
  }
}

// ---- the training loop

TEST(UserIssues, Issue63_ADistributedDatasetOfUnknownLengthGoesToItsEndAndAnEndlessOneIsAskedFor) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = still();
  const auto unknown = strategy->distribute_dataset(data::Dataset<Nest>(
      squares({1, 2, 3, 4, 5})
          .filter([](const Nest& element) { return element[0].leaf().item<float>() > 2; })
          .batch(2)));
  EXPECT_EQ(unknown.cardinality(), data::kUnknown);
  const History history = model->fit(unknown, {.epochs = 2, .verbose = 0});
  EXPECT_EQ(model->optimizer().iterations(), 4) << "two steps an epoch";
  for (double loss : history.history.at("loss")) EXPECT_NEAR(loss, (9 + 16 + 25) / 3., 1e-5);
  const auto endless = strategy->distribute_dataset(squares({1, 2}).batch(2).repeat());
  EXPECT_ERROR(model->fit(endless, {.verbose = 0}), InvalidArgument, "steps_per_epoch");
  EXPECT_ERROR(model->fit(unknown, {.verbose = 0, .validation_data = endless}), InvalidArgument,
               "validation_steps");
}

TEST(UserIssues, Issue64_EachValidationBeginsWithTheFirstBatch) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    const History history = model->fit(
        squares({1}).batch(1), {.epochs = 3,
                                .verbose = 0,
                                .validation_data = squares({1, 2, 3, 4, 5}).batch(1).repeat(),
                                .validation_steps = 2});
    for (double loss : history.history.at("val_loss")) EXPECT_NEAR(loss, 2.5, 1e-6);
    ::testing::internal::CaptureStderr();
    const History shorter =
        model->fit(squares({1}).batch(1), {.epochs = 2,
                                           .verbose = 0,
                                           .validation_data = squares({1, 3}).batch(1),
                                           .validation_steps = 5});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("ran out of data"), std::string::npos) << said;
    for (double loss : shorter.history.at("val_loss")) EXPECT_NEAR(loss, 5, 1e-6);
  }
}

TEST(UserIssues, Issue65_AnEpochsLossWeighsSamplesNotBatches) {
  // Losses 10, 10 and 9 in batches of 2 and 1.
  const float ten = std::sqrt(10.f);
  for (int count : {1, 2}) {
    for (int64_t together : {1, 3}) {
      auto strategy = replicas(count);
      auto scope = strategy->scope();
      auto model = still({.loss = "mse", .steps_per_execution = together});
      const auto data = squares({ten, ten, 3}).batch(2);
      const std::string log =
          (std::filesystem::temp_directory_path() / cat("tutti_issue65_", getpid(), ".csv"))
              .string();
      const History history =
          model->fit(data, {.verbose = 0, .callbacks = {callbacks::CSVLogger(log)}});
      EXPECT_NEAR(history.history.at("loss")[0], 29 / 3., 1e-5);
      std::ifstream lines(log);
      std::string head, row;
      std::getline(lines, head);
      std::getline(lines, row);
      EXPECT_EQ(head.substr(0, 10), "epoch,loss");
      EXPECT_EQ(row.substr(0, 2), "0,");
      EXPECT_NEAR(std::stod(row.substr(2)), 29 / 3., 1e-5);
      std::filesystem::remove(log);
      EXPECT_NEAR(model->evaluate(data, {.verbose = 0})["loss"], 29 / 3., 1e-5);
    }
  }
}

TEST(UserIssues, Issue66_TheLossDividesByTheCountAndWeightedMetricsByTheWeights) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    FitOptions options = quiet(2);
    options.sample_weight = at::tensor({1.f, 0.f});
    const Tensor x = column({1, 1}), y = column({0, 0});
    auto by_count = still({.loss = "mse", .weighted_metrics = {"mse"}});
    const History history = by_count->fit(x, y, options);
    EXPECT_NEAR(history.history.at("loss")[0], .5, 1e-6);
    EXPECT_NEAR(history.history.at("mse")[0], 1, 1e-6);
    auto by_weight = still({.loss = losses::MeanSquaredError(
                                {.reduction = losses::Reduction::kMeanWithSampleWeight})});
    EXPECT_NEAR(by_weight->fit(x, y, options).history.at("loss")[0], 1, 1e-6);
  }
}

TEST(UserIssues, Issue69_EvaluatingInsideAnEpochLeavesItsNumbersAlone) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto train = [&](bool evaluating) {
      auto model = line({.optimizer = optimizers::SGD({.learning_rate = .01}),
                         .loss = "mse",
                         .metrics = {"mae"}});
      FitOptions options = quiet(1, 2);
      Model* own = model.get();
      if (evaluating) {
        options.callbacks = {
            callbacks::LambdaCallback({.on_train_batch_end = [own](int64_t batch, const Logs&) {
              if (batch % 2 == 1) own->evaluate(column({7, 8}), column({0, 0}), {.verbose = 0});
            }})};
      }
      return model->fit(column({1, 2, 3, 4, 5}), at::zeros({5, 1}), options).history;
    };
    EXPECT_EQ(train(true), train(false));
  }
}

TEST(UserIssues, Issue69_SoDoesOneBeforeTheFirstBatch) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto train = [&](bool evaluating) {
      auto model = still({.loss = "mse", .metrics = {"mae"}});
      FitOptions options = quiet(2, 2);
      auto evaluate = [own = model.get()](int64_t, const Logs&) {
        own->evaluate(column({7, 8}), column({0, 0}), {.verbose = 0});
      };
      if (evaluating)
        options.callbacks = {callbacks::LambdaCallback(
            {.on_epoch_begin = evaluate, .on_train_batch_begin = evaluate})};
      return model->fit(column({1, 2, 3, 4, 5}), at::zeros({5, 1}), options).history;
    };
    EXPECT_EQ(train(true), train(false));
  }
}

TEST(UserIssues, Issue70_SingleBatchCallsRunOneStepUnderStepsPerExecution) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still({.loss = "mse", .steps_per_execution = 3});
    EXPECT_NEAR(model->train_on_batch(column({2}), column({0}))["loss"], 4, 1e-6);
    EXPECT_EQ(model->optimizer().iterations(), 1);
    model->reset_metrics();
    EXPECT_NEAR(model->test_on_batch(column({3}), column({0}))["loss"], 9, 1e-6);
    EXPECT_TENSOR_NEAR(model->predict_on_batch(column({5})).leaf(), column({5}), 1e-6);
    const std::vector<float> seven{1, 2, 3, 4, 5, 6, 7};
    model->fit(squares(seven).batch(1), {.verbose = 0});
    EXPECT_EQ(model->optimizer().iterations(), 8);
    EXPECT_NEAR(model->evaluate(squares(seven).batch(1), {.verbose = 0})["loss"], 20, 1e-5);
    EXPECT_EQ(model->predict(column(seven), {.batch_size = 1, .verbose = 0}).size(0), 7);
  }
}

}  // namespace
}  // namespace tutti::keras
