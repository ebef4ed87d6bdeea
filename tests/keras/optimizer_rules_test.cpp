// The formulas: numbers that Keras printed, and the loops against the tensor operations.

#include <cmath>

#include "keras/optimizers/rules.h"
#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {
namespace {

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
    {"Adamax",
     "{}",
     {{.99900001f, -1.999f, .49900001f},
      {.99835527f, -1.9985257f, .49870148f},
      {.99822509f, -1.9985958f, .49845129f}}},
    {"Nadam",
     "{}",
     {{.99893719f, -1.9989372f, .49893722f},
      {.9979285f, -1.9988651f, .49919203f},
      {.99847496f, -1.9995666f, .49897942f}}},
    {"Adadelta",
     "{}",
     {{.99999857f, -1.9999986f, .4999986f},
      {.9999966f, -1.9999986f, .49999925f},
      {.99999827f, -2.f, .49999893f}}},
    {"Adadelta",
     R"({"learning_rate": 1.0})",
     {{.99858594f, -1.9985858f, .49858579f},
      {.99664289f, -1.9985858f, .49923298f},
      {.99830168f, -2.0000176f, .49889266f}}},
    {"Ftrl",
     "{}",
     {{.046235897f, -.30915698f, .13657363f},
      {.045466091f, -.30915698f, .13679725f},
      {.045966092f, -.3096284f, .13668613f}}},
    {"Ftrl",
     R"({"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.01})",
     {{.046202961f, -.30911374f, .13654444f},
      {.045433186f, -.30911374f, .13676804f},
      {.045933172f, -.30958515f, .13665693f}}},
    {"Lion",
     "{}",
     {{.99900001f, -1.999f, .49900001f},
      {.99800003f, -1.9979999f, .5f},
      {.99900001f, -1.999f, .49900001f}}},
    {"Lamb",
     "{}",
     {{.99867713f, -1.9986771f, .49867713f},
      {.9969607f, -1.9973767f, .49790037f},
      {.99606359f, -1.9978126f, .4958421f}}},
    {"Adafactor",
     "{}",
     {{.99867713f, -1.9986771f, .49867713f},
      {.99697214f, -1.9986771f, .49930686f},
      {.99826789f, -2.0002985f, .49890327f}}},
    {"ScheduleFreeAdamW",
     "{}",
     {{.9975f, -1.9974999f, .4975f},
      {.99561393f, -1.9974999f, .49811506f},
      {.99611849f, -1.9987247f, .49801219f}}},
    {"Muon",
     "{}",
     {{.99899602f, -1.9989921f, .49899802f},
      {.99810767f, -1.998314f, .4985958f},
      {.99792695f, -1.9983919f, .49818838f}}},
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
      {"adamax", make_rule(AdamaxOptions{.learning_rate = 0.1, .weight_decay = 0.1})},
      {"nadam", make_rule(NadamOptions{.learning_rate = 0.1, .weight_decay = 0.1})},
      {"adadelta", make_rule(AdadeltaOptions{.learning_rate = 1, .weight_decay = 0.1})},
      {"ftrl", make_rule(FtrlOptions{.learning_rate = 0.1,
                                     .l1_regularization_strength = 0.05,
                                     .l2_regularization_strength = 0.02,
                                     .l2_shrinkage_regularization_strength = 0.1,
                                     .beta = 0.3,
                                     .weight_decay = 0.1})},
      {"ftrl, another power",
       make_rule(FtrlOptions{.learning_rate = 0.1, .learning_rate_power = -0.7})},
      {"lion", make_rule(LionOptions{.learning_rate = 0.1, .weight_decay = 0.1})},
      {"schedule free", make_rule(ScheduleFreeAdamWOptions{
                            .learning_rate = 0.1, .warmup_steps = 3, .weight_decay = 0.1})},
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
          slots.push_back(rule->initial_slot(s, 0, start));
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

// ---- rules that take variables whole
// --------------------------------------------------------------------------------------

struct WholeCase {
  const char* name;
  std::shared_ptr<distribute::UpdateRule> (*make)();
};
const WholeCase kWhole[] = {
    {"lamb",
     [] {
       return std::shared_ptr<distribute::UpdateRule>(
           make_rule(LambOptions{.learning_rate = 0.1, .weight_decay = 0.1}));
     }},
    {"adafactor",
     [] {
       return std::shared_ptr<distribute::UpdateRule>(
           make_rule(AdafactorOptions{.learning_rate = 0.1, .weight_decay = 0.1}));
     }},
    {"muon",
     [] {
       return std::shared_ptr<distribute::UpdateRule>(
           make_rule(MuonOptions{.learning_rate = 0.1, .weight_decay = 0.1}));
     }},
    {"muon, plain momentum",
     [] {
       return std::shared_ptr<distribute::UpdateRule>(
           make_rule(MuonOptions{.learning_rate = 0.1, .nesterov = false}));
     }},
    {"average of lamb", [] {
       return with_average(make_rule(LambOptions{.learning_rate = 0.1}), {0.8, 2});
     }}};

