#include "tutti/keras/optimizers.h"

#include <cmath>

#include "keras/optimizers/rules.h"
#include "support/expect.h"
#include "tutti/base/log.h"
#include "tutti/distribute/strategies.h"

namespace tutti::keras::optimizers {
namespace {

using distribute::MirroredStrategyOptions;
using Rows = std::vector<std::vector<float>>;

// TensorFlow's weights from (1, -2, .5) after each of three steps with these gradients.
const Rows kGradients = {{.1f, -.2f, .3f}, {.4f, 0.f, -.1f}, {-.3f, .2f, .05f}};
const auto kStart = [] { return at::tensor({1.f, -2.f, .5f}); };

struct Recorded {
  const char* class_name;
  const char* config;
  Rows weights;
};
const std::vector<Recorded> kRecorded = {
    {"SGD",
     "{}",
     {{.99900001f, -1.998f, .49700001f}, {.995f, -1.998f, .498f}, {.99800003f, -2.f, .4975f}}},
    {"SGD",
     R"({"momentum": 0.9})",
     {{.99900001f, -1.998f, .49700001f},
      {.99410003f, -1.9962001f, .49529999f},
      {.99269003f, -1.9965801f, .49327001f}}},
    {"SGD",
     R"({"momentum": 0.9, "nesterov": true})",
     {{.99809998f, -1.9962f, .49430001f},
      {.98969001f, -1.9945799f, .49377f},
      {.99142098f, -1.9969219f, .49144301f}}},
    {"SGD",
     R"({"weight_decay": 0.01})",
     {{.9989f, -1.9978f, .49695f},
      {.99480009f, -1.9976002f, .49790031f},
      {.99770063f, -1.9994004f, .49735051f}}},
    {"SGD",
     R"({"clipnorm": 0.2})",
     {{.99946547f, -1.9989309f, .49839643f},
      {.99752516f, -1.9989309f, .49888149f},
      {.99917346f, -2.0000298f, .49860677f}}},
    {"SGD",
     R"({"clipvalue": 0.15})",
     {{.99900001f, -1.9985f, .49849999f},
      {.9975f, -1.9985f, .49949998f},
      {.99900001f, -2.f, .49899998f}}},
    {"RMSprop",
     "{}",
     {{.99683785f, -1.9968377f, .49683774f},
      {.99376094f, -1.9968377f, .497886f},
      {.99568903f, -1.9991882f, .49734175f}}},
    {"RMSprop",
     R"({"momentum": 0.9, "centered": true})",
     {{.99666685f, -1.9966667f, .4966667f},
      {.99034512f, -1.9936668f, .49473205f},
      {.98659158f, -1.9933196f, .49243283f}}},
    {"Adam",
     "{}",
     {{.99900001f, -1.9990001f, .49900001f},
      {.99811566f, -1.99833f, .4985998f},
      {.99793893f, -1.9984158f, .49819437f}}},
    {"Adam",
     R"({"amsgrad": true})",
     {{.99900001f, -1.9990001f, .49900001f},
      {.99811566f, -1.9983304f, .4985998f},
      {.99793893f, -1.9984162f, .49819437f}}},
    {"AdamW",
     "{}",
     {{.99899602f, -1.9989921f, .49899802f},
      {.99810767f, -1.998314f, .4985958f},
      {.99792695f, -1.9983919f, .49818838f}}},
    {"Adagrad",
     "{}",
     {{.99969846f, -1.9994655f, .49931175f},
      {.99892867f, -1.9994655f, .49953535f},
      {.99942869f, -1.9999368f, .49942425f}}},
};

class RecordedOptimizer : public ::testing::TestWithParam<std::size_t> {};

TEST_P(RecordedOptimizer, GivesTensorFlowsWeightsWithoutAStrategy) {
  const Recorded& recorded = kRecorded[GetParam()];
  Optimizer optimizer = Optimizer::from_config(recorded.class_name, recorded.config);
  const Variable weights(kStart());
  for (std::size_t step = 0; step < kGradients.size(); ++step) {
    optimizer.apply_gradients({at::tensor(kGradients[step])}, {weights});
    EXPECT_TENSOR_NEAR(weights.value(), at::tensor(recorded.weights[step]), 1e-6);
  }
  EXPECT_EQ(optimizer.iterations(), 3);
}

TEST_P(RecordedOptimizer, AddsTheReplicasGradientsFirst) {
  const Recorded& recorded = kRecorded[GetParam()];
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
  auto scope = strategy.scope();
  Optimizer optimizer = Optimizer::from_config(recorded.class_name, recorded.config);
  const Variable weights(kStart());
  for (std::size_t step = 0; step < kGradients.size(); ++step) {
    strategy.run([&] {
      const double share =
          distribute::get_replica_context()->replica_id_in_sync_group() == 1 ? 0.5 : 0.25;
      optimizer.apply_gradients({at::tensor(kGradients[step]) * share}, {weights});
    });
    EXPECT_TENSOR_NEAR(weights.value(), at::tensor(recorded.weights[step]), 1e-6);
  }
  EXPECT_TRUE(weights.is_shared());
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RecordedOptimizer,
                         ::testing::Range<std::size_t>(0, kRecorded.size()));

// ---- the loops against the tensor operations
// --------------------------------------------------------------------------------------

std::vector<std::pair<const char*, std::shared_ptr<distribute::UpdateRule>>> rules() {
  return {
      {"sgd", make_rule(SGDOptions{.weight_decay = 0.1})},
      {"momentum", make_rule(SGDOptions{.momentum = 0.9})},
      {"nesterov", make_rule(SGDOptions{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1})},
      {"adam", make_rule(AdamOptions{.learning_rate = 0.1, .weight_decay = 0.1})},
      {"amsgrad", make_rule(AdamOptions{.learning_rate = 0.1, .amsgrad = true})},
      {"rmsprop", make_rule(RMSpropOptions{.learning_rate = 0.1, .weight_decay = 0.1})},
      {"rmsprop centered", make_rule(RMSpropOptions{.learning_rate = 0.1, .centered = true})},
      {"rmsprop momentum", make_rule(RMSpropOptions{.learning_rate = 0.1, .momentum = 0.9})},
      {"rmsprop both",
       make_rule(RMSpropOptions{.learning_rate = 0.1, .momentum = 0.9, .centered = true})},
      {"adagrad", make_rule(AdagradOptions{.learning_rate = 0.1, .weight_decay = 0.1})},
      {"average of adam", with_average(make_rule(AdamOptions{.learning_rate = 0.1}), {0.8})},
      {"average of rmsprop both, overwritten",
       with_average(
           make_rule(RMSpropOptions{.learning_rate = 0.1, .momentum = 0.9, .centered = true}),
           {0.8, 2})}};
}

template <class Scalar>
void expect_loop_equals_tensors(at::ScalarType dtype, double tolerance) {
  for (const auto& [name, rule] : rules()) {
    for (const int64_t n : {1, 3, 7, 8, 15, 16, 17, 31, 64, 67, 1000}) {
      for (const bool decay : {true, false}) {
        SCOPED_TRACE(cat(name, " of ", n, decay ? " decaying" : ""));
        const Tensor start = at::arange(n, at::kDouble).mul(0.7).sin().to(dtype);
        Tensor by_loop = start.clone();
        Tensor by_tensors = start.clone();
        std::vector<Tensor> slots;
        std::vector<Tensor> oracle_slots;
        std::vector<Scalar*> pointers;
        for (std::size_t s = 0; s < rule->slot_names().size(); ++s) {
          slots.push_back(at::full({n}, rule->slot_initial_value(), start.options()));
          oracle_slots.push_back(slots.back().clone());
          pointers.push_back(slots.back().data_ptr<Scalar>());
        }
        for (int64_t step = 0; step < 4; ++step) {
          const Tensor gradient =
              at::arange(n, at::kDouble).mul(1.3).add(static_cast<double>(step)).cos().to(dtype);
          rule->begin_step(step);
          rule->update(by_loop.data_ptr<Scalar>(), gradient.data_ptr<Scalar>(), pointers.data(), n,
                       decay);
          rule->update_tensors(by_tensors, gradient, oracle_slots, decay);
        }
        EXPECT_TENSOR_NEAR(by_loop, by_tensors, tolerance);
        for (std::size_t s = 0; s < slots.size(); ++s)
          EXPECT_TENSOR_NEAR(slots[s], oracle_slots[s], tolerance);
      }
    }
  }
}

TEST(OptimizerLoops, AgreeWithTensorOperationsInFloat) {
  expect_loop_equals_tensors<float>(at::kFloat, 2e-5);
}
TEST(OptimizerLoops, AgreeWithTensorOperationsInDouble) {
  expect_loop_equals_tensors<double>(at::kDouble, 1e-12);
}

// ---- apply_gradients
// --------------------------------------------------------------------------------------------------------------

TEST(Optimizers, DoubleWeightsAreUpdatedInDouble) {
  SGD optimizer({.learning_rate = 0.1});
  const Variable weights(at::ones({2}, at::kDouble));
  optimizer.apply_gradients({at::full({2}, 1e-9, at::kDouble)}, {weights});
  EXPECT_TENSOR_NEAR(weights.value() - 1, at::full({2}, -1e-10, at::kDouble), 1e-15);
}

TEST(Optimizers, GradientsMayLieInAnotherOrderThanTheWeights) {
  Adam optimizer;
  const Variable weights(at::zeros({2, 3}).t());
  const Tensor gradient = at::tensor({1.f, -1.f, 1.f, 1.f, -1.f, -1.f}).view({3, 2});
  optimizer.apply_gradients({gradient}, {weights});
  EXPECT_TENSOR_NEAR(weights.value(), gradient * -1e-3, 1e-6);
}

TEST(Optimizers, GlobalNormIsClippedAfterTheReplicasAreAdded) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  SGD optimizer({.learning_rate = 1, .global_clipnorm = 1});
  const Variable a(at::zeros({1}), {.name = "a"});
  const Variable b(at::zeros({1}), {.name = "b"});
  // Opposite parts, whose norms are far above the bound, while the norm of the sum is 5.
  strategy.run([&] {
    const float sign =
        distribute::get_replica_context()->replica_id_in_sync_group() == 0 ? 1.f : -1.f;
    optimizer.apply_gradients({at::full({1}, 100 * sign + 1.5f), at::full({1}, 50 * sign + 2.f)},
                              {a, b});
  });
  EXPECT_TENSOR_NEAR(a.value(), at::full({1}, -0.6f), 1e-5);
  EXPECT_TENSOR_NEAR(b.value(), at::full({1}, -0.8f), 1e-5);
}

TEST(Optimizers, AggregationMayBeSkipped) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  SGD optimizer({.learning_rate = 1});
  const Variable weights(at::zeros({2}));
  strategy.run(
      [&] { optimizer.apply_gradients({at::ones({2})}, {weights}, /*skip_aggregation=*/true); });
  EXPECT_TENSOR_EQ(weights.value(), at::full({2}, -1.f));
}

