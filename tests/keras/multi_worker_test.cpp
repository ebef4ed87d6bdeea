// fit, evaluate and predict on several workers: every worker ends with the same numbers, which are
// those of one strategy of as many replicas.

#include <gtest/gtest.h>

#include <iostream>
#include <mutex>

#include "keras/line_model.h"
#include "support/expect.h"
#include "support/message_checks.h"
#include "support/workers.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras {
namespace {

using distribute::Strategy;
using tutti::testing::on_workers;
using tutti::testing::throws_saying;
using Made = std::shared_ptr<Strategy>;

Tensor inputs(int64_t rows) { return at::arange(rows * 3, at::kFloat).view({rows, 3}) / 40; }
Tensor targets(int64_t rows) { return inputs(rows).sum(1, /*keepdim=*/true) * 2 - 1; }

bool is_chief(const Strategy& strategy) { return strategy.first_replica_id() == 0; }

/// Small, the same wherever it is made.
std::unique_ptr<Sequential> model(const optimizers::Optimizer& optimizer) {
  auto made = std::make_unique<Sequential>(std::vector<layers::Layer>{
      layers::Dense(4, {.activation = "tanh", .input_shape = {3}}), layers::Dense(1)});
  std::vector<Tensor> weights;
  for (const Tensor& weight : made->get_weights())
    weights.push_back(at::arange(weight.numel(), at::kFloat).view(weight.sizes()) / 10 - 0.3);
  made->set_weights(weights);
  made->compile({.optimizer = optimizer, .loss = "mse", .metrics = {"mae"}});
  return made;
}

struct Result {
  History history;
  std::vector<Tensor> weights;
  Logs evaluated;
  Tensor predicted;
};

struct Training {
  bool as_dataset = false;
  bool shuffle = false;
  int64_t rows = 22;
  int64_t batch = 8;
};

Result train(Strategy& strategy, const Training& how) {
  auto scope = strategy.scope();
  auto trained = model(optimizers::Adam({.learning_rate = 0.05}));
  const Tensor x = inputs(how.rows), y = targets(how.rows);
  Result result;
  FitOptions options{.epochs = 3, .verbose = 0};
  if (how.as_dataset) {
    auto dataset = data::from_tensor_slices(x, y).batch(how.batch);
    options.validation_data = dataset;
    result.history = trained->fit(dataset, options);
    result.evaluated = trained->evaluate(dataset, {.verbose = 0});
    result.predicted =
        trained->predict(data::from_tensor_slices(x).batch(how.batch), {.verbose = 0});
  } else {
    options.batch_size = how.batch;
    options.shuffle = how.shuffle;
    options.validation_data = std::pair(x, y);
    result.history = trained->fit(x, y, options);
    result.evaluated = trained->evaluate(x, y, {.batch_size = how.batch, .verbose = 0});
    result.predicted = trained->predict(x, {.batch_size = how.batch, .verbose = 0});
  }
  result.weights = trained->get_weights();
  return result;
}

void expect_near(const Result& found, const Result& wanted, double tolerance) {
  ASSERT_EQ(found.history.history.size(), wanted.history.history.size());
  for (const auto& [name, values] : wanted.history.history) {
    const auto& own = found.history.history.at(name);
    ASSERT_EQ(own.size(), values.size()) << name;
    for (std::size_t e = 0; e < values.size(); ++e)
      EXPECT_NEAR(own[e], values[e], tolerance) << name;
  }
  for (const auto& [name, value] : wanted.evaluated)
    EXPECT_NEAR(found.evaluated.at(name), value, tolerance) << name;
  for (std::size_t i = 0; i < wanted.weights.size(); ++i)
    EXPECT_TENSOR_NEAR(found.weights[i], wanted.weights[i], tolerance);
  EXPECT_TENSOR_NEAR(found.predicted, wanted.predicted, tolerance);
}

TEST(MultiWorkerFit, TrainsEvaluatesAndPredictsAsOneStrategyOfAllReplicas) {
  for (const Training& how : {Training{}, Training{.as_dataset = true}}) {
    const Result wanted = train(*testing::replicas(1), how);
    for (const auto& [workers, replicas] :
         std::vector<std::pair<int, int>>{{2, 1}, {2, 2}, {3, 1}}) {
      on_workers(workers, replicas,
                 [&](const Made& strategy) { expect_near(train(*strategy, how), wanted, 1e-5); });
    }
  }
}

TEST(MultiWorkerFit, TwoWorkersGiveTheBitsOfTwoReplicas) {
  for (const Training& how : {Training{}, Training{.as_dataset = true}}) {
    const Result wanted = train(*testing::replicas(2), how);
    on_workers(2, 1, [&](const Made& strategy) { expect_near(train(*strategy, how), wanted, 0); });
  }
}

TEST(MultiWorkerFit, ShuffledArraysHaveOneOrderOnAllWorkers) {
  std::mutex mutex;
  std::vector<Result> results;
  on_workers(2, 1, [&](const Made& strategy) {
    Result result = train(*strategy, {.shuffle = true});
    std::lock_guard<std::mutex> lock(mutex);
    results.push_back(std::move(result));
  });
  ASSERT_EQ(results.size(), 2u);
  expect_near(results[0], results[1], 0);
}

TEST(MultiWorkerFit, DatasetsFromAFunctionOfOtherLengthsCountEveryRowOnce) {
  // Worker 0 has 3 rows, worker 1 has 9: steps of 2 rows each.
  const auto make = [](Strategy& strategy) {
    return strategy.distribute_datasets_from_function([](const distribute::InputContext& context) {
      const bool first = context.input_pipeline_id() == 0;
      const Tensor x = testing::column(first ? std::vector<float>{1, 2, 3}
                                             : std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11, 12});
      return data::from_tensor_slices(x, x * 2).batch(2);
    });
  };
  double squares = 0;
  for (int i = 1; i <= 12; ++i) squares += i * i;
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto line = testing::still();
    auto dataset = make(*strategy);
    const History history = line->fit(dataset, {.epochs = 2, .verbose = 0});
    EXPECT_NEAR(history.history.at("loss")[1], squares / 12, 1e-4);
    EXPECT_NEAR(line->evaluate(dataset, {.verbose = 0})["loss"], squares / 12, 1e-4);
  });
}

