// Training is the same for any number of replicas, uneven and empty parts included; what goes wrong
// in a step ends in an error, after which the strategy can be used again.
#include <cmath>
#include <memory>

#include "keras/line_model.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using testing::replicas;

/// Rows that are all different and the same in every run.
Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}
Tensor labels(int64_t count, int64_t classes) { return at::arange(count, at::kLong) % classes; }

std::unique_ptr<Sequential> classifier(CompileOptions options) {
  auto model = std::make_unique<Sequential>(std::vector<layers::Layer>{
      Dense(
          5,
          {.activation = "relu", .kernel_regularizer = regularizers::L2(.01), .input_shape = {4}}),
      Dense(3)});
  model->set_weights({rows(4, 5), at::zeros({5}), rows(5, 3), at::zeros({3})});
  options.optimizer = optimizers::Adam({.learning_rate = .02});
  model->compile(options);
  return model;
}

losses::Loss sparse(losses::Reduction reduction = losses::Reduction::kSumOverBatchSize,
                    std::optional<int64_t> ignore_class = std::nullopt) {
  return losses::SparseCategoricalCrossentropy(
      {.from_logits = true, .ignore_class = ignore_class, .reduction = reduction});
}

struct Outcome {
  History history;
  Logs evaluation;
  Tensor prediction;
  std::vector<Tensor> weights;
};

std::unique_ptr<distribute::Strategy> one_copy(int count) {
  distribute::CentralStorageStrategyOptions options;
  for (int i = 0; i < count; ++i) options.compute_devices.push_back(cat("cpu:", i));
  return std::make_unique<distribute::CentralStorageStrategy>(options);
}

/// What `train` leaves on one replica, compared with what it leaves on 2, 3 and 5, and on 3 that
/// have one copy of every variable.
void expect_same_on_all(const CompileOptions& options,
                        const std::function<History(Model&)>& train) {
  std::optional<Outcome> one;
  for (int count : {1, 2, 3, 5, -3}) {
    SCOPED_TRACE(cat(count, " replicas"));
    std::unique_ptr<distribute::Strategy> strategy;
    if (count > 0) {
      strategy = replicas(count);
    } else {
      strategy = one_copy(-count);
    }
    auto scope = strategy->scope();
    auto model = classifier(options);
    Outcome own;
    own.history = train(*model);
    own.evaluation = model->evaluate(rows(11, 4), labels(11, 3), {.batch_size = 4, .verbose = 0});
    own.prediction = model->predict(rows(11, 4), {.batch_size = 4, .verbose = 0});
    own.weights = model->get_weights();
    if (!one) {
      one = std::move(own);
      continue;
    }
    ASSERT_EQ(own.history.history.size(), one->history.history.size());
    for (const auto& [name, values] : one->history.history) {
      ASSERT_EQ(own.history.history[name].size(), values.size()) << name;
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(own.history.history[name][i], values[i], 1e-4 * std::abs(values[i]) + 1e-6)
            << name;
    }
    for (const auto& [name, value] : one->evaluation)
      EXPECT_NEAR(own.evaluation[name], value, 1e-4 * std::abs(value) + 1e-6) << name;
    EXPECT_TENSOR_NEAR(own.prediction, one->prediction, 1e-4);
    for (std::size_t i = 0; i < own.weights.size(); ++i)
      EXPECT_TENSOR_NEAR(own.weights[i], one->weights[i], 1e-4);
  }
}