TEST(Optimizers, TheLearningRateMayChangeBetweenSteps) {
  SGD optimizer({.learning_rate = 1});
  const Variable weights(at::zeros({1}));
  optimizer.apply_gradients({at::ones({1})}, {weights});
  optimizer.set_learning_rate(0.25);
  optimizer.apply_gradients({at::ones({1})}, {weights});
  EXPECT_EQ(weights.value().item<float>(), -1.25f);
  EXPECT_EQ(optimizer.learning_rate(), 0.25);
  EXPECT_ERROR(optimizer.set_learning_rate(std::nan("")), InvalidArgument, "learning_rate nan");
}

TEST(Optimizers, IterationsSetTheBiasCorrection) {
  Adam optimizer;
  optimizer.set_iterations(1000000);
  const Variable weights(at::zeros({1}));
  optimizer.apply_gradients({at::ones({1})}, {weights});
  EXPECT_NEAR(weights.value().item<float>(), -1e-3 * 0.1 / std::sqrt(0.001), 1e-6);
  EXPECT_EQ(optimizer.iterations(), 1000001);
}

TEST(Optimizers, SlotsAreNamedAndLieInTheOrderOfTheVariables) {
  Adam optimizer({.amsgrad = true});
  EXPECT_EQ(optimizer.slot_names(),
            (std::vector<std::string>{"momentum", "velocity", "velocity_hat"}));
  EXPECT_TRUE(optimizer.slots("momentum").empty());
  const Variable a(at::zeros({2}), {.name = "a"});
  const Variable b(at::zeros({3}), {.name = "b"});
  optimizer.build({a, b});
  ASSERT_EQ(optimizer.slots("velocity").size(), 2u);
  EXPECT_EQ(optimizer.slots("velocity")[1].numel(), 3);
  EXPECT_ERROR(optimizer.slots("speed"), NotFound, "momentum, velocity, velocity_hat");
  EXPECT_TRUE(SGD().slot_names().empty());
}