TEST(MultiWorkerFit, EarlyStoppingStopsAllWorkersInOneEpoch) {
  std::mutex mutex;
  std::vector<std::size_t> epochs;
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto still = testing::still();
    const Tensor x = testing::column({1, 2, 3, 4});
    const History history =
        still->fit(x, x * 2,
                   {.batch_size = 2,
                    .epochs = 9,
                    .verbose = 0,
                    .callbacks = {callbacks::EarlyStopping({.monitor = "loss", .patience = 2})}});
    std::lock_guard<std::mutex> lock(mutex);
    epochs.push_back(history.epoch.size());
  });
  EXPECT_EQ(epochs, (std::vector<std::size_t>{3, 3}));
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(MultiWorkerFit, EveryWorkerDrawsUnlessItIsAskedNotTo) {
  for (const auto& [verbose, drawn] : std::vector<std::pair<int, int>>{{kVerboseAuto, 4}, {0, 0}}) {
    ::testing::internal::CaptureStdout();
    on_workers(2, 1, [verbose = verbose](const Made& strategy) {
      auto scope = strategy->scope();
      const Tensor x = testing::column({1, 2, 3, 4});
      testing::still()->fit(x, x, {.batch_size = 2, .epochs = 2, .verbose = verbose});
    });
    EXPECT_EQ(count(::testing::internal::GetCapturedStdout(), "Epoch "), drawn);
  }
}

TEST(MultiWorkerFit, ABarInTheMiddleOfAnEpochAsksNobody) {
  ::testing::internal::CaptureStdout();
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    const Tensor x = at::ones({64, 1});
    // Drawn at every step, on the chief alone.
    testing::still()->fit(x, x * 2,
                          {.batch_size = 2, .epochs = 2, .verbose = is_chief(*strategy) ? 1 : 0});
  });
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("loss: 1.0000"), std::string::npos);
}

TEST(MultiWorkerFit, ACallbackThatFailsOnOneWorkerEndsTheOthersWithItsMessage) {
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    const bool fails = is_chief(*strategy);
    const Tensor x = testing::column({1, 2, 3, 4});
    auto still = testing::still();
    const auto fit = [&] {
      still->fit(x, x,
                 {.batch_size = 2,
                  .epochs = 5,
                  .verbose = 0,
                  .callbacks = {
                      callbacks::LambdaCallback({.on_epoch_end = [&](int64_t epoch, const Logs&) {
                        if (fails && epoch == 1) throw OutOfRange("the disk is full");
                      }})}});
    };
    if (fails) {
      EXPECT_TRUE(throws_saying<OutOfRange>(fit, {"the disk is full"}));
    } else {
      EXPECT_TRUE(throws_saying<Aborted>(fit, {"worker 0 failed", "the disk is full"}));
    }
  });
}

