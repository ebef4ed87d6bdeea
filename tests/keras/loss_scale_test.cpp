// LossScaleOptimizer, and training in half precision.

#include <cmath>
#include <limits>

#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/layers.h"
#include "tutti/keras/model.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::unique_ptr<distribute::MirroredStrategy> mirrored(int count) {
  distribute::MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<distribute::MirroredStrategy>(options);
}
int replica_id() { return distribute::get_replica_context()->replica_id_in_sync_group(); }

TEST(LossScale, SkipsHalvesAndDoublesAsKeras) {
  for (const int replicas : {1, 2}) {
    auto strategy = mirrored(replicas);
    auto scope = strategy->scope();
    LossScaleOptimizer optimizer(SGD({.learning_rate = .1}),
                                 {.initial_scale = 4, .dynamic_growth_steps = 2});
    const Variable w(at::ones({1}));
    const std::vector<float> gradients{4, 4, kInfinity, 2, 2, kNan};
    const std::vector<float> weights{.9F, .8F, .8F, .75F, .7F, .7F};
    const std::vector<double> scales{4, 8, 4, 4, 8, 4};
    const std::vector<int64_t> iterations{1, 2, 2, 3, 4, 4};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      strategy->run([&] {
        optimizer.apply_gradients({at::full({1}, gradients[i] / static_cast<float>(replicas))},
                                  {w});
      });
      EXPECT_TENSOR_NEAR(w.value(), at::full({1}, weights[i]), 1e-6);
      EXPECT_EQ(optimizer.dynamic_scale(), scales[i]);
      EXPECT_EQ(optimizer.iterations(), iterations[i]);
    }
    EXPECT_TRUE(w.is_shared());
  }
}

TEST(LossScale, LooksAtTheSumSoThatReplicasSkipTogether) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  LossScaleOptimizer optimizer(SGD({.learning_rate = 1}), {.initial_scale = 8});
  const Variable w(at::zeros({100}), {.name = "w"}), other(at::zeros({3}), {.name = "other"});
  const auto step = [&](float of_second) {
    strategy->run([&] {
      const float value = replica_id() == 1 ? of_second : 8;
      optimizer.apply_gradients({at::full({100}, 8.F), at::full({3}, value)}, {w, other});
    });
  };
  step(kInfinity);  // on one replica only
  EXPECT_TENSOR_EQ(w.value(), at::zeros({100}));
  EXPECT_EQ(optimizer.dynamic_scale(), 4);
  const float large = 3e38F;  // finite everywhere; the sum is not
  strategy->run([&] { optimizer.apply_gradients({at::full({100}, large), Tensor()}, {w, other}); });
  EXPECT_TENSOR_EQ(w.value(), at::zeros({100}));
  EXPECT_EQ(optimizer.dynamic_scale(), 2);
  step(8);
  EXPECT_TENSOR_EQ(w.value(), at::full({100}, -12.F));  // (8 + 8 + 8) / 2
  EXPECT_EQ(optimizer.step_counter(), 1);
}

TEST(LossScale, DoesNotFallBelowOne) {
  LossScaleOptimizer optimizer(SGD(), {.initial_scale = 3});
  const Variable w(at::zeros({1}));
  for (const double wanted : {1.5, 1., 1.}) {
    optimizer.apply_gradients({at::full({1}, kNan)}, {w});
    EXPECT_EQ(optimizer.dynamic_scale(), wanted);
  }
  LossScaleOptimizer small(SGD(), {.initial_scale = 0.5});
  small.apply_gradients({at::full({1}, kNan)}, {Variable(at::zeros({1}))});
  EXPECT_EQ(small.dynamic_scale(), 0.5);
}

TEST(LossScale, ClippingSeesTheGradientsWithoutTheScale) {
  LossScaleOptimizer scaled(SGD({.learning_rate = 1, .clipnorm = 0.5, .loss_scale_factor = 7}),
                            {.initial_scale = 1024});
  SGD plain({.learning_rate = 1, .clipnorm = 0.5});
  const Variable a(at::zeros({2})), b(at::zeros({2}));
  const Tensor gradient = at::tensor({3.F, 4.F});
  scaled.apply_gradients({gradient * 1024}, {a});
  plain.apply_gradients({gradient}, {b});
  EXPECT_TENSOR_EQ(a.value(), b.value());
}