TEST(Optimizers, SlotsAreMirroredLikeTheirVariables) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  Adagrad optimizer;
  optimizer.build({Variable(at::zeros({2}))});
  const Variable slot = optimizer.slots("accumulator")[0];
  EXPECT_EQ(slot.components().size(), 2u);
  EXPECT_TENSOR_EQ(slot.value(), at::full({2}, 0.1f));
  EXPECT_FALSE(slot.trainable());
}

TEST(Optimizers, DecayLeavesOutTheNamedVariables) {
  SGD optimizer({.learning_rate = 1, .weight_decay = 0.5});
  optimizer.exclude_from_weight_decay({.var_names = {"bias"}});
  const Variable kernel(at::ones({1}), {.name = "dense/kernel"});
  const Variable bias(at::ones({1}), {.name = "dense/bias"});
  optimizer.apply_gradients({at::zeros({1}), at::zeros({1})}, {kernel, bias});
  EXPECT_EQ(kernel.value().item<float>(), 0.5f);
  EXPECT_EQ(bias.value().item<float>(), 1.f);
  EXPECT_ERROR(optimizer.exclude_from_weight_decay({.var_names = {"kernel"}}), FailedPrecondition,
               "before its first update");
}

TEST(Optimizers, UndefinedGradientsAreSkippedWithOneWarning) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  SGD optimizer({.learning_rate = 1, .weight_decay = 0.5});
  const Variable used(at::ones({1}), {.name = "used"});
  const Variable unused(at::ones({1}), {.name = "unused"});
  optimizer.apply_gradients({at::zeros({1}), Tensor()}, {used, unused});
  optimizer.apply_gradients({at::zeros({1}), Tensor()}, {used, unused});
  const std::string log = ::testing::internal::GetCapturedStderr();
  set_log_level(before);
  EXPECT_EQ(unused.value().item<float>(), 1.f);
  EXPECT_EQ(used.value().item<float>(), 0.25f);
  EXPECT_NE(log.find("no gradient for unused"), std::string::npos) << log;
  EXPECT_EQ(log.find("no gradient", log.find("no gradient") + 1), std::string::npos) << log;
}