TEST(MultiWorkerFit, APredictionIsOfAllRowsInTheirOrderOnEveryWorker) {
  const Tensor x = testing::column({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  for (const auto& [workers, replicas] : std::vector<std::pair<int, int>>{{2, 1}, {2, 2}, {3, 2}}) {
    on_workers(workers, replicas, [&](const Made& strategy) {
      auto scope = strategy->scope();
      auto line = testing::still();
      EXPECT_TENSOR_EQ(line->predict(x, {.batch_size = 4, .verbose = 0}), x);
      EXPECT_TENSOR_EQ(line->predict(data::from_tensor_slices(x).batch(4), {.verbose = 0}), x);
      EXPECT_TENSOR_EQ(line->predict_on_batch(x).leaf(), x);
    });
  }
}

TEST(MultiWorkerFit, InitialWeightsAreTheChiefsWhateverEachWorkerDraws) {
  std::mutex mutex;
  std::vector<std::vector<Tensor>> weights;
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Sequential model({layers::Dense(8, {.input_shape = {5}}), layers::Dense(2)});
    std::lock_guard<std::mutex> lock(mutex);
    weights.push_back(model.get_weights());
  });
  for (std::size_t i = 0; i < weights[0].size(); ++i)
    EXPECT_TENSOR_EQ(weights[0][i], weights[1][i]);
}

TEST(MultiWorkerFit, SynchronizedBatchNormalizationTrainsAsOnOneReplica) {
  const auto weights_after = [](Strategy& strategy) {
    auto scope = strategy.scope();
    Sequential normalizing({layers::BatchNormalization({.synchronized = true, .input_shape = {3}}),
                            layers::Dense(1, {.kernel_initializer = "ones"})});
    normalizing.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = "mse"});
    normalizing.fit(inputs(12), targets(12),
                    {.batch_size = 4, .epochs = 2, .verbose = 0, .shuffle = false});
    return normalizing.get_weights();
  };
  const auto wanted = weights_after(*testing::replicas(1));
  on_workers(2, 2, [&](const Made& strategy) {
    const auto found = weights_after(*strategy);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TENSOR_NEAR(found[i], wanted[i], 1e-5);
  });
}

// ---- updates

TEST(MultiWorkerUpdate, AGradientThatOneWorkerLacksCountsAsZeroAndWhatNobodyHasStays) {
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable a(at::zeros({2}), {.name = "a"});
    Variable b(at::zeros({2}), {.name = "b"});
    optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1, .momentum = 0.5});
    for (int step = 0; step < 3; ++step) {
      strategy->run([&] {
        const int id = distribute::get_replica_context()->replica_id_in_sync_group();
        const bool has_a = step != 1 || id == 1;
        const bool has_b = step == 1 && id == 0;
        sgd.apply_gradients({has_a ? at::ones({2}) : Tensor(), has_b ? at::ones({2}) : Tensor()},
                            {a, b});
      });
    }
    // Sums 2, 1, 2; momentum 0.5: v = -2, -2, -3.
    EXPECT_TENSOR_EQ(a.read_value(), at::full({2}, -7.0F));
    EXPECT_TENSOR_EQ(b.read_value(), at::full({2}, -1.0F));
  });
}

TEST(MultiWorkerUpdate, NoGradientAnywhereIsAnErrorOnAllWorkers) {
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable a(at::zeros({2}), {.name = "a"});
    optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1});
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { strategy->run([&] { sgd.apply_gradients({Tensor()}, {a}); }); }, {"no gradient"}));
  });
}

TEST(MultiWorkerUpdate, DoublesHalvesAndPacksOfFewBytesTrainAlike) {
  on_workers(2, 1,
             [](const Made& strategy) {
               auto scope = strategy->scope();
               std::vector<Variable> variables;
               for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16})
                 variables.emplace_back(at::zeros({300}, dtype), VariableOptions{.name = "v"});
               optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1});
               strategy->run([&] {
                 const int id = distribute::get_replica_context()->replica_id_in_sync_group();
                 std::vector<Tensor> gradients;
                 for (const Variable& v : variables)
                   gradients.push_back(at::ones({300}, v.dtype()) * (id + 1));
                 sgd.apply_gradients(gradients, variables);
               });
               for (const Variable& v : variables)
                 EXPECT_TENSOR_EQ(v.read_value(), at::full({300}, -3, v.dtype()));
             },
             {.communication_options = {.bytes_per_pack = 256}});
}

TEST(MultiWorkerUpdate, SteadyStepsAreOneCollectiveEach) {
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable a(at::zeros({2}), {.name = "a"});
    Variable b(at::zeros({3, 2}), {.name = "b"});
    optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
    const auto step = [&] {
      strategy->run([&] { adam.apply_gradients({at::ones({2}), at::ones({3, 2})}, {a, b}); });
    };
    step();
    const int64_t before = strategy->workers()->num_calls();
    for (int i = 0; i < 4; ++i) step();
    EXPECT_EQ(strategy->workers()->num_calls() - before, 4);
  });
}

}  // namespace
}  // namespace tutti::keras
