#include "tutti/keras/optimizers.h"

#include <cmath>

#include "support/expect.h"
#include "tutti/base/log.h"
#include "tutti/distribute/strategies.h"

namespace tutti::keras::optimizers {
namespace {

using distribute::MirroredStrategyOptions;
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

// ---- what stands around the formulas
// ------------------------------------------------------------------------------------------------------------------

TEST(Optimizers, ALossScaleFactorIsTakenBackBeforeClippingAndAccumulation) {
  for (const auto& options :
       {SGDOptions{.learning_rate = 1}, SGDOptions{.learning_rate = 1, .clipnorm = 0.5},
        SGDOptions{.learning_rate = 1, .clipvalue = 0.3},
        SGDOptions{.learning_rate = 1, .global_clipnorm = 0.5},
        SGDOptions{.learning_rate = 1, .gradient_accumulation_steps = 2}}) {
    SGDOptions scaled = options;
    scaled.loss_scale_factor = 8;
    SGD plain(options), factored(scaled);
    const Variable a(at::zeros({2})), b(at::zeros({2}));
    for (const float size : {1.F, -0.25F}) {
      const Tensor gradient = at::tensor({size, 0.5F * size});
      plain.apply_gradients({gradient}, {a});
      factored.apply_gradients({factored.scale_loss(gradient)}, {b});
    }
    EXPECT_TENSOR_EQ(b.value(), a.value());
    EXPECT_EQ(Optimizer::from_config("SGD", factored.config()).config(), factored.config());
  }
  const Tensor loss = at::ones({});
  EXPECT_TRUE(SGD().scale_loss(loss).is_same(loss));
}

TEST(Optimizers, ConstraintsApplyAfterTheUpdate) {
  for (const int count : {1, 2}) {
    MirroredStrategyOptions devices;
    for (int i = 0; i < count; ++i) devices.devices.push_back(cat("cpu:", i));
    distribute::MirroredStrategy strategy(devices);
    auto scope = strategy.scope();
    const auto positive = [](const Tensor& w) { return w.clamp_min(0); };
    const auto halved = [](const Tensor& w) { return w / 2; };
    const Variable clamped(at::zeros({2}), {.name = "clamped", .constraint = positive});
    const Variable half(at::ones({1}), {.name = "half", .constraint = halved});
    const Variable free(at::zeros({2}), {.name = "free"});
    const Variable idle(at::ones({1}), {.name = "idle", .constraint = halved});
    SGD optimizer({.learning_rate = 1, .use_ema = true, .ema_momentum = 0.5});
    strategy.run([&] {
      const Tensor gradient = at::tensor({1.F, -1.F}) / count;
      optimizer.apply_gradients({gradient, at::zeros({1}), gradient, Tensor()},
                                {clamped, half, free, idle});
    });
    EXPECT_TENSOR_EQ(clamped.value(), at::tensor({0.F, 1.F}));
    EXPECT_TENSOR_EQ(half.value(), at::full({1}, 0.5F));
    EXPECT_TENSOR_EQ(free.value(), at::tensor({-1.F, 1.F}));
    EXPECT_TENSOR_EQ(idle.value(), at::ones({1}));  // no gradient, no update
    EXPECT_TENSOR_EQ(optimizer.slots("average")[0].value(), at::tensor({-1.F, 1.F}));
    EXPECT_TRUE(clamped.is_shared());
  }
}

TEST(Optimizers, AConstraintMustKeepTheShape) {
  SGD optimizer;
  const Variable w(at::zeros({2}),
                   {.name = "w", .constraint = [](const Tensor& value) { return value.sum(); }});
  EXPECT_ERROR(optimizer.apply_gradients({at::ones({2})}, {w}), InvalidArgument,
               "apply_gradients [w]: its constraint gives Float of shape (), expected Float of "
               "shape (2,)");
}

TEST(Optimizers, DecayLeavesOutTheListedVariablesAndAFileKeepsThem) {
  const Variable first(at::ones({1}), {.name = "first"}), second(at::ones({1}), {.name = "second"});
  SGD optimizer({.learning_rate = 1, .weight_decay = 0.5});
  optimizer.exclude_from_weight_decay({.var_list = {second}});
  Optimizer again = Optimizer::from_config("SGD", optimizer.config());
  for (Optimizer* one : {static_cast<Optimizer*>(&optimizer), &again})
    one->apply_gradients({at::zeros({1}), at::zeros({1})}, {first, second});
  EXPECT_EQ(first.value().item<float>(), 0.25F);
  EXPECT_EQ(second.value().item<float>(), 1.F);
}

TEST(Optimizers, AScheduleSaysTheRateOfEachUpdate) {
  using schedules::PiecewiseConstantDecay;
  SGD optimizer({.learning_rate = PiecewiseConstantDecay({.boundaries = {0}, .values = {1, 0.25}}),
                 .weight_decay = 0.5,
                 .gradient_accumulation_steps = 2});
  const Variable w(at::ones({1}));
  EXPECT_EQ(optimizer.learning_rate(), 1);
  const std::vector<float> wanted{1, -0.5F, -0.5F, -0.6875F};  // decay by rate * 0.5, then the step
  for (const float value : wanted) {
    optimizer.apply_gradients({at::ones({1})}, {w});
    EXPECT_EQ(w.value().item<float>(), value);
  }
  EXPECT_EQ(optimizer.learning_rate(), 0.25);
  EXPECT_ERROR(optimizer.set_learning_rate(0.1), InvalidArgument, "with a schedule");
  optimizer.set_learning_rate(PiecewiseConstantDecay({.values = {0.125}}));
  EXPECT_EQ(optimizer.learning_rate(), 0.125);
}

TEST(Optimizers, AScheduleOfOnesOwnWorksButCannotBeSaved) {
  struct Halving : schedules::LearningRateSchedule {
    double operator()(int64_t step) const override { return step == 0 ? 1 : 0.5; }
  };
  SGD optimizer({.learning_rate = Halving()});
  const Variable w(at::zeros({1}));
  for (int i = 0; i < 2; ++i) optimizer.apply_gradients({at::ones({1})}, {w});
  EXPECT_EQ(w.value().item<float>(), -1.5F);
  EXPECT_ERROR(optimizer.config(), Unimplemented, "class_name() and config()");
  EXPECT_EQ(SGD({.learning_rate = std::make_shared<Halving>()}).learning_rate(), 1);
}

// ---- making them
// ------------------------------------------------------------------------------------------------------------------

TEST(Optimizers, NamesGiveOptimizersAndUnknownOnesListThem) {
  for (const char* name :
       {"sgd", "rmsprop", "adam", "adamw", "adamax", "nadam", "adagrad", "adadelta", "ftrl", "lion",
        "lamb", "adafactor", "muon", "schedulefreeadamw", "SGD", "RMSprop"})
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
      AdamW({.weight_decay = std::nullopt, .gradient_accumulation_steps = 4}),
      Adamax({.beta_2 = 0.9}),
      Nadam({.epsilon = 1e-5, .loss_scale_factor = 16}),
      Adadelta({.rho = 0.5}),
      Ftrl({.learning_rate_power = -0.7, .beta = 0.2}),
      Lion({.beta_2 = 0.5, .weight_decay = 0.1}),
      Lamb({.beta_1 = 0.5}),
      Adafactor({.clip_threshold = 2}),
      Muon({.weight_decay = std::nullopt, .exclude_layers = {"head"}, .rms_rate = std::nullopt}),
      ScheduleFreeAdamW({.warmup_steps = 10}),
      Adam({.learning_rate =
                schedules::CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 5})})};
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
  EXPECT_ERROR(Ftrl({.learning_rate_power = 0.5}), InvalidArgument, "learning_rate_power 0.5");
  EXPECT_ERROR(Ftrl({.l1_regularization_strength = -1}), InvalidArgument,
               "l1_regularization_strength -1");
  EXPECT_ERROR(Lion({.beta_1 = 0}), InvalidArgument, "beta_1 0");
  EXPECT_ERROR(Muon({.ns_steps = 0}), InvalidArgument, "ns_steps 0");
  EXPECT_ERROR(SGD({.loss_scale_factor = 0}), InvalidArgument, "loss_scale_factor 0");
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