TEST(Optimizers, GradientsMustBelongToTheVariables) {
  SGD optimizer;
  const Variable a(at::ones({2}), {.name = "a"});
  const Variable b(at::ones({2}), {.name = "b"});
  EXPECT_ERROR(optimizer.apply_gradients({Tensor()}, {a}), InvalidArgument,
               "no gradient for any of the 1 variables");
  EXPECT_ERROR(optimizer.apply_gradients({at::ones({2})}, {a, b}), InvalidArgument,
               "1 gradients for 2 variables");
  EXPECT_ERROR(optimizer.apply_gradients({at::ones({3})}, {a}), InvalidArgument,
               "shape (3,), expected (2,)");
  EXPECT_ERROR(optimizer.apply_gradients({at::ones({2})}, {b}), InvalidArgument, "the variable b");
  EXPECT_ERROR(optimizer.build({a, b}), FailedPrecondition, "built a second time");
  EXPECT_TENSOR_EQ(a.value(), at::ones({2}));
}

TEST(Optimizers, VariablesMayComeInAnotherOrderOrInPart) {
  SGD optimizer({.learning_rate = 1});
  const Variable a(at::zeros({1}), {.name = "a"});
  const Variable b(at::zeros({2}), {.name = "b"});
  optimizer.build({a, b});
  optimizer.apply_gradients({at::ones({2}), at::full({1}, 3.f)}, {b, a});
  optimizer.apply_gradients({at::ones({2})}, {b});
  EXPECT_TENSOR_EQ(a.value(), at::full({1}, -3.f));
  EXPECT_TENSOR_EQ(b.value(), at::full({2}, -2.f));
}