TEST(LossScale, TakesTheScaleOfEachCallThatIsAccumulated) {
  LossScaleOptimizer optimizer(SGD({.learning_rate = 1, .gradient_accumulation_steps = 2}),
                               {.initial_scale = 8, .dynamic_growth_steps = 1});
  const Variable w(at::zeros({1}));
  optimizer.apply_gradients({at::full({1}, 8.F)}, {w});  // 1; the scale becomes 16
  optimizer.apply_gradients({at::full({1}, kInfinity)}, {w});
  EXPECT_EQ(optimizer.accumulated_steps(), 1);
  EXPECT_EQ(optimizer.dynamic_scale(), 8);
  optimizer.apply_gradients({at::full({1}, 24.F)}, {w});  // 3
  EXPECT_TENSOR_EQ(w.value(), at::full({1}, -2.F));
  EXPECT_EQ(optimizer.iterations(), 1);
}

TEST(LossScale, GoesOnInTheMiddleOfAnAccumulation) {
  const auto make = [] {
    return LossScaleOptimizer(SGD({.learning_rate = 1, .gradient_accumulation_steps = 3}),
                              {.initial_scale = 8});
  };
  LossScaleOptimizer first = make(), second = make();
  const Variable a(at::zeros({1})), b(at::zeros({1}));
  for (int i = 0; i < 2; ++i) first.apply_gradients({at::full({1}, 12.F)}, {a});
  second.build({b});
  second.set_accumulated_gradients(first.accumulated_gradients(), first.accumulated_steps());
  EXPECT_EQ(first.gradient_steps(), 2);
  for (auto* optimizer : {&first, &second})
    optimizer->apply_gradients({at::full({1}, 24.F)}, {optimizer == &first ? a : b});
  EXPECT_TENSOR_EQ(a.value(), at::full({1}, -2.F));
  EXPECT_TENSOR_EQ(b.value(), a.value());
}

TEST(LossScale, ALoopMayTakeTheScaleBackItself) {
  for (const int replicas : {1, 2}) {
    auto strategy = mirrored(replicas);
    auto scope = strategy->scope();
    LossScaleOptimizer optimizer(SGD({.learning_rate = 1}), {.initial_scale = 8});
    const Variable w(at::ones({1}));
    for (int step = 0; step < 2; ++step) {
      strategy->run([&] {
        GradientTape tape;
        const Tensor loss = optimizer.get_scaled_loss(w.value().sum() * 0.25 / replicas);
        optimizer.apply_gradients(
            optimizer.get_unscaled_gradients(tape.gradient(loss, std::vector<Variable>{w})), {w});
      });
    }
    strategy->run([&] {  // and the usual way after it
      GradientTape tape;
      const Tensor loss = optimizer.scale_loss(w.value().sum() * 0.25 / replicas);
      optimizer.apply_gradients(tape.gradient(loss, std::vector<Variable>{w}), {w});
    });
    EXPECT_TENSOR_NEAR(w.value(), at::full({1}, 0.25F), 1e-6);
  }
}

TEST(LossScale, ItsScaleIsASlotAndItsConfigMakesItAgain) {
  LossScaleOptimizer optimizer(Adam({.beta_1 = 0.8}), {.initial_scale = 16, .name = "mine"});
  EXPECT_EQ(optimizer.slot_names(),
            (std::vector<std::string>{"momentum", "velocity", "step_counter", "dynamic_scale"}));
  EXPECT_TRUE(optimizer.slots("dynamic_scale").empty());
  optimizer.build({Variable(at::zeros({2}))});
  EXPECT_EQ(optimizer.slots("dynamic_scale")[0].value().item<float>(), 16);
  EXPECT_EQ(optimizer.slots("velocity").size(), 1u);
  const auto again = Optimizer::from_config(optimizer.class_name(), optimizer.config());
  EXPECT_EQ(again.config(), optimizer.config());
  EXPECT_EQ(LossScaleOptimizer::of(again).inner_optimizer().class_name(), "Adam");
  optimizer.set_learning_rate(0.5);
  EXPECT_EQ(optimizer.inner_optimizer().learning_rate(), 0.5);
}

TEST(LossScale, ArgumentsAreChecked) {
  const LossScaleOptimizer optimizer{SGD()};
  const Optimizer& same = optimizer;
  EXPECT_ERROR(LossScaleOptimizer{same}, InvalidArgument, "around another LossScaleOptimizer");
  EXPECT_ERROR(LossScaleOptimizer(SGD(), {.initial_scale = 0}), InvalidArgument, "initial_scale 0");
  EXPECT_ERROR(LossScaleOptimizer(SGD(), {.dynamic_growth_steps = 0}), InvalidArgument,
               "dynamic_growth_steps 0");
  EXPECT_ERROR(LossScaleOptimizer::of(SGD()), InvalidArgument, "of class SGD");
  EXPECT_ERROR(Optimizer("lossscaleoptimizer"), InvalidArgument, "without inner optimizer");
  EXPECT_EQ(SGD().scale_loss(at::ones({})).item<float>(), 1);
}