TEST(AnyNumberOfReplicas, TrainsTheSameOnArrays) {
  expect_same_on_all({.loss = sparse(), .metrics = {"accuracy"}}, [](Model& model) {
    return model.fit(rows(11, 4), labels(11, 3),
                     {.batch_size = 4, .epochs = 3, .verbose = 0, .shuffle = false});
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameOnADataset) {
  expect_same_on_all({.loss = sparse(), .metrics = {"accuracy"}}, [](Model& model) {
    const auto data = data::from_tensor_slices(rows(11, 4), labels(11, 3)).batch(4);
    return model.fit(data, {.epochs = 3, .verbose = 0, .validation_data = data});
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameWhenReplicasHaveNoRows) {
  expect_same_on_all({.loss = sparse(), .metrics = {"accuracy"}}, [](Model& model) {
    return model.fit(rows(5, 4), labels(5, 3),
                     {.batch_size = 1, .epochs = 2, .verbose = 0, .shuffle = false});
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameShuffledWithASeed) {
  expect_same_on_all({.loss = sparse()}, [](Model& model) {
    set_seed(3);
    return model.fit(rows(11, 4), labels(11, 3), {.batch_size = 4, .epochs = 2, .verbose = 0});
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameWithSampleWeights) {
  expect_same_on_all({.loss = sparse(), .metrics = {"accuracy"}, .weighted_metrics = {"accuracy"}},
                     [](Model& model) {
                       return model.fit(rows(11, 4), labels(11, 3),
                                        {.batch_size = 4,
                                         .epochs = 2,
                                         .verbose = 0,
                                         .shuffle = false,
                                         .sample_weight = rows(11, 1).squeeze(1).abs()});
                     });
}

TEST(AnyNumberOfReplicas, TrainsTheSameWithMeansOfWeightsAndSums) {
  for (auto reduction : {losses::Reduction::kMeanWithSampleWeight, losses::Reduction::kSum}) {
    expect_same_on_all({.loss = sparse(reduction)}, [](Model& model) {
      return model.fit(rows(11, 4), labels(11, 3),
                       {.batch_size = 4,
                        .epochs = 2,
                        .verbose = 0,
                        .shuffle = false,
                        .sample_weight = rows(11, 1).squeeze(1).abs()});
    });
  }
}

TEST(AnyNumberOfReplicas, TrainsTheSameWithAClassThatIsIgnored) {
  expect_same_on_all({.loss = sparse(losses::Reduction::kSumOverBatchSize, 2)}, [](Model& model) {
    return model.fit(rows(11, 4), labels(11, 3),
                     {.batch_size = 4, .epochs = 2, .verbose = 0, .shuffle = false});
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameInExecutionsOfSeveralSteps) {
  expect_same_on_all({.loss = sparse(), .steps_per_execution = 2}, [](Model& model) {
    return model.fit(rows(11, 4), labels(11, 3),
                     {.batch_size = 4, .epochs = 2, .verbose = 0, .shuffle = false});
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameBatchByBatch) {
  expect_same_on_all({.loss = sparse()}, [](Model& model) {
    for (int64_t size : {4, 1, 6}) model.train_on_batch(rows(size, 4), labels(size, 3));
    return History{};
  });
}

TEST(AnyNumberOfReplicas, TrainsTheSameInSomebodysOwnRun) {
  expect_same_on_all({.loss = sparse()}, [](Model& model) {
    auto& strategy = model.strategy();
    auto data =
        strategy.distribute_dataset(data::from_tensor_slices(rows(11, 4), labels(11, 3)).batch(4));
    for (auto [x, y] : data) {
      strategy.run(
          [&](Tensor images, Tensor classes) {
            model.train_step({images, classes, {}});
          },
          x, y);
    }
    return History{{{"loss", {model.metrics_result()["loss"]}}}, {0}};
  });
}

// ---- the loss itself

TEST(ComputeLoss, IgnoredLabelsDoNotCount) {
  Sequential model({Dense(2, {.use_bias = false, .input_shape = {2}})});
  model.set_weights({at::eye(2)});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}),
                 .loss = sparse(losses::Reduction::kSumOverBatchSize, 1)});
  const auto result =
      model.evaluate(at::zeros({3, 2}), at::tensor({0, 1, 1}, at::kLong), {.verbose = 0});
  EXPECT_NEAR(result["loss"], std::log(2.), 1e-6) << "of the one row that counts";
}

TEST(ComputeLoss, TimeStepsAreAveragedToo) {
  Sequential model({Dense(1, {.use_bias = false, .input_shape = {2, 1}})});
  model.set_weights({at::ones({1, 1})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
  const Tensor x = at::arange(4, at::kFloat).reshape({2, 2, 1});
  EXPECT_NEAR(model.evaluate(x, at::zeros_like(x), {.verbose = 0})["loss"], (0 + 1 + 4 + 9) / 4.,
              1e-6);
}

// ---- overriding a step

struct Doubling : Sequential {
  using Sequential::Sequential;
  void train_step(const Batch& batch) override {
    GradientTape tape;
    const Tensor y_pred = (*this)(batch.x, true);
    const Tensor loss = 2 * compute_loss(batch, y_pred);
    const auto variables = trainable_variables();
    optimizer().apply_gradients(tape.gradient(loss, variables), variables);
    update_metrics(batch, y_pred);
  }
};

TEST(TrainStep, MayBeOverridden) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Doubling model({Dense(1, {.use_bias = false, .input_shape = {1}})});
    model.set_weights({at::ones({1, 1})});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = .1}), .loss = "mse"});
    const History history = model.fit(at::ones({3, 1}), at::zeros({3, 1}), {.verbose = 0});
    EXPECT_NEAR(model.get_weights()[0].item<double>(), 1 - .1 * 2 * 2, 1e-6);
    EXPECT_NEAR(history.history.at("loss")[0], 1, 1e-6) << "the log is the compiled loss";
  }
}

// ---- what goes wrong

/// `break_it` throws InvalidArgument with `part`, and the same model then trains.
void expect_error_and_recovery(const std::string& part,
                               const std::function<void(Model&)>& break_it) {
  for (int count : {1, 2, 3}) {
    SCOPED_TRACE(cat(count, " replicas"));
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = classifier({.loss = sparse(), .metrics = {"accuracy"}});
    EXPECT_ERROR(break_it(*model), InvalidArgument, part);
    const History history =
        model->fit(rows(6, 4), labels(6, 3), {.batch_size = 4, .verbose = 0, .shuffle = false});
    EXPECT_TRUE(std::isfinite(history.history.at("loss")[0]));
  }
}

TEST(Failure, LabelsOfAWrongShapeAreAnErrorWithBothShapes) {
  expect_error_and_recovery("for predictions (", [](Model& model) {
    model.fit(rows(6, 4), at::zeros({6, 3}), {.verbose = 0});
  });
}

TEST(Failure, LabelsOutOfRangeAreAnErrorWithTheRange) {
  expect_error_and_recovery("expected from 0 to 2", [](Model& model) {
    model.fit(rows(6, 4), at::full({6}, 7, at::kLong), {.verbose = 0});
  });
}

TEST(Failure, LengthsThatDifferAreAnErrorWithBothShapes) {
  expect_error_and_recovery("x of shape (6, 4) with y of shape (5,)", [](Model& model) {
    model.fit(rows(6, 4), labels(5, 3), {.verbose = 0});
  });
}

TEST(Failure, ADatasetWithoutBatchIsAskedForIt) {
  expect_error_and_recovery("batch", [](Model& model) {
    model.fit(data::from_tensor_slices(rows(6, 4), labels(6, 3)), {.verbose = 0});
  });
}

TEST(Failure, AnEmptyDatasetIsNamed) {
  expect_error_and_recovery("the dataset is empty", [](Model& model) {
    model.fit(data::from_tensor_slices(rows(6, 4), labels(6, 3)).batch(2).take(0), {.verbose = 0});
  });
  expect_error_and_recovery("the dataset is empty", [](Model& model) {
    model.evaluate(data::from_tensor_slices(rows(6, 4), labels(6, 3)).batch(2).take(0),
                   {.verbose = 0});
  });
  expect_error_and_recovery("at least one row", [](Model& model) {
    model.fit(rows(0, 4), labels(0, 3), {.verbose = 0});
  });
}

TEST(Failure, DataWithoutLabelsIsAnError) {
  expect_error_and_recovery("data without labels", [](Model& model) {
    model.fit(data::from_tensor_slices(rows(6, 4)).batch(2), {.verbose = 0});
  });
}

TEST(Failure, AStepThatThrowsOnOneReplicaStopsAll) {
  struct Throwing : Sequential {
    using Sequential::Sequential;
    void train_step(const Batch& batch) override {
      if (throws && distribute::get_replica_context()->replica_id_in_sync_group() == 1)
        throw std::runtime_error("replica 1 is broken");
      Sequential::train_step(batch);
    }
    bool throws = true;
  };
  auto strategy = replicas(3);
  auto scope = strategy->scope();
  Throwing model({Dense(1, {.input_shape = {1}})});
  model.compile({.loss = "mse"});
  EXPECT_ERROR(model.fit(at::ones({3, 1}), at::ones({3, 1}), {.verbose = 0}), std::exception,
               "replica 1 is broken");
  model.throws = false;
  EXPECT_EQ(model.fit(at::ones({3, 1}), at::ones({3, 1}), {.verbose = 0}).epoch.size(), 1u);
}

TEST(Failure, ANanLossIsANumber) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = classifier({.loss = sparse(), .metrics = {"accuracy"}});
    const History history = model->fit(at::full({6, 4}, std::nan("")), labels(6, 3),
                                       {.batch_size = 4, .epochs = 2, .verbose = 0});
    EXPECT_EQ(history.epoch.size(), 2u);
    EXPECT_TRUE(std::isnan(history.history.at("loss")[1]));
  }
}

TEST(Failure, AModelThatIsNotCompiledSaysSo) {
  Sequential model({Dense(1)}, {.name = "m"});
  const Tensor x = at::ones({1, 1});
  EXPECT_ERROR(model.fit(x, x, {.verbose = 0}), FailedPrecondition, "fit [m]: the model is not");
  EXPECT_ERROR(model.evaluate(x, x, {.verbose = 0}), FailedPrecondition, "evaluate [m]");
  EXPECT_ERROR(model.train_on_batch(x, x), FailedPrecondition, "train_on_batch [m]");
  EXPECT_ERROR(model.test_on_batch(x, x), FailedPrecondition, "test_on_batch [m]");
  EXPECT_ERROR(model.optimizer(), FailedPrecondition, "call compile() first");
}

TEST(Failure, WrongArgumentsOfCompileAreRefused) {
  Sequential model({Dense(1)});
  EXPECT_ERROR(model.compile({.optimizer = "adamax2", .loss = "mse"}), InvalidArgument, "adamax2");
  EXPECT_ERROR(model.compile({.loss = "mean"}), InvalidArgument, "mean");
  EXPECT_ERROR(model.compile({.loss = "mse", .metrics = {"accurate"}}), InvalidArgument,
               "\"accurate\", expected accuracy");
  EXPECT_ERROR(model.compile({.loss = "mse", .steps_per_execution = 0}), InvalidArgument,
               "steps_per_execution 0");
  EXPECT_FALSE(model.compiled());
}

TEST(Failure, WithoutALossOnlyAStepOfOnesOwnTrains) {
  expect_error_and_recovery("no loss, expected one", [](Model&) {
    Sequential model({Dense(1)}, {.name = "m"});
    model.compile({.optimizer = "sgd"});
    model.fit(rows(6, 4), rows(6, 1), {.verbose = 0});
  });
}

TEST(Failure, WrongArgumentsOfFitAreRefused) {
  auto model = classifier({.loss = sparse()});
  const Tensor x = rows(6, 4);
  const Tensor y = labels(6, 3);
  const auto data = data::from_tensor_slices(x, y).batch(2);
  EXPECT_ERROR(model->fit(x, y, {.epochs = 0}), InvalidArgument, "epochs 0");
  EXPECT_ERROR(model->fit(x, y, {.initial_epoch = -1}), InvalidArgument, "initial_epoch -1");
  EXPECT_ERROR(model->fit(x, y, {.batch_size = 0}), InvalidArgument, "batch_size 0");
  EXPECT_ERROR(model->fit(x, y, {.steps_per_epoch = 0}), InvalidArgument, "steps_per_epoch 0");
  EXPECT_ERROR(model->fit(x, y, {.validation_steps = 0}), InvalidArgument, "validation_steps 0");
  EXPECT_ERROR(model->fit(x, y, {.validation_freq = 0}), InvalidArgument, "validation_freq 0");
  EXPECT_ERROR(model->fit(data, {.batch_size = 2}), InvalidArgument, "arrays only");
  EXPECT_ERROR(model->fit(data, {.validation_split = .5}), InvalidArgument, "arrays only");
  EXPECT_ERROR(model->evaluate(data, {.batch_size = 2}), InvalidArgument, "evaluate: batch_size");
  EXPECT_ERROR(model->predict(data, {.batch_size = 2}), InvalidArgument, "predict: batch_size");
  EXPECT_ERROR(model->fit(x, y, {.class_weight = {{0, 1}}, .sample_weight = at::ones({6})}),
               InvalidArgument, "one of them");
  EXPECT_ERROR(model->fit(x, Tensor(), {.class_weight = {{0, 1}}}), InvalidArgument,
               "class_weight without labels");
}

}  // namespace
}  // namespace tutti::keras