/// As variables and the pass hand them over: the loops in the strides of `start`.
void expect_whole_equals_tensors(const WholeCase& test, const Tensor& start, double tolerance) {
  const auto rule = test.make();
  rule->bind({Variable(start, {.name = "kernel"})});
  if (!rule->needs_whole(0)) return;
  Tensor by_loop = start.clone();
  Tensor by_tensors = start.clone();
  std::vector<Tensor> slots, oracle_slots;
  for (std::size_t s = 0; s < rule->slot_names().size(); ++s) {
    slots.push_back(rule->initial_slot(s, 0, start));
    oracle_slots.push_back(slots.back().defined() ? slots.back().clone() : Tensor());
  }
  for (int64_t step = 0; step < 4; ++step) {
    const Tensor gradient = at::empty_like(start).copy_(at::arange(start.numel(), at::kDouble)
                                                            .mul(1.3)
                                                            .add(static_cast<double>(step))
                                                            .cos()
                                                            .view(start.sizes()));
    rule->begin_step(step);
    rule->update_whole(0, by_loop, gradient, slots, true);
    rule->update_tensors(by_tensors, gradient, oracle_slots, true);
  }
  EXPECT_TENSOR_NEAR(by_loop, by_tensors, tolerance);
  for (std::size_t s = 0; s < slots.size(); ++s) {
    ASSERT_EQ(slots[s].defined(), oracle_slots[s].defined());
    if (!slots[s].defined()) continue;
    EXPECT_TENSOR_NEAR(slots[s], oracle_slots[s], tolerance);
  }
}

TEST(WholeVariables, AgreeWithTensorOperations) {
  for (const WholeCase& test : kWhole) {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{1},
                                                               {7},
                                                               {5000},
                                                               {1, 1},
                                                               {3, 5},
                                                               {5, 3},
                                                               {64, 64},
                                                               {3, 2500},
                                                               {2, 3, 5},
                                                               {2, 3, 4, 5}}) {
      SCOPED_TRACE(cat(test.name, " of ", at::IntArrayRef(shape)));
      int64_t numel = 1;
      for (const int64_t size : shape) numel *= size;
      const Tensor start = at::arange(numel, at::kDouble).mul(0.7).sin().view(shape);
      expect_whole_equals_tensors(test, start, 1e-9);
      expect_whole_equals_tensors(test, start.to(at::kFloat), 1e-4);
      if (shape.size() >= 2)  // stored in another order
        expect_whole_equals_tensors(test, start.transpose(0, 1).contiguous().transpose(0, 1), 1e-9);
    }
  }
}

