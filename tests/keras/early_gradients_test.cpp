// fit with buckets of gradients that go between the workers while backward goes on.

#include <gtest/gtest.h>

#include <vector>

#include "support/tensor_checks.h"
#include "support/workers.h"
#include "tutti/keras/layers.h"
#include "tutti/keras/model.h"
#include "tutti/keras/sequential.h"

namespace tutti::keras {
namespace {

using distribute::Strategy;
using tutti::testing::on_workers;
using Made = std::shared_ptr<Strategy>;
using MakeOptimizer = std::function<optimizers::Optimizer()>;

constexpr int64_t kWidth = 32;

struct Trained {
  std::vector<Tensor> weights;
  std::vector<double> losses;
  int64_t early = 0;
  bool off = false;
};

Trained train(Strategy& strategy, const MakeOptimizer& make, bool normalized) {
  auto scope = strategy.scope();
  std::vector<layers::Layer> parts{
      layers::Dense(kWidth, {.activation = "tanh", .input_shape = {8}})};
  for (int i = 0; i < 3; ++i) {
    parts.push_back(layers::Dense(kWidth, {.activation = "tanh"}));
    if (normalized) parts.push_back(layers::BatchNormalization({.synchronized = true}));
  }
  parts.push_back(layers::Dense(1));
  Sequential model(parts);
  std::vector<Tensor> weights;
  for (const Tensor& weight : model.get_weights())
    weights.push_back(
        (at::arange(weight.numel(), at::kFloat) * 0.7).cos().abs().view(weight.sizes()) / 6);
  model.set_weights(weights);
  model.compile({.optimizer = make(), .loss = "mse"});
  const Tensor x = (at::arange(44 * 8, at::kFloat).view({44, 8}) / 9).sin();
  const History history =
      model.fit(x, x.sum(1, true), {.batch_size = 8, .epochs = 2, .verbose = 0, .shuffle = false});
  return {model.get_weights(), history.history.at("loss"),
          strategy.workers()->early().num_reduced(), strategy.workers()->early().is_off()};
}

std::vector<Trained> on_two(bool overlaps, const MakeOptimizer& make, bool normalized) {
  std::vector<Trained> results(2);
  distribute::MultiWorkerMirroredStrategyOptions options;
  options.communication_options.bytes_per_pack = kWidth * kWidth * 4;
  on_workers(
      2, 1,
      [&](const Made& strategy) {
        strategy->workers()->set_overlaps(overlaps);
        results[static_cast<std::size_t>(strategy->workers()->worker())] =
            train(*strategy, make, normalized);
        try {  // all are through with the last step before one goes
          strategy->workers()->barrier(strategy->workers()->options());
        } catch (const Aborted&) {
        }
      },
      options, "gloo");
  return results;
}

/// The results with early buckets.
std::vector<Trained> expect_same_bits(const MakeOptimizer& make, bool normalized = false) {
  const std::vector<Trained> late = on_two(false, make, normalized);
  std::vector<Trained> early = on_two(true, make, normalized);
  for (std::size_t w = 0; w < 2; ++w) {
    EXPECT_EQ(late[w].early, 0);
    EXPECT_GT(early[w].early, 0);
    EXPECT_EQ(early[w].losses, late[w].losses);
    for (std::size_t i = 0; i < late[w].weights.size(); ++i) {
      EXPECT_TENSOR_EQ(early[w].weights[i], late[w].weights[i]);
    }
  }
  return early;
}

TEST(FitWithEarlyGradients, Issue6_GivesTheBitsOfFitWithout) {
  for (const Trained& result :
       expect_same_bits([] { return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}); })) {
    // 12 steps; 4 of 5 packs or so are early in all but the first.
    EXPECT_GE(result.early, 11 * 2);
    EXPECT_FALSE(result.off);
  }
}

TEST(FitWithEarlyGradients, Issue6_WithClippingAndAverages) {
  expect_same_bits([] {
    return optimizers::Adam(
        {.learning_rate = 0.01, .global_clipnorm = 0.1, .use_ema = true, .ema_momentum = 0.5});
  });
}

TEST(FitWithEarlyGradients, Issue6_WithAccumulatedGradients) {
  expect_same_bits(
      [] { return optimizers::Adam({.learning_rate = 0.01, .gradient_accumulation_steps = 3}); });
}

TEST(FitWithEarlyGradients, Issue6_WithALossScale) {
  for (const Trained& result : expect_same_bits([] {
         return optimizers::LossScaleOptimizer(optimizers::Adam({.learning_rate = 0.01}),
                                               {.initial_scale = 1e38});
       }))
    EXPECT_FALSE(result.off);
}

TEST(FitWithEarlyGradients, Issue6_WithCollectivesInsideBackward) {
  for (const Trained& result :
       expect_same_bits([] { return optimizers::Adam({.learning_rate = 0.01}); }, true))
    EXPECT_FALSE(result.off);
}

}  // namespace
}  // namespace tutti::keras
