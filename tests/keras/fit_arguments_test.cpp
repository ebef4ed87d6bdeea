// The less usual arguments of fit, evaluate, predict and the calls on one batch.

#include <set>

#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/tutti.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using testing::Calls;
using testing::column;
using testing::line;
using testing::Numbers;
using testing::Recorder;
using testing::replicas;
using testing::still;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

/// The rows of each step, in order.
struct Watching : Sequential {
  Watching() : Sequential({Dense(1, {.input_shape = {1}})}) {
    compile({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
  }
  void train_step(const Batch& batch) override {
    const Tensor x = batch.x.flatten();
    steps.emplace_back(x.data_ptr<float>(), x.data_ptr<float>() + x.numel());
    Sequential::train_step(batch);
  }
  std::vector<std::vector<float>> steps;
};

// ---- shuffle

TEST(Shuffle, BatchMixesWholeBatchesAndKeepsTheShortOneAtTheEnd) {
  set_seed(5);
  Watching model;
  std::vector<float> numbers;
  for (int i = 0; i < 17; ++i) numbers.push_back(static_cast<float>(i));
  model.fit(column(numbers), column(numbers),
            {.batch_size = 2, .epochs = 3, .verbose = 0, .shuffle = "batch"});
  ASSERT_EQ(model.steps.size(), 27u);
  std::vector<std::vector<float>> orders;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::set<float> seen;
    std::vector<float> order;
    for (std::size_t step = 0; step < 8; ++step) {
      const auto& rows = model.steps[9 * epoch + step];
      ASSERT_EQ(rows.size(), 2u);
      EXPECT_EQ(rows[1], rows[0] + 1) << "rows of a batch stay together";
      EXPECT_EQ(static_cast<int>(rows[0]) % 2, 0);
      seen.insert(rows[0]);
      order.push_back(rows[0]);
    }
    EXPECT_EQ(seen.size(), 8u);
    EXPECT_EQ(model.steps[9 * epoch + 8], (std::vector<float>{16}));
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(Shuffle, OtherWordsAreRefused) {
  EXPECT_ERROR(Shuffle("rows"), InvalidArgument, "shuffle \"rows\", expected true, false or");
}

TEST(Shuffle, OfADatasetIsIgnoredWithAWarning) {
  auto model = still();
  const auto data = data::from_tensor_slices(column({1, 2}), column({0, 0})).batch(1);
  CaptureStderr();
  model->fit(data, {.verbose = 0, .shuffle = true});
  EXPECT_NE(GetCapturedStderr().find("shuffle is for arrays and ignored here"), std::string::npos);
  CaptureStderr();
  model->fit(data, {.verbose = 0, .shuffle = false});
  model->fit(data, {.verbose = 0});
  EXPECT_EQ(GetCapturedStderr(), "");
}

// ---- validation_freq

TEST(ValidationFrequency, MayBeAListOfEpochs) {
  auto model = still();
  const Tensor x = column({1});
  FitOptions options{.epochs = 5, .verbose = 0, .validation_data = {x, x}};
  options.validation_freq = {1, 4};
  auto recorder = std::make_shared<Recorder>();
  options.callbacks = {recorder};
  const History history = model->fit(x, x, options);
  EXPECT_EQ(history.history.at("val_loss").size(), 2u);
  Calls epochs;
  for (std::size_t i = 0; i < recorder->calls->size(); ++i) {
    if ((*recorder->calls)[i].rfind("epoch end", 0) == 0 && i > 0 &&
        (*recorder->calls)[i - 1].rfind("test end", 0) == 0)
      epochs.push_back((*recorder->calls)[i]);
  }
  EXPECT_EQ(epochs, (Calls{"epoch end 0 2", "epoch end 3 2"}));
  EXPECT_ERROR(model->fit(x, x, {.verbose = 0, .validation_freq = {0}}), InvalidArgument,
               "epoch 0 in validation_freq");
}

TEST(ValidationData, TakesSeveralForms) {
  auto model = still();
  const Tensor x = column({1}), y = column({3}), w = at::full({1}, .5f);
  auto val_loss = [&](const ValidationData& data) {
    return model->fit(x, x, {.verbose = 0, .validation_data = data}).history.at("val_loss")[0];
  };
  EXPECT_NEAR(val_loss({x, y}), 4, 1e-6);
  EXPECT_NEAR(val_loss({x, y, w}), 2, 1e-6);
  EXPECT_NEAR(val_loss(std::pair(x, y)), 4, 1e-6);
  EXPECT_NEAR(val_loss(std::tuple(x, y, w)), 2, 1e-6);
  EXPECT_NEAR(val_loss(data::from_tensor_slices(x, y).batch(1)), 4, 1e-6);
}

// ---- executions

TEST(StepsPerExecution, HooksOfEvaluateAndPredictNameTheEndOfAnExecution) {
  auto model = still({.loss = "mse", .steps_per_execution = 3});
  auto recorder = std::make_shared<Recorder>();
  const Tensor x = column({1, 1, 1, 1, 1, 1, 1});
  model->evaluate(x, at::zeros_like(x), {.batch_size = 1, .verbose = 0, .callbacks = {recorder}});
  EXPECT_EQ(*recorder->calls,
            (Calls{"test", "test batch 0", "test batch end 2 1", "test batch 3",
                   "test batch end 5 1", "test batch 6", "test batch end 8 1", "test end 1"}));
  recorder->calls->clear();
  EXPECT_EQ(model->predict(x, {.batch_size = 1, .verbose = 0, .callbacks = {recorder}}).size(0), 7);
  EXPECT_EQ(*recorder->calls, (Calls{"predict", "predict batch 0", "predict batch end 2",
                                     "predict batch 3", "predict batch end 5", "predict batch 6",
                                     "predict batch end 8", "predict end"}));
  recorder->calls->clear();
  model->predict(x, {.batch_size = 1, .verbose = 0, .steps = 4, .callbacks = {recorder}});
  EXPECT_EQ(recorder->calls->size(), 6u);
}

TEST(StepsPerExecution, LeaveTheCallsOnOneBatchAlone) {
  auto model = still({.loss = "mse", .steps_per_execution = 3});
  const Nest outputs = model->predict_on_batch(column({1, 2}));
  EXPECT_TENSOR_EQ(outputs.leaf(), column({1, 2}));
}

// ---- one batch

TEST(OneBatch, ClassWeightsAndSampleWeightsExcludeEachOther) {
  auto model = still();
  const Tensor x = column({1, 2}), y = column({0, 1});
  EXPECT_NEAR(model->train_on_batch(x, y, {}, {{1, 3.}})["loss"], (1 + 3 * 1) / 2., 1e-6);
  EXPECT_ERROR(model->train_on_batch(x, y, at::ones({2}), {{1, 3.}}), InvalidArgument,
               "train_on_batch: class_weight and sample_weight, expected one of them");
  EXPECT_ERROR(model->train_on_batch(x, {}, {}, {{1, 3.}}), InvalidArgument,
               "train_on_batch: class_weight without labels");
}

TEST(OneBatch, PredictKeepsRowsOnAnyNumberOfReplicas) {
  for (int count : {1, 2, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = still();
    EXPECT_TENSOR_EQ(model->predict_on_batch(column({1, 2, 3})).leaf(), column({1, 2, 3}));
    EXPECT_ERROR(model->predict_on_batch(Tensor()), InvalidArgument, "predict_on_batch: x undef");
  }
}

TEST(OneBatch, MetricsNamesAreLossAndThoseCompiled) {
  auto model = still({.loss = "mse", .metrics = {"mae"}, .weighted_metrics = {"mae"}});
  EXPECT_EQ(model->metrics_names(), (std::vector<std::string>{"loss"}));
  model->test_on_batch(column({1}), column({0}));
  EXPECT_EQ(model->metrics_names(), (std::vector<std::string>{"loss", "mae", "weighted_mae"}));
  EXPECT_EQ(model->metrics().size(), 3u);
}

TEST(OneBatch, EqualNamesOfMetricsAreNumberedAsInKeras) {
  auto model = still({.loss = "mse",
                      .metrics = {"mae", "mae", "mse", "mae"},
                      .weighted_metrics = {"mae", "mae", "mse", "mape"}});
  const Logs logs = model->test_on_batch(column({1, 2}), column({0, 0}), at::tensor({1.f, 0.f}));
  EXPECT_EQ(model->metrics_names(),
            (std::vector<std::string>{"loss", "mae", "mae_1", "mse", "mae_2", "weighted_mae",
                                      "weighted_mae_1", "weighted_mse", "mape"}));
  EXPECT_NEAR(logs["mae_2"], 1.5, 1e-6);
  EXPECT_NEAR(logs["weighted_mae_1"], 1, 1e-6);
}

TEST(OneBatch, ANumberedNameThatIsTakenGoesOn) {
  auto model =
      still({.loss = "mse",
             .metrics = {metrics::MeanAbsoluteError("e_1"), metrics::MeanAbsoluteError("e"),
                         metrics::MeanAbsoluteError("e")}});
  model->test_on_batch(column({1}), column({0}));
  EXPECT_EQ(model->metrics_names(), (std::vector<std::string>{"loss", "e_1", "e", "e_2"}));
}

TEST(OneBatch, AListOfOneIsThatOne) {
  auto model = still();
  EXPECT_NEAR(model->test_on_batch({column({2})}, {column({0})})["loss"], 4, 1e-6);
}

TEST(Arrays, AreNoneOneAListOrNamed) {
  EXPECT_FALSE(Arrays().defined());
  EXPECT_FALSE(Arrays(Tensor()).defined());
  EXPECT_EQ(Arrays(at::ones({1})).structure(), "*");
  EXPECT_EQ((Arrays{at::ones({1}), at::ones({1})}).structure(), "[*, *]");
  EXPECT_EQ((Arrays{{"b", at::ones({1})}, {"a", at::ones({1})}}).structure(), "{a: *, b: *}");
  EXPECT_EQ(Arrays(std::tuple(at::ones({1}), at::ones({1}))).structure(), "(*, *)");
}

TEST(Arrays, MayHoldStrings) {
  struct Lengths : Model {
    Nest call_all(const Nest& inputs, bool) override {
      const StringTensor& strings = inputs["text"].strings();
      std::vector<float> lengths;
      for (const std::string& text : strings.values())
        lengths.push_back(static_cast<float>(text.size()));
      return inputs["x"].leaf() + at::tensor(lengths).unsqueeze(1);
    }
  };
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Lengths model;
    const Nest x = Nest::map({{"text", StringTensor{"a", "bb", "ccc"}}, {"x", column({1, 1, 1})}});
    EXPECT_TENSOR_EQ(model.predict(x, {.batch_size = 2, .verbose = 0}), column({2, 3, 4}));
  }
}

// ---- what is taken without effect

TEST(Compile, TakesRunEagerlyAndJitCompile) {
  auto model = still({.loss = "mse", .run_eagerly = true, .jit_compile = true});
  EXPECT_NEAR(model->test_on_batch(column({2}), column({0}))["loss"], 4, 1e-6);
}

// ---- mixed precision

TEST(MixedPrecision, LossesAndMetricsAreComputedInFloat32) {
  mixed_precision::set_global_policy("mixed_bfloat16");
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Sequential model({Dense(1, {.use_bias = false, .input_shape = {1}})});
    model.set_weights({at::ones({1, 1})});
    EXPECT_EQ(model(column({1})).scalar_type(), at::kBFloat16);
    EXPECT_EQ(model.weights()[0].dtype(), at::kFloat);
    model.compile(
        {.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse", .metrics = {"mae"}});
    // 257 squared is no bfloat16, nor is the sum of its losses.
    std::vector<float> ones(300, 1.f);
    const Logs logs = model.evaluate(column(ones), column(ones) + 256, {.verbose = 0});
    EXPECT_EQ(logs["loss"], 256 * 256);
    EXPECT_EQ(logs["mae"], 256);
    model.fit(column(ones), column(ones), {.verbose = 0});
  }
  mixed_precision::set_global_policy("float32");
}

}  // namespace
}  // namespace tutti::keras
