// Normalisation against the numbers of Keras 3.15.

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

Tensor numbers(const std::vector<float>& values, const Shape& shape) {
  return at::tensor(values).view(shape);
}
const Shape kShape{2, 3, 2};

TEST(LayerNormalization, GivesKerasNumbersOverAnyAxes) {
  const Tensor row = at::tensor({1.f, 2.f, 3.f, 6.f}).view({1, 4});
  EXPECT_TENSOR_NEAR(LayerNormalization()(row),
                     numbers({-1.0688922f, -.5344461f, 0.f, 1.6033385f}, {1, 4}), 1e-5);
  EXPECT_TENSOR_NEAR(
      LayerNormalization({.axis = {1, 2}})(wave(kShape)),
      numbers({-0.14076191f, 0.86004835f, 1.1353762f, 0.55573124f, -0.60627127f, -1.8041229f,
               -1.23045f, -1.1103232f, -0.45963401f, 0.41558844f, 1.1037138f, 1.2811052f},
              kShape),
      1e-5);
  EXPECT_TENSOR_NEAR(
      LayerNormalization({.axis = {1}})(wave(kShape)),
      numbers({-0.36587614f, 0.83005583f, 1.3620729f, 0.57477415f, -0.99619693f, -1.4048302f,
               -1.0649235f, -1.3197007f, -0.27181679f, 0.22247848f, 1.3367404f, 1.0972223f},
              kShape),
      1e-5);
}

TEST(LayerNormalization, ItsWeightsHaveTheShapeOfTheAxes) {
  const LayerNormalization norm({.axis = {-1, 1}});
  norm->build_for({-1, 3, 5, 2});
  EXPECT_EQ(norm->weights()[0].sizes().vec(), (Shape{3, 2}));
  Variable(norm->weights()[0]).assign(wave({3, 2}));
  const Tensor x = wave({2, 3, 5, 2});
  const LayerNormalization plain({.axis = {1, 3}, .center = false, .scale = false});
  EXPECT_TENSOR_NEAR(norm(x), plain(x) * wave({3, 2}).view({1, 3, 1, 2}), 1e-5);
  EXPECT_TRUE(plain->weights().empty());
  EXPECT_ERROR(LayerNormalization({.axis = {0}})(x), InvalidArgument, "behind the batch axis");
  EXPECT_ERROR(LayerNormalization({.axis = {4}})(x), InvalidArgument, "an axis from -4 to 3");
  EXPECT_ERROR(LayerNormalization()->build_for({-1, -1}), InvalidArgument, "a known size");
}

TEST(GroupNormalization, GivesKerasNumbersOnAnyAxis) {
  const Tensor row = at::tensor({1.f, 2.f, 3.f, 6.f}).view({1, 4});
  EXPECT_TENSOR_NEAR(GroupNormalization({.groups = 2})(row),
                     numbers({-.998006f, .9980061f, -.9997779f, .9997778f}, {1, 4}), 1e-5);
  EXPECT_TENSOR_NEAR(
      GroupNormalization({.groups = 3, .axis = 1})(wave({1, 6, 2})),
      numbers({-1.5514004f, 0.53730059f, 1.1119127f, -0.097812414f, 1.6255264f, -0.010118842f,
               -0.92544615f, -0.68996203f, -1.5239934f, -0.24738705f, 0.75631803f, 1.0150626f},
              {1, 6, 2}),
      1e-5);
}

TEST(GroupNormalization, GroupsMustDivideTheChannels) {
  EXPECT_ERROR(GroupNormalization({.groups = 3})(wave({1, 4})), InvalidArgument,
               "4 channels in 3 groups");
  EXPECT_ERROR(GroupNormalization()(wave({1, 4})), InvalidArgument, "4 channels in 32 groups");
  EXPECT_ERROR(GroupNormalization({.groups = 0}), InvalidArgument, "groups 0");
  const Tensor images = wave({2, 5, 5, 3});
  const Tensor each =
      (images - images.mean({1, 2}, true)) * (images.var({1, 2}, false, true) + 1e-3).rsqrt();
  EXPECT_TENSOR_NEAR(GroupNormalization({.groups = -1})(images), each, 1e-4);
}

TEST(GroupNormalization, HasGradientsOfItsWeightsAlone) {
  const GroupNormalization norm({.groups = 2});
  const Tensor x = wave({2, 3, 3, 4});
  GradientTape tape;
  const Tensor y = norm(x);
  const auto gradients = tape.gradient((y * y).sum(), norm->trainable_weights());
  EXPECT_TENSOR_NEAR(gradients[0], 2 * (y * y).sum({0, 1, 2}), 1e-3);
  EXPECT_TENSOR_NEAR(gradients[1], 2 * y.sum({0, 1, 2}), 1e-3);
}

TEST(RMSNormalization, GivesKerasNumbers) {
  const Tensor row = at::tensor({1.f, 2.f, 3.f, 6.f}).view({1, 4});
  EXPECT_TENSOR_NEAR(RMSNormalization()(row),
                     numbers({.2828427f, .5656854f, .8485281f, 1.6970562f}, {1, 4}), 1e-6);
  EXPECT_TENSOR_NEAR(
      RMSNormalization({.axis = {1, 2}})(wave(kShape)),
      numbers({0.44796699f, 1.2755514f, 1.503224f, 1.0239072f, 0.063030571f, -0.92749023f,
               -1.249046f, -1.1288402f, -0.47772342f, 0.39807409f, 1.0866516f, 1.2641594f},
              kShape),
      1e-5);
}

