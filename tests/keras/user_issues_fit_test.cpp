// Rows of spec/user_issues.md on what fit says, denominators of the user's own, and how training
// ends.

#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "keras/line_model.h"
#include "tutti/base/log.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras {
namespace {

using distribute::get_replica_context;
using testing::column;
using testing::line;
using testing::replicas;
using testing::still;
using testing::weight;

/// Standard error of `work`, at a log level of its own.
std::string said_by(LogLevel level, const std::function<void()>& work) {
  const LogLevel before = log_level();
  set_log_level(level);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  work();
  ::testing::internal::GetCapturedStdout();
  set_log_level(before);
  return ::testing::internal::GetCapturedStderr();
}
::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text << "lacks \"" << part << "\"";
}
data::Dataset<Nest> zeros(int64_t count) {
  return data::from_tensor_slices(at::zeros({count, 1}), at::zeros({count, 1}));
}

// ---- what fit says

TEST(UserIssues, Issue7_FitSaysHowManyStepsAnEpochHasAndWhy) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = still();
  const Tensor seven = at::zeros({7, 1});
  const std::string arrays =
      said_by(LogLevel::kInfo, [&] { model->fit(seven, seven, {.batch_size = 3, .verbose = 2}); });
  EXPECT_TRUE(has(arrays, "steps an epoch: ceil(7 rows / 3) = 3;"));
  EXPECT_EQ(model->optimizer().iterations(), 3) << "what the formula gives";
  const auto of = [&](const FitOptions& options, const data::Dataset<Nest>& dataset) {
    return said_by(LogLevel::kInfo, [&] { model->fit(dataset, options); });
  };
  EXPECT_TRUE(has(of({.verbose = 2}, zeros(7).batch(3)), "steps an epoch: ceil(7 rows / 3) = 3;"));
  EXPECT_TRUE(has(of({.verbose = 2, .steps_per_epoch = 2}, zeros(7).batch(3)),
                  "steps an epoch: 2, as steps_per_epoch says; the data has ceil(7 rows / 3) = 3"));
  EXPECT_TRUE(has(of({.verbose = 2, .steps_per_epoch = 2}, zeros(7).batch(3).repeat()),
                  "steps an epoch: 2, as steps_per_epoch says; the data is endless"));
  EXPECT_EQ(of({.verbose = 0}, zeros(7).batch(3)), "") << "verbose = 0 is silence";
}

TEST(UserIssues, Issue14_FitNamesTheReductionAndWhatItDividesBy) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const auto said = [](losses::Reduction reduction) {
    auto model = still({.loss = losses::MeanSquaredError({.reduction = reduction})});
    return said_by(LogLevel::kInfo, [&] {
      model->fit(at::zeros({4, 1}), at::zeros({4, 1}), {.batch_size = 4, .verbose = 2});
    });
  };
  EXPECT_TRUE(has(said(losses::Reduction::kSumOverBatchSize),
                  "loss mean_squared_error, reduction sum_over_batch_size: the mean over the rows "
                  "of all replicas"));
  EXPECT_TRUE(has(said(losses::Reduction::kSum), "reduction sum: the sum over the rows"));
  EXPECT_TRUE(has(said(losses::Reduction::kMeanWithSampleWeight),
                  "reduction mean_with_sample_weight: divided by the sample weights of all"));
}

TEST(UserIssues, Issue19_FitSaysTheGlobalBatchAndTheReplicas) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    const std::string text = count == 1 ? "; a global batch of 4\n"
                                        : cat("; a global batch of 4, ceil(4 / ", count,
                                              ") = 2 rows for each of ", count, " replicas\n");
    EXPECT_TRUE(has(
        said_by(LogLevel::kInfo,
                [&] {
                  model->fit(at::zeros({8, 1}), at::zeros({8, 1}), {.batch_size = 4, .verbose = 2});
                }),
        text));
    EXPECT_TRUE(has(
        said_by(LogLevel::kInfo, [&] { model->fit(zeros(8).batch(4), {.verbose = 2}); }), text));
  }
}