// ---- models
// ------------------------------------------------------------------------------------------------------------------

/// While it lives.
class GlobalPolicy {
 public:
  explicit GlobalPolicy(const char* name) : before_(mixed_precision::global_policy()) {
    mixed_precision::set_global_policy(name);
  }
  ~GlobalPolicy() { mixed_precision::set_global_policy(before_); }
  GlobalPolicy(const GlobalPolicy&) = delete;
  GlobalPolicy& operator=(const GlobalPolicy&) = delete;

 private:
  DTypePolicy before_;
};

FitOptions quiet(int64_t epochs) {
  FitOptions options;
  options.batch_size = 16;
  options.epochs = epochs;
  options.verbose = 0;
  options.shuffle = false;
  return options;
}
Tensor inputs() { return at::sin(at::arange(64 * 4, at::kFloat)).view({64, 4}); }
Tensor targets() { return inputs().sum(1, true) * 0.5 + 0.25; }

std::unique_ptr<Sequential> dense_net() {
  auto model = std::make_unique<Sequential>(
      std::vector<layers::Layer>{layers::Dense(8, {.activation = "tanh"}), layers::Dense(1)});
  model->build({-1, 4});
  const auto weights = model->weights();
  std::vector<Tensor> values;
  for (const Variable& weight : weights)
    values.push_back(at::sin(at::arange(weight.numel(), at::kFloat)).view(weight.sizes()) * 0.5);
  model->set_weights(values);
  return model;
}

TEST(MixedPrecision, TrainsOnFloatWeightsOnAnyNumberOfReplicas) {
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(cat(policy, " on ", replicas));
      const GlobalPolicy global(policy);
      auto strategy = mirrored(replicas);
      auto scope = strategy->scope();
      auto model = dense_net();
      model->compile({.optimizer = Adam({.learning_rate = 0.02}), .loss = "mse"});
      const bool scales = model->optimizer().class_name() == "LossScaleOptimizer";
      EXPECT_EQ(scales, std::string(policy) == "mixed_float16");
      const History history = model->fit(inputs(), targets(), quiet(15));
      const auto& losses = history.history.at("loss");
      EXPECT_LT(losses.back(), losses.front() / 2);
      for (const Variable& weight : model->weights()) EXPECT_EQ(weight.dtype(), at::kFloat);
      EXPECT_EQ((*model)(inputs()).scalar_type(), DTypePolicy(policy).compute_dtype());
      EXPECT_TRUE(std::isfinite(model->evaluate(inputs(), targets(), {.verbose = 0}).at("loss")));
    }
  }
}

TEST(MixedPrecision, GradientsComeToTheOptimizerWithoutTheScale) {
  std::vector<Tensor> weights;
  for (const bool scale : {true, false}) {
    const GlobalPolicy global("mixed_float16");
    auto strategy = mirrored(2);
    auto scope = strategy->scope();
    auto model = dense_net();
    model->compile(
        {.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .auto_scale_loss = scale});
    model->fit(inputs(), targets(), quiet(1));
    EXPECT_EQ(model->optimizer().iterations(), 4);
    weights.push_back(model->get_weights()[0]);
  }
  EXPECT_TENSOR_NEAR(weights[0], weights[1], 2e-3);
}

TEST(MixedPrecision, StepsThatOverflowAreLeftOutByAllReplicas) {
  const GlobalPolicy global("mixed_float16");
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  auto model = dense_net();
  model->compile(
      {.optimizer = LossScaleOptimizer(SGD({.learning_rate = 0.01}), {.initial_scale = 67108864}),
       .loss = "mse"});
  const auto before = model->get_weights();
  model->train_on_batch(inputs(), targets());
  const auto after = model->get_weights();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TENSOR_EQ(after[i], before[i]);
  EXPECT_EQ(model->optimizer().iterations(), 0);
  EXPECT_EQ(LossScaleOptimizer::of(model->optimizer()).dynamic_scale(), 33554432);
  model->fit(inputs(), targets(), quiet(10));  // until the scale fits
  EXPECT_GT(model->optimizer().iterations(), 10);
  for (const Tensor& weight : model->get_weights())
    EXPECT_TRUE(weight.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace tutti::keras::optimizers