TEST(UnitNormalization, MakesNormsOneAndKeepsZeros) {
  EXPECT_TENSOR_NEAR(
      UnitNormalization({.axis = {1}})(wave(kShape)),
      numbers({0.28536227f, 0.67836434f, 0.95757824f, 0.54453474f, 0.040151499f, -0.49325824f,
               -0.72487408f, -0.64841163f, -0.27724305f, 0.22865582f, 0.63062972f, 0.72613972f},
              kShape),
      1e-5);
  Tensor zeros = at::zeros({1, 3});
  GradientTape tape;
  tape.watch(zeros);
  const Tensor output = UnitNormalization()(zeros);
  EXPECT_TENSOR_EQ(output, at::zeros({1, 3}));
  EXPECT_TRUE(at::isfinite(tape.gradient(output, zeros)).all().item<bool>());
}

TEST(Normalization, IsInFloat32UnderHalfPrecision) {
  // In bfloat16 the squares' sum would have lost the small differences.
  const Tensor x = at::tensor({256.f, 258.f, 260.f, 262.f}).view({1, 4});
  const Tensor expected = LayerNormalization()(x);
  const std::vector<Layer> layers = {LayerNormalization({.dtype = "mixed_bfloat16"}),
                                     GroupNormalization({.groups = 1, .dtype = "mixed_bfloat16"})};
  for (const Layer& layer : layers) {
    const Tensor output = layer(x);
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    EXPECT_TENSOR_NEAR(output, expected, .01);
  }
  const BatchNormalization norm({.momentum = 0, .dtype = "mixed_bfloat16"});
  EXPECT_TENSOR_NEAR(norm(x.t(), true), expected.t(), .01);
  EXPECT_TENSOR_NEAR(norm->weights()[2].read_value(), at::tensor({259.f}), 1e-4);
  EXPECT_TENSOR_NEAR(norm->weights()[3].read_value(), at::tensor({5.f}), 1e-4);
}

// ---- BatchNormalization

TEST(BatchNormalization, NormalisesAnyAxis) {
  const BatchNormalization norm({.axis = 1});
  EXPECT_TENSOR_NEAR(
      norm(wave(kShape), true),
      numbers({0.61461699f, 1.3187881f, 1.1598691f, 0.53874624f, -0.42566139f, -1.4341633f,
               -1.0273722f, -0.9060328f, -1.5224998f, -0.17611539f, 0.82270831f, 1.0371165f},
              kShape),
      1e-5);
  for (int64_t axis : {2, 3, -2}) {
    const Tensor x = wave({2, 3, 4, 5});
    const BatchNormalization own({.axis = axis}), last;
    EXPECT_TENSOR_NEAR(own(x, true), last(x.movedim(axis, -1), true).movedim(-1, axis), 1e-5);
    EXPECT_TENSOR_NEAR(own->weights()[3].read_value(), last->weights()[3].read_value(), 1e-6);
    EXPECT_TENSOR_NEAR(own(x), last(x.movedim(axis, -1)).movedim(-1, axis), 1e-5);
  }
  EXPECT_ERROR(BatchNormalization({.axis = 0})(wave(kShape)), InvalidArgument, "with axis 0");
  EXPECT_ERROR(BatchNormalization({.axis = 3})(wave(kShape)), InvalidArgument, "with axis 3");
}

TEST(BatchNormalization, AMaskLeavesStepsOutOfTheStatistics) {
  const Tensor mask = at::tensor({1, 1, 0, 1, 0, 0}).view({2, 3}).to(at::kBool);
  const Tensor expected =
      numbers({0.23567787f, 0.81057066f, 1.0888462f, 0.5970872f, -0.075540632f, -1.0583887f,
               -1.3245242f, -1.4076579f, -0.58470929f, 0.12908888f, 0.91576236f, 1.0007515f},
              kShape);
  distribute::OneDeviceStrategy strategy("cpu:0");
  auto scope = strategy.scope();
  for (bool synchronized : {false, true}) {
    const BatchNormalization norm({.momentum = 0, .synchronized = synchronized});
    const Tensor output = (*norm)({wave(kShape)}, {true, {mask}})[0];
    EXPECT_TENSOR_NEAR(output, expected, 1e-5);
    EXPECT_NEAR(norm->weights()[2].read_value()[0].item<double>(),
                (std::sin(.3) + std::sin(1.7) + std::sin(4.5)) / 3, 1e-6);
    (*norm)({wave(kShape)}, {true, {at::zeros({2, 3}, at::kBool)}});
    EXPECT_NEAR(norm->weights()[2].read_value()[0].item<double>(),
                (std::sin(.3) + std::sin(1.7) + std::sin(4.5)) / 3, 1e-6);
  }
}

TEST(BatchNormalization, TakesInitialisersAndPenaltiesOfItsWeights) {
  const BatchNormalization norm({.beta_initializer = initializers::Constant(2),
                                 .gamma_initializer = initializers::Constant(3),
                                 .moving_mean_initializer = "ones",
                                 .moving_variance_initializer = initializers::Constant(4),
                                 .beta_regularizer = regularizers::L2(1),
                                 .gamma_constraint = "non_neg"});
  norm->build_for({-1, 1});
  const auto weights = norm->weights();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(weights[i].read_value().item<double>(), (std::array{3., 2., 1., 4.}[i]));
  EXPECT_EQ(norm->losses()[0].item<double>(), 4);
  EXPECT_TRUE(weights[0].constraint());
}

}  // namespace
}  // namespace tutti::keras::layers