TEST(UserIssues, Issue22_FitReportsSamplesASecondAndGlobalSteps) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    const std::string first = said_by(
        LogLevel::kInfo, [&] { model->fit(zeros(5).batch(2), {.epochs = 3, .verbose = 2}); });
    EXPECT_TRUE(has(first, "3 epochs: 9 steps with 15 samples in "));
    EXPECT_TRUE(has(first, " samples/s, global step 9\n"));
    double milliseconds = 0, speed = 0;
    ASSERT_EQ(std::sscanf(first.c_str() + first.find("samples in "), "samples in %lf ms, %lf",
                          &milliseconds, &speed),
              2)
        << first;
    EXPECT_NEAR(speed * milliseconds / 1e3, 15, 15 * .01 + milliseconds / 1e3);
    // The same number of steps with twice the rows is told apart.
    const std::string wider = said_by(LogLevel::kInfo, [&] {
      model->fit(zeros(20).batch(4), {.verbose = 2, .steps_per_epoch = 2});
    });
    EXPECT_TRUE(has(wider, "1 epochs: 2 steps with 8 samples in "));
    EXPECT_TRUE(has(wider, "global step 11\n"));
    EXPECT_EQ(said_by(LogLevel::kInfo, [&] { model->fit(zeros(5).batch(2), {.verbose = 0}); }), "");
    const std::string epochs = said_by(
        LogLevel::kDebug, [&] { model->fit(zeros(5).batch(2), {.epochs = 2, .verbose = 0}); });
    EXPECT_TRUE(has(epochs, "epoch 2: 3 steps with 5 samples in "));
    EXPECT_TRUE(has(epochs, "global step 17\n"));
    EXPECT_TRUE(has(epochs, "global step 20\n"));
  }
}

// ---- denominators of the user's own

/// A call for the losses w * t of `tokens`, token i on replica i mod n, divided by their number.
void add_tokens(distribute::Strategy& strategy, optimizers::Optimizer& optimizer, const Variable& w,
                const std::vector<float>& tokens) {
  strategy.run([&] {
    const auto context = get_replica_context();
    std::vector<float> own;
    for (std::size_t i = static_cast<std::size_t>(context->replica_id_in_sync_group());
         i < tokens.size(); i += static_cast<std::size_t>(context->num_replicas_in_sync()))
      own.push_back(tokens[i]);
    GradientTape tape;
    const Tensor sum = (w.value() * at::tensor(own)).sum();
    const std::vector<Variable> variables{w};
    optimizer.apply_gradient_sums(tape.gradient(sum, variables), variables,
                                  static_cast<double>(own.size()));
  });
}

TEST(UserIssues, Issue18_DenominatorsAreSummedOverReplicasAndMicroSteps) {
  for (int count : {1, 2, 3, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    // Tokens of mean 14 / 5; the mean of the calls' means is 2.5.
    optimizers::SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 2});
    const Variable w(at::zeros({1}));
    add_tokens(*strategy, optimizer, w, {1, 2, 3, 6});
    EXPECT_EQ(w.read_value().item<float>(), 0);
    EXPECT_EQ(optimizer.accumulated_denominator(), 4.);
    add_tokens(*strategy, optimizer, w, {2});
    EXPECT_NEAR(w.read_value().item<float>(), -14 / 5., 1e-6) << count;
    EXPECT_FALSE(optimizer.accumulated_denominator().has_value());
    // The next update begins anew.
    add_tokens(*strategy, optimizer, w, {1});
    add_tokens(*strategy, optimizer, w, {});
    EXPECT_NEAR(w.read_value().item<float>(), -14 / 5. - 1, 1e-6) << count;
    // Without accumulation over the replicas alone.
    optimizers::SGD each({.learning_rate = 1});
    const Variable v(at::zeros({1}));
    add_tokens(*strategy, each, v, {1, 2, 3, 6});
    EXPECT_NEAR(v.read_value().item<float>(), -3, 1e-6) << count;
    add_tokens(*strategy, each, v, {});
    EXPECT_NEAR(v.read_value().item<float>(), -3, 1e-6) << "nothing to divide by, no NaN";
  }
}

TEST(UserIssues, Issue18_DenominatorsGoWithAFileSavedBetweenMicroSteps) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti_issue18_", getpid(), ".tutti")).string();
  {
    auto strategy = replicas(2);
    auto scope = strategy->scope();
    auto model =
        line({.optimizer = optimizers::SGD({.learning_rate = 1, .gradient_accumulation_steps = 2}),
              .loss = "mse"});
    add_tokens(*strategy, model->optimizer(), model->trainable_variables()[0], {1, 2, 3, 6});
    model->save(path);
  }
  for (int count : {1, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    const auto model = load_model(path);
    add_tokens(*strategy, model->optimizer(), model->trainable_variables()[0], {2});
    EXPECT_NEAR(weight(*model), 1 - 14 / 5., 1e-6) << count;
  }
  std::filesystem::remove(path);
}

TEST(UserIssues, Issue18_CallsWithAndWithoutDenominatorsDoNotMix) {
  optimizers::SGD optimizer({.gradient_accumulation_steps = 2});
  const Variable w(at::zeros({1}));
  const std::vector<Tensor> gradients{at::ones({1})};
  optimizer.apply_gradients(gradients, {w});
  EXPECT_ERROR(optimizer.apply_gradient_sums(gradients, {w}, 2), InvalidArgument,
               "after calls without a denominator");
  optimizer.apply_gradients(gradients, {w});
  optimizer.apply_gradient_sums(gradients, {w}, 2);
  EXPECT_ERROR(optimizer.apply_gradients(gradients, {w}), InvalidArgument,
               "after calls with a denominator");
  EXPECT_ERROR(optimizer.apply_gradient_sums(gradients, {w}, -1), InvalidArgument,
               "denominator -1");
  EXPECT_ERROR(optimizer.apply_gradient_sums(gradients, {w}, std::nan("")), InvalidArgument,
               "denominator");
  EXPECT_ERROR(optimizer.set_accumulated_gradients({at::ones({1})}, 1, -2.), InvalidArgument,
               "denominator -2");
}