TEST(Optimizers, AnErrorInOneReplicaReachesTheCallerAndTheNextStepWorks) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  SGD optimizer({.learning_rate = 1});
  const Variable weights(at::zeros({2}));
  auto step = [&](int64_t size_on_replica_1) {
    strategy.run([&] {
      const bool second = distribute::get_replica_context()->replica_id_in_sync_group() == 1;
      optimizer.apply_gradients({at::ones({second ? size_on_replica_1 : 2})}, {weights});
    });
  };
  EXPECT_ERROR(step(3), InvalidArgument, "shape (3,), expected (2,)");
  EXPECT_TENSOR_EQ(weights.value(), at::zeros({2}));
  step(2);
  EXPECT_TENSOR_EQ(weights.value(), at::full({2}, -2.f));
}

TEST(Optimizers, BuildInsideReplicasHappensOnce) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  Adam optimizer;
  const Variable weights(at::zeros({2}));
  strategy.run([&] { optimizer.build({weights}); });
  EXPECT_TRUE(optimizer.built());
  EXPECT_EQ(optimizer.slots("momentum").size(), 1u);
}

// ---- the average of the weights
// ------------------------------------------------------------------------------------------------------------------

TEST(AverageWeights, BeginAsTheWeightsWhateverTheSlotsBeginWith) {
  Adagrad optimizer({.use_ema = true});
  const Variable used(at::ones({2})), unused(at::full({2}, 3.f));
  optimizer.apply_gradients({at::ones({2}), Tensor()}, {used, unused});
  EXPECT_TENSOR_EQ(optimizer.slots("average")[0].read_value(), used.read_value());
  EXPECT_TENSOR_EQ(optimizer.slots("average")[1].read_value(), at::full({2}, 3.f));
}

TEST(AverageWeights, AreTheMeanOfTheUpdatesOnAnyNumberOfReplicas) {
  for (int count : {1, 3}) {
    MirroredStrategyOptions devices;
    for (int i = 0; i < count; ++i) devices.devices.push_back(cat("cpu:", i));
    distribute::MirroredStrategy strategy(devices);
    auto scope = strategy.scope();
    SGD optimizer({.learning_rate = 1, .use_ema = true, .ema_momentum = 0.5});
    const Variable weights(at::zeros({1}));
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] { optimizer.apply_gradients({at::full({1}, -1.0 / count)}, {weights}); });
    }
    EXPECT_TENSOR_NEAR(weights.value(), at::tensor({3.f}), 1e-6);
    EXPECT_TENSOR_NEAR(optimizer.slots("average")[0].value(), at::tensor({2.25f}), 1e-6);
    EXPECT_ERROR(strategy.run([&] { optimizer.finalize_variable_values(); }), FailedPrecondition,
                 "finalize_variable_values");
    optimizer.finalize_variable_values();
    EXPECT_TENSOR_NEAR(weights.value(), at::tensor({2.25f}), 1e-6);
    EXPECT_TRUE(weights.is_shared());
  }
}

TEST(AverageWeights, OverwriteEveryFewUpdates) {
  SGD optimizer(
      {.learning_rate = 1, .use_ema = true, .ema_momentum = 0.5, .ema_overwrite_frequency = 2});
  const Variable weights(at::zeros({1}));
  const std::vector<float> wanted{1, 1.5, 2.5};  // averages 1, 1.5, 2 of 1, 2, 2.5
  for (int step = 0; step < 3; ++step) {
    optimizer.apply_gradients({at::full({1}, -1.f)}, {weights});
    EXPECT_TENSOR_NEAR(weights.value(), at::full({1}, wanted[static_cast<std::size_t>(step)]),
                       1e-6);
  }
}

