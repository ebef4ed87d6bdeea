#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {
namespace {

std::unique_ptr<distribute::MirroredStrategy> mirrored(int count) {
  distribute::MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<distribute::MirroredStrategy>(options);
}

TEST(OptimizerMap, TakesTheNameThenTheOnePatternThenTheDefault) {
  OptimizerMap map{RMSprop()};
  map.insert("encoder/layer_0/dense", Adam());
  map.insert("encoder/.*", SGD());
  map.insert("decoder", Adam());
  EXPECT_EQ(map.at("decoder").name(), "adam");
  EXPECT_EQ(map.at("encoder/layer_0/dense").name(), "adam");
  EXPECT_EQ(map.at("encoder/layer_0/attention/query").name(), "SGD");
  EXPECT_EQ(map.at("decoder/layer_0/dense").name(), "rmsprop");
  EXPECT_ERROR(map.insert("decoder", SGD()), InvalidArgument, "\"decoder\" is there already");
  EXPECT_ERROR(map.insert("(", SGD()), InvalidArgument, "no regular expression");
  EXPECT_ERROR(map.insert("x", LossScaleOptimizer(SGD())), InvalidArgument, "LossScaleOptimizer");
  map.insert("encoder/layer_[01]/.*", SGD());
  EXPECT_ERROR(map.at("encoder/layer_1/dense"), InvalidArgument, "several keys match");
}

TEST(MultiOptimizer, GivesEachVariableItsOptimizersNumbersOnAnyNumberOfReplicas) {
  for (const int replicas : {1, 2}) {
    auto strategy = mirrored(replicas);
    auto scope = strategy->scope();
    const Adam adam({.learning_rate = 0.1});
    MultiOptimizer multi(OptimizerMap(SGD({.learning_rate = 0.5, .global_clipnorm = 1}),
                                      {{"a.*", adam}, {"c", adam}}));
    Adam adam_alone({.learning_rate = 0.1});
    SGD sgd_alone({.learning_rate = 0.5, .global_clipnorm = 1});
    std::vector<Variable> together, alone;
    for (const char* name : {"a/kernel", "b", "c", "d"}) {
      together.emplace_back(at::ones({3}), VariableOptions{.name = name});
      alone.emplace_back(at::ones({3}), VariableOptions{.name = name});
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<Tensor> g;
      for (int i = 0; i < 4; ++i) g.push_back(at::full({3}, float(i + step - 1)) / replicas);
      strategy->run([&] {
        multi.apply_gradients(g, together);
        adam_alone.apply_gradients({g[0], g[2]}, {alone[0], alone[2]});
        sgd_alone.apply_gradients({g[1], g[3]}, {alone[1], alone[3]});
      });
    }
    for (std::size_t i = 0; i < together.size(); ++i)
      EXPECT_TENSOR_EQ(together[i].value(), alone[i].value());
    EXPECT_EQ(multi.iterations(), 3);
    ASSERT_EQ(multi.optimizers().size(), 2u);
    EXPECT_TRUE(multi.optimizers()[0].is_same(adam));
    EXPECT_EQ(multi.slots("momentum").size(), 2u);
    EXPECT_EQ(multi.slots("momentum")[1].name(), "c/momentum");
  }
}

TEST(MultiOptimizer, LeavesAGroupWithoutGradientsAlone) {
  MultiOptimizer multi(OptimizerMap(SGD({.learning_rate = 1}), {{"b", SGD({.learning_rate = 1})}}));
  const Variable a(at::zeros({1}), {.name = "a"}), b(at::zeros({1}), {.name = "b"});
  multi.apply_gradients({at::ones({1}), Tensor()}, {a, b});
  multi.apply_gradients({at::ones({1})}, {b});
  EXPECT_TENSOR_EQ(a.value(), at::full({1}, -1.F));
  EXPECT_TENSOR_EQ(b.value(), at::full({1}, -1.F));
  EXPECT_EQ(multi.iterations(), 2);
  EXPECT_ERROR(multi.apply_gradients({Tensor(), Tensor()}, {a, b}), InvalidArgument,
               "no gradient for any of the 2 variables");
  EXPECT_ERROR(multi.apply_gradients({at::ones({1})}, {Variable(at::ones({1}), {.name = "x"})}),
               InvalidArgument, "the variable x");
}

TEST(MultiOptimizer, AFunctionMayNameTheOptimizers) {
  const SGD slow({.learning_rate = 0.1}), fast({.learning_rate = 1});
  MultiOptimizer multi([&](const Variable& variable) -> Optimizer {
    return variable.name() == "slow" ? slow : fast;
  });
  const Variable a(at::zeros({1}), {.name = "slow"}), b(at::zeros({1}), {.name = "other"});
  multi.apply_gradients({at::ones({1}), at::ones({1})}, {a, b});
  EXPECT_TENSOR_NEAR(a.value(), at::full({1}, -0.1F), 1e-6);
  EXPECT_TENSOR_EQ(b.value(), at::full({1}, -1.F));
  EXPECT_ERROR(multi.config(), Unimplemented, "OptimizerMap");
}

TEST(MultiOptimizer, ConfigMakesTheSameGroupsAgain) {
  const Adam adam({.learning_rate = 0.1});
  const MultiOptimizer multi(OptimizerMap(SGD(), {{"a", adam}, {"c", adam}}),
                             {.loss_scale_factor = 4, .name = "mine"});
  Optimizer again = Optimizer::from_config(multi.class_name(), multi.config());
  EXPECT_EQ(again.config(), multi.config());
  std::vector<Variable> variables;
  for (const char* name : {"a", "b", "c"})
    variables.emplace_back(at::ones({1}), VariableOptions{.name = name});
  again.build(variables);
  EXPECT_EQ(again.slots("momentum").size(), 2u);
}

TEST(MultiOptimizer, HasNoOneLearningRateAndOneAccumulation) {
  MultiOptimizer multi{OptimizerMap(SGD())};
  EXPECT_ERROR(multi.learning_rate(), InvalidArgument, "optimizers()");
  EXPECT_ERROR(multi.set_learning_rate(0.1), InvalidArgument, "optimizers()");
  MultiOptimizer mixed(OptimizerMap(SGD(), {{"b", SGD({.gradient_accumulation_steps = 2})}}));
  EXPECT_ERROR(
      mixed.build({Variable(at::ones({1}), {.name = "a"}), Variable(at::ones({1}), {.name = "b"})}),
      InvalidArgument, "gradient_accumulation_steps 2 and 1");
}

TEST(MultiOptimizer, UnderALossScaleAllGroupsSkipTogether) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  LossScaleOptimizer optimizer(
      MultiOptimizer(OptimizerMap(SGD({.learning_rate = 1}), {{"b", Adam()}})),
      {.initial_scale = 4});
  const Variable a(at::zeros({1}), {.name = "a"}), b(at::zeros({1}), {.name = "b"});
  const auto step = [&](float of_b) {
    strategy->run([&] {
      optimizer.apply_gradients({at::full({1}, 2.F), at::full({1}, of_b)}, {a, b});
    });
  };
  step(std::numeric_limits<float>::infinity());
  EXPECT_TENSOR_EQ(a.value(), at::zeros({1}));
  step(2);
  EXPECT_TENSOR_EQ(a.value(), at::full({1}, -2.F));  // (2 + 2) / 2
  EXPECT_TENSOR_NEAR(b.value(), at::full({1}, -1e-3F), 1e-6);
}

}  // namespace
}  // namespace tutti::keras::optimizers