struct KerasCase {
  const char* class_name;
  const char* config;
  std::vector<std::vector<int64_t>> shapes;
  Rows weights;
};
/// What Keras 3.15 gives after four steps (ScheduleFreeAdamW with tensors that assignments leave
/// alone, as TensorFlow's are), of weights sin(0.7 i + k) and gradients cos(1.3 i + t +
/// k) of variable k at step t.
const KerasCase kKeras[] = {
    {"Muon",
     R"({"learning_rate": 0.1})",
     {{2, 3}, {4, 2}, {3}},
     {{-0.058553312f, 0.656594753f, 1.04960012f, 0.811363935f, 0.261024088f, -0.339041173f},
      {0.88116318f, 1.05639148f, 0.683395624f, -0.0220742952f, -0.667362869f, -0.933302879f,
       -0.794254661f, -0.382807106f},
      {1.2614491f, 0.631926477f, -0.376491189f}}},
    {"Muon",
     R"({"learning_rate": 0.1, "nesterov": false, "rms_rate": null, "weight_decay": null})",
     {{2, 3}, {4, 2}},
     {{-0.223994344f, 0.609177947f, 1.19069791f, 0.728787482f, 0.0557400472f, -0.365758389f},
      {0.888813376f, 1.21128142f, 0.750459015f, -0.13841483f, -0.787726521f, -0.888674378f,
       -0.657050788f, -0.346160054f}}},
    {"Adafactor",
     R"({"learning_rate": 0.1, "weight_decay": 0.01})",
     {{2, 3}, {2, 2, 3}, {3}},
     {{0.00311759114f, 0.787600338f, 1.05372095f, 0.732791603f, 0.136776134f, -0.300750256f},
      {0.974715829f, 1.11834705f, 0.59587729f, -0.185057491f, -0.61221981f, -0.777163625f,
       -0.778612256f, -0.465281665f, 0.13669239f, 0.895806134f, 1.2030865f, 0.728079498f},
      {1.06502986f, 0.368537635f, -0.384083569f}}},
    {"ScheduleFreeAdamW",
     R"({"learning_rate": 0.1, "warmup_steps": 3, "weight_decay": 0.01})",
     {{2, 3}},
     {{0.00591049111f, 0.774949133f, 1.04423928f, 0.76629287f, 0.20604001f, -0.318552375f}}},
    {"Ftrl",
     R"({"learning_rate": 0.1, "learning_rate_power": -0.7, "l1_regularization_strength": 0.05,
         "l2_regularization_strength": 0.02, "l2_shrinkage_regularization_strength": 0.1,
         "beta": 0.3})",
     {{2, 3}},
     {{-0.0315875895f, 0.167529508f, 0.618104756f, 0.355360687f, -0.0412790664f, -0.215983689f}}},
    {"Lamb",
     R"({"learning_rate": 0.1, "weight_decay": 0.05})",
     {{2, 3}},
     {{-0.173139587f, 0.792937696f, 1.23403716f, 0.837032318f, -0.00168200582f, -0.471319467f}}},
    {"Nadam",
     R"({"learning_rate": 0.1, "weight_decay": 0.05})",
     {{2, 3}},
     {{-0.0663677305f, 0.752895117f, 1.12056255f, 0.785564363f, 0.0832232237f, -0.374966383f}}},
};

std::vector<Tensor> after_four_steps(const KerasCase& test, int replicas) {
  distribute::MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  distribute::MirroredStrategy strategy(options);
  auto scope = strategy.scope();
  Optimizer optimizer = Optimizer::from_config(test.class_name, test.config);
  std::vector<Variable> variables;
  const auto wave = [](const std::vector<int64_t>& shape, double step, double start) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    return (at::arange(numel, at::kDouble) * step + start).view(shape);
  };
  for (std::size_t k = 0; k < test.shapes.size(); ++k) {
    variables.emplace_back(wave(test.shapes[k], 0.7, static_cast<double>(k)).sin().to(at::kFloat),
                           VariableOptions{.name = cat("w", k)});
  }
  for (int step = 0; step < 4; ++step) {
    std::vector<Tensor> gradients;
    for (std::size_t k = 0; k < test.shapes.size(); ++k) {
      gradients.push_back(
          (wave(test.shapes[k], 1.3, step + static_cast<double>(k)).cos() / replicas)
              .to(at::kFloat));
    }
    strategy.run([&] { optimizer.apply_gradients(gradients, variables); });
  }
  std::vector<Tensor> results;
  for (const Variable& variable : variables) results.push_back(variable.read_value().flatten());
  return results;
}

TEST(WholeVariables, GiveKerasWeightsOnAnyNumberOfReplicas) {
  for (const KerasCase& test : kKeras) {
    for (const int replicas : {1, 2, 4}) {
      SCOPED_TRACE(cat(test.class_name, " ", test.config, " on ", replicas));
      const auto found = after_four_steps(test, replicas);
      for (std::size_t k = 0; k < found.size(); ++k)
        EXPECT_TENSOR_NEAR(found[k], at::tensor(test.weights[k]), 2e-5);
    }
  }
}

TEST(Muon, LeavesEmbeddingsNamedLayersAndOtherRanksToAdam) {
  Muon muon({.exclude_layers = {"^head/"}});
  const auto weight = [](const char* name, std::vector<int64_t> shape) {
    return Variable(at::ones(shape), {.name = name});
  };
  muon.build({weight("dense/kernel", {2, 3}), weight("my_Embedding/embeddings", {2, 3}),
              weight("head/kernel", {2, 3}), weight("conv/kernel", {2, 2, 3, 4}),
              weight("dense/bias", {3})});
  EXPECT_EQ(muon.slots("momentum").size(), 5u);
  const auto adams = muon.slots("velocity");
  ASSERT_EQ(adams.size(), 4u);
  EXPECT_EQ(adams[0].name(), "my_Embedding/embeddings/velocity");
  EXPECT_EQ(adams[3].name(), "dense/bias/velocity");
}