TEST(AverageWeights, WithoutUseEmaFinalizingChangesNothing) {
  SGD optimizer;
  const Variable weights(at::ones({1}));
  optimizer.apply_gradients({at::ones({1})}, {weights});
  const Tensor before = weights.read_value();
  optimizer.finalize_variable_values();
  EXPECT_TENSOR_EQ(weights.value(), before);
}

// ---- making them
// ------------------------------------------------------------------------------------------------------------------

TEST(Optimizers, NamesGiveOptimizersAndUnknownOnesListThem) {
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "SGD", "RMSprop"})
    EXPECT_TRUE(Optimizer(name).defined()) << name;
  EXPECT_ERROR(Optimizer("adamm"), InvalidArgument,
               "\"adamm\", expected one of sgd, rmsprop, adam, adamw");
}

TEST(Optimizers, DefaultsAreKeras) {
  EXPECT_EQ(SGD().learning_rate(), 0.01);
  EXPECT_EQ(Adam().learning_rate(), 0.001);
  EXPECT_EQ(AdamW().config().find("\"weight_decay\":0.004") == std::string::npos, false);
  EXPECT_EQ(Optimizer("adagrad").learning_rate(), 0.001);
}

TEST(Optimizers, ConfigMakesTheSameOptimizerAgain) {
  const std::vector<Optimizer> optimizers = {
      SGD({.momentum = 0.5, .nesterov = true, .clipnorm = 2}),
      Adam({.beta_1 = 0.8, .amsgrad = true}),
      AdamW({.weight_decay = 0.02, .clipvalue = 1}),
      RMSprop({.rho = 0.8, .centered = true}),
      Adagrad({.initial_accumulator_value = 0.3, .global_clipnorm = 3, .name = "mine"}),
      SGD({.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 5}),
      AdamW({.gradient_accumulation_steps = 4})};
  for (const Optimizer& optimizer : optimizers) {
    const Optimizer again = Optimizer::from_config(optimizer.class_name(), optimizer.config());
    EXPECT_EQ(again.config(), optimizer.config());
    EXPECT_EQ(again.name(), optimizer.name());
  }
  EXPECT_ERROR(Optimizer::from_config("SGD", R"({"momentum": "much"})"), DataLoss, "momentum");
}

TEST(Optimizers, ArgumentsAreChecked) {
  EXPECT_ERROR(SGD({.clipnorm = 1, .clipvalue = 1}), InvalidArgument, "expected at most one");
  EXPECT_ERROR(Adam({.global_clipnorm = -1}), InvalidArgument, "positive");
  EXPECT_ERROR(SGD({.momentum = 1.5}), InvalidArgument, "momentum 1.5");
  EXPECT_ERROR(Adagrad({.learning_rate = -1}), InvalidArgument, "learning_rate -1");
  EXPECT_ERROR(SGD({.use_ema = true, .ema_momentum = 1.5}), InvalidArgument, "ema_momentum 1.5");
  EXPECT_ERROR(SGD({.use_ema = true, .ema_overwrite_frequency = 0}), InvalidArgument,
               "ema_overwrite_frequency 0");
  EXPECT_ERROR(SGD({.gradient_accumulation_steps = 1}), InvalidArgument,
               "gradient_accumulation_steps 1, expected at least 2");
}

TEST(Optimizers, CopiesShareTheStateAndEmptyHandlesAreErrors) {
  SGD optimizer;
  Optimizer copy = optimizer;
  copy.set_learning_rate(0.5);
  EXPECT_EQ(optimizer.learning_rate(), 0.5);
  EXPECT_ERROR(Optimizer().learning_rate(), FailedPrecondition, "empty handle");
}

}  // namespace
}  // namespace tutti::keras::optimizers
