// Noise layers, penalties of activations.

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

using distribute::MirroredStrategy;

TEST(NoiseLayers, AreTheIdentityInInference) {
  const Tensor x = wave({2, 3, 4, 5});
  const std::vector<Layer> layers = {Dropout(.5), AlphaDropout(.5), SpatialDropout2D(.5),
                                     GaussianNoise(.5), GaussianDropout(.5)};
  for (const Layer& layer : layers) {
    SCOPED_TRACE(layer->name());
    EXPECT_TRUE(layer(x).is_same(x));
    EXPECT_FALSE(at::equal(layer(x, true), x));
    EXPECT_TRUE(layer->supports_masking());
  }
}

TEST(NoiseLayers, HaveKerasMomentsOfNoise) {
  const Tensor ones = at::ones({200, 200});
  const Tensor noisy = GaussianNoise(.5, {.seed = 1})(ones, true);
  EXPECT_NEAR(noisy.mean().item<double>(), 1, .02);
  EXPECT_NEAR(noisy.std().item<double>(), .5, .02);
  const Tensor dropped = GaussianDropout(.2, {.seed = 1})(ones, true);
  EXPECT_NEAR(dropped.mean().item<double>(), 1, .02);
  EXPECT_NEAR(dropped.std().item<double>(), .5, .02);
  const Tensor normal = GaussianNoise(1, {.seed = 2})(at::zeros({200, 200}), true);
  const Tensor alpha = AlphaDropout(.3, {.seed = 3})(normal, true);
  EXPECT_NEAR(alpha.mean().item<double>(), 0, .03);
  EXPECT_NEAR(alpha.std().item<double>(), 1, .03);
}

TEST(NoiseLayers, SpatialDropoutDropsWholeChannels) {
  const Tensor y = SpatialDropout2D(.5, {.seed = 4})(at::ones({20, 3, 3, 10}), true);
  EXPECT_TENSOR_EQ(y, y.narrow(1, 0, 1).narrow(2, 0, 1).expand({20, 3, 3, 10}));
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), .5, .15);
  const Tensor steps = SpatialDropout1D(.5, {.seed = 4})(at::ones({20, 3, 10}), true);
  EXPECT_TENSOR_EQ(steps, steps.narrow(1, 0, 1).expand({20, 3, 10}));
  EXPECT_ERROR(SpatialDropout1D(.5)(at::ones({2, 3})), InvalidArgument, "expected rank 3");
}

TEST(NoiseLayers, NoiseShapeSharesAxes) {
  const Tensor y = Dropout(.5, {.noise_shape = {-1, 1, 6}, .seed = 1})(at::ones({30, 5, 6}), true);
  EXPECT_TENSOR_EQ(y, y.narrow(1, 0, 1).expand({30, 5, 6}));
  EXPECT_FALSE(at::equal(y[0], y[1]));
  EXPECT_ERROR(Dropout(.5, {.noise_shape = {-1, 2}})(at::ones({4, 3}), true), InvalidArgument,
               "noise_shape (None, 2)");
  EXPECT_ERROR(Dropout(.5, {.noise_shape = {0, 1}}), InvalidArgument, "sizes of at least 1");
}

TEST(NoiseLayers, ASeedRepeatsItsDrawsAndReplicasDiffer) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const GaussianNoise first(.5, {.seed = 3}), second(.5, {.seed = 3});
  const auto [one, two] = strategy.run([&] {
    return std::tuple{first(at::zeros({8}), true), second(at::zeros({8}), true)};
  });
  EXPECT_TENSOR_EQ(one[0], two[0]);
  EXPECT_TENSOR_EQ(one[1], two[1]);
  EXPECT_FALSE(at::equal(one[0], one[1]));
}

TEST(NoiseLayers, RefuseWhatIsNoRate) {
  EXPECT_ERROR(SpatialDropout1D(1), InvalidArgument, "rate 1, expected from 0 to below 1");
  EXPECT_ERROR(GaussianDropout(1), InvalidArgument, "rate 1");
  EXPECT_ERROR(AlphaDropout(-1), InvalidArgument, "rate -1");
  EXPECT_ERROR(GaussianNoise(2), InvalidArgument, "stddev 2, expected from 0 to 1");
}

// ---- activity regularizers

TEST(ActivityRegularizer, IsDividedByTheRowsOfTheBatch) {
  const Dense dense(5, {.kernel_initializer = "ones",
                        .kernel_regularizer = regularizers::L1(.01),
                        .activity_regularizer = regularizers::L2(.01)});
  dense(at::ones({5, 5}) * 2);
  // Keras' own example: 0.25 of the kernel and 5 of the output.
  ASSERT_EQ(dense->losses().size(), 2);
  EXPECT_NEAR((dense->losses()[0] + dense->losses()[1]).item<double>(), 5.25, 1e-5);
}

TEST(ActivityRegularizer, FollowsTheLastCallAndAnEmptyBatchHasNone) {
  const ActivityRegularization layer({.l1 = 1, .l2 = 2});
  EXPECT_TRUE(layer->losses().empty());
  const Tensor x = at::tensor({1.f, -2.f, 3.f, 0.f}).view({2, 2});
  EXPECT_TRUE(layer(x).is_same(x));
  EXPECT_NEAR(layer->losses().at(0).item<double>(), (6 + 2 * 14) / 2., 1e-6);
  layer(at::ones({1, 2}));
  EXPECT_NEAR(layer->losses().at(0).item<double>(), 2 + 2 * 2, 1e-6);
  layer(at::ones({0, 2}));
  EXPECT_TRUE(layer->losses().empty());
}

TEST(ActivityRegularizer, HasAGradientAndIsEachReplicasOwn) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const Dense dense(1, {.use_bias = false,
                        .kernel_initializer = initializers::Constant(2),
                        .activity_regularizer = [](const Tensor& y) { return y.square().sum(); }});
  const auto gradients = strategy.run([&] {
    const auto replica = distribute::get_replica_context()->replica_id_in_sync_group() + 1;
    GradientTape tape;
    dense(at::full({2, 1}, static_cast<double>(replica), at::kFloat));
    const auto losses = dense->losses();
    return tape.gradient(losses.at(0), dense->trainable_weights())[0];
  });
  // d/dw of (2 (r w)^2) / 2 is 2 r^2 w.
  EXPECT_TENSOR_NEAR(gradients[0], at::full({1, 1}, 4.f), 1e-6);
  EXPECT_TENSOR_NEAR(gradients[1], at::full({1, 1}, 16.f), 1e-6);
}

}  // namespace
}  // namespace tutti::keras::layers