// ---- slots
// --------------------------------------------------------------------------------------

TEST(Slots, AreAsManyAsKerasHas) {
  const std::vector<std::pair<Optimizer, std::size_t>> wanted = {{SGD(), 0},
                                                                 {SGD({.momentum = 0.9}), 2},
                                                                 {RMSprop(), 2},
                                                                 {Adam(), 4},
                                                                 {Adam({.amsgrad = true}), 6},
                                                                 {AdamW(), 4},
                                                                 {Adamax(), 4},
                                                                 {Nadam(), 4},
                                                                 {Adagrad(), 2},
                                                                 {Ftrl(), 4},
                                                                 {Adadelta(), 4},
                                                                 {Lion(), 2},
                                                                 {Lamb(), 4},
                                                                 {Lion({.use_ema = true}), 4},
                                                                 {ScheduleFreeAdamW(), 4},
                                                                 {Muon(), 3},
                                                                 {Adafactor(), 4}};
  for (const auto& [made, count] : wanted) {
    SCOPED_TRACE(made.config());
    Optimizer optimizer = made;
    optimizer.build({Variable(at::ones({2, 3}), {.name = "kernel"}),
                     Variable(at::ones({3}), {.name = "bias"})});
    std::size_t found = 0;
    for (const std::string& name : optimizer.slot_names()) found += optimizer.slots(name).size();
    EXPECT_EQ(found, count);
  }
}

TEST(Slots, OfAdafactorAreMeansOverRowsAndColumns) {
  Adafactor optimizer;
  optimizer.build({Variable(at::ones({3})), Variable(at::ones({4, 2, 3}))});
  ASSERT_EQ(optimizer.slots("r").size(), 1u);
  EXPECT_EQ(optimizer.slots("r")[0].sizes().vec(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(optimizer.slots("c")[0].sizes().vec(), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(optimizer.slots("velocity").size(), 2u);
}

TEST(Nadam, KnowsItsProductWhereverTheCountOfUpdatesBegins) {
  const auto step = [](Optimizer& optimizer, const Variable& w) {
    optimizer.apply_gradients({at::full({2}, 0.5f)}, {w});
  };
  Variable straight(at::ones({2})), resumed(at::ones({2}));
  Nadam first, second;
  for (int i = 0; i < 3; ++i) step(first, straight);
  second.build({resumed});
  resumed.assign(straight.read_value());
  for (const char* name : {"momentum", "velocity"})
    second.slots(name)[0].assign(first.slots(name)[0].read_value());
  second.set_iterations(3);
  step(first, straight);
  step(second, resumed);
  EXPECT_TENSOR_EQ(resumed.read_value(), straight.read_value());
  second.set_iterations(1000000);  // a product of 0 by then, found at once
  step(second, resumed);
  EXPECT_TRUE(resumed.read_value().isfinite().all().item<bool>());
}

// ---- weights that are evaluated elsewhere
// --------------------------------------------------------------------------------------

TEST(ScheduleFree, EvaluatesAtTheMeanOfTheStepsAndGoesOnWhereItTrained) {
  for (const int replicas : {1, 2}) {
    distribute::MirroredStrategyOptions options;
    for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
    distribute::MirroredStrategy strategy(options);
    auto scope = strategy.scope();
    const Variable straight(at::ones({2})), stopped(at::ones({2}));
    ScheduleFreeAdamW first({.learning_rate = 0.1}), second({.learning_rate = 0.1});
    Tensor mean = at::zeros({2});
    const auto step = [&](Optimizer& optimizer, const Variable& w, float gradient) {
      strategy.run([&] { optimizer.apply_gradients({at::full({2}, gradient / replicas)}, {w}); });
    };
    for (int i = 0; i < 3; ++i) {
      const auto gradient = static_cast<float>(i) - 0.5F;
      step(first, straight, gradient);
      step(second, stopped, gradient);
      mean += second.slots("momentum")[0].read_value() / 3;
    }
    second.finalize_variable_values();
    second.finalize_variable_values();
    EXPECT_TENSOR_NEAR(stopped.read_value(), mean, 1e-6);
    if (replicas == 1) second.begin_training();  // else the next update does it
    step(first, straight, 1);
    step(second, stopped, 1);
    EXPECT_TENSOR_NEAR(stopped.read_value(), straight.read_value(), 1e-6);
  }
}

}  // namespace
}  // namespace tutti::keras::optimizers