// ---- how training ends

/// Epoch e ends with values[e] as "score" in the logs and with the weight e.
struct Scripted : callbacks::Callback {
  std::vector<double> values;
  explicit Scripted(std::vector<double> values) : values(std::move(values)) {}
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    logs.set("score", values.at(static_cast<std::size_t>(epoch)));
    model()->set_weights({at::full({1, 1}, static_cast<double>(epoch))});
  }
};
/// Stops in epoch 3, before its end or at it.
struct StopsInEpoch3 : callbacks::Callback {
  explicit StopsInEpoch3(bool at_its_end) : at_its_end(at_its_end) {}
  bool at_its_end;
  int64_t epoch = 0;
  void on_epoch_begin(int64_t begun, const Logs&) override { epoch = begun; }
  void on_train_batch_end(int64_t, const Logs&) override {
    if (!at_its_end && epoch == 3) model()->stop_training = true;
  }
  void on_epoch_end(int64_t ended, Logs&) override {
    if (at_its_end && ended == 3) model()->stop_training = true;
  }
};

callbacks::AnyCallback best_of_score() {
  return callbacks::EarlyStopping(
      {.monitor = "score", .patience = 10, .mode = "min", .restore_best_weights = true});
}
const std::vector<double> kBestIsEpoch1 = {1, .5, .9, .8, .7};

TEST(UserIssues, Issue68_TheBestWeightsComeBackWhateverEndsTraining) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    const auto fit = [&](const std::vector<callbacks::AnyCallback>& callbacks,
                         FitOptions options = {}) {
      auto model = still();
      options.epochs = 5;
      options.verbose = 0;
      options.callbacks = callbacks;
      const History history = model->fit(zeros(4).batch(2), options);
      EXPECT_EQ(weight(*model), 1) << "after " << history.epoch.size() << " epochs";
      return history.epoch.size();
    };
    const auto script = callbacks::make(Scripted(kBestIsEpoch1));
    EXPECT_EQ(fit({script, best_of_score()}), 5u) << "the epochs are over";
    for (bool at_its_end : {true, false}) {
      const auto stop = callbacks::make(StopsInEpoch3(at_its_end));
      EXPECT_EQ(fit({script, best_of_score(), stop}), 4u) << "another callback, behind it";
      EXPECT_EQ(fit({stop, script, best_of_score()}), 4u) << "another callback, before it";
    }
    EXPECT_EQ(fit({script, callbacks::EarlyStopping({.monitor = "score",
                                                     .patience = 2,
                                                     .mode = "min",
                                                     .restore_best_weights = true})}),
              4u)
        << "EarlyStopping itself";
  }
}

TEST(UserIssues, Issue68_WhenTheDataRunOutTheBestWeightsComeBack) {
  auto model = still();
  // Epochs of 2 steps; the third finds one.
  int64_t left = 5;
  using Row = std::tuple<Tensor, Tensor>;
  const data::Dataset<Nest> dataset = data::from_generator<Row>([&left] {
    return [&left]() -> std::optional<Row> {
      if (left == 0) return std::nullopt;
      --left;
      return Row(at::zeros({2, 1}), at::zeros({2, 1}));
    };
  });
  const History history =
      model->fit(dataset, {.epochs = 5,
                           .verbose = 0,
                           .callbacks = {callbacks::make(Scripted(kBestIsEpoch1)), best_of_score()},
                           .steps_per_epoch = 2});
  EXPECT_EQ(history.epoch.size(), 3u);
  EXPECT_EQ(weight(*model), 1);
}

TEST(UserIssues, Issue68_TheyComeAfterACheckpointAndTheAverageOfTheWeights) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti_issue68_", getpid(), ".weights.tutti"))
          .string();
  auto model =
      line({.optimizer = optimizers::SGD({.learning_rate = 0, .use_ema = true}), .loss = "mse"});
  model->fit(zeros(4).batch(2),
             {.epochs = 5,
              .verbose = 0,
              .callbacks = {callbacks::make(Scripted(kBestIsEpoch1)), best_of_score(),
                            callbacks::ModelCheckpoint(path, {.save_weights_only = true})}});
  EXPECT_EQ(weight(*model), 1) << "neither the average nor the last epoch's";
  model->load_weights(path);
  EXPECT_EQ(weight(*model), 4) << "the checkpoint has the last epoch's";
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tutti::keras
