// Convolutions against Keras' numbers (Keras 3.15), and against each other.

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

/// `layer` with weights that are the same in the recording, on the same input.
Tensor output(const Layer& layer, const Shape& input) {
  layer->build_for(input);
  double from = .1;
  for (Variable weight : layer->weights()) {
    weight.assign(wave(weight.sizes().vec(), from));
    from += .1;
  }
  return layer(wave(input));
}
Tensor numbers(const std::vector<float>& values, const Shape& shape) {
  return at::tensor(values).view(shape);
}

TEST(Convolutions, GiveKerasNumbers) {
  EXPECT_TENSOR_NEAR(
      output(Conv3D(2, 2, {.strides = {1, 2, 1}, .padding = "same"}), {1, 2, 3, 2, 2}),
      numbers({0.29922479f, 1.4812534f, 0.57836825f, 0.47189695f, -1.2093954f, -0.29833525f,
               1.177838f, 1.716574f, 1.1280687f, 1.31663f, -0.39624548f, 0.43792218f, 1.5323575f,
               2.6253209f, -0.43704355f, 0.27313274f},
              {1, 2, 2, 2, 2}),
      1e-5);
  EXPECT_TENSOR_NEAR(
      output(DepthwiseConv1D(3, {.padding = "same", .depth_multiplier = 2}), {1, 4, 2}),
      numbers({-0.27672327f, 0.7681306f, 0.72103834f, 0.61327761f, 0.4425295f, 0.56133449f,
               0.77407491f, 0.16734689f, 0.84593064f, 1.3623734f, 1.5898972f, 0.9963727f,
               -0.031053081f, 1.2457321f, 1.1986393f, 1.0981863f},
              {1, 4, 4}),
      1e-5);
  EXPECT_TENSOR_NEAR(
      output(SeparableConv1D(2, 3, {.padding = "same", .depth_multiplier = 2}), {1, 4, 2}),
      numbers({0.27259591f, 0.72793269f, 0.64061457f, 1.5218823f, 0.84768164f, 1.2354398f,
               0.40475991f, 0.57453686f},
              {1, 4, 2}),
      1e-5);
  EXPECT_TENSOR_NEAR(
      output(SeparableConv2D(2, 2, {.strides = 2, .activation = "relu"}), {1, 4, 4, 2}),
      numbers({0.38847309f, 1.0061421f, 0.024495125f, 0.48707688f, 0.85059953f, 1.457278f, 0.f,
               0.2748121f},
              {1, 2, 2, 2}),
      1e-5);
}

TEST(TransposedConvolutions, GiveKerasNumbers) {
  EXPECT_TENSOR_NEAR(
      output(Conv1DTranspose(2, 3, {.strides = 2, .padding = "same"}), {1, 3, 2}),
      numbers({0.83180648f, 1.7584332f, -0.10299568f, -0.29432565f, 0.71755207f, 3.3742878f,
               0.13701834f, -0.77292067f, -0.70347071f, 1.7274909f, 0.47937703f, 1.3319573f},
              {1, 6, 2}),
      1e-5);
  EXPECT_TENSOR_NEAR(output(Conv1DTranspose(1, 3, {.strides = 2, .output_padding = 1}), {1, 3, 2}),
                     numbers({0.83180648f, 1.1737757f, 0.48055333f, 1.7339598f, -0.29775047f,
                              -0.25453901f, 0.47937703f, 0.19866933f},
                             {1, 8, 1}),
                     1e-5);
  EXPECT_TENSOR_NEAR(
      output(Conv1DTranspose(1, 3, {.strides = 2, .padding = "same", .output_padding = 0}),
             {1, 3, 2}),
      numbers({1.1737757f, 0.48055333f, 1.7339598f, -0.29775047f, -0.25453901f}, {1, 5, 1}), 1e-5);
  EXPECT_TENSOR_NEAR(
      output(Conv1DTranspose(1, 1, {.strides = 3}), {1, 2, 2}),
      numbers({0.83180648f, 0.19866933f, 0.19866933f, 0.78221834f, 0.19866933f, 0.19866933f},
              {1, 6, 1}),
      1e-5);
  EXPECT_TENSOR_NEAR(
      output(Conv1DTranspose(1, 3, {.padding = "same", .dilation_rate = 2}), {1, 4, 1}),
      numbers({0.50966388f, 0.86973751f, 1.204826f, 1.5225801f}, {1, 4, 1}), 1e-5);
  EXPECT_TENSOR_NEAR(
      output(Conv2DTranspose(1, 4, {.strides = 2, .padding = "same"}), {1, 2, 2, 1}),
      numbers({0.067895621f, 0.12924531f, -0.45708025f, -0.5722577f, 0.94448864f, 1.0073229f,
               1.8781368f, 1.4858469f, -0.17429401f, -0.011563331f, -1.1363118f, -0.80517066f,
               0.31424671f, 0.54959422f, 1.267614f, 0.69106114f},
              {1, 4, 4, 1}),
      1e-5);
}

// Kernels of Conv2D [h, w, a, b] and Conv2DTranspose [h, w, a, b] with a filters of the latter, a
// channels of the former.
TEST(TransposedConvolutions, AreGradientsOfConvolutions) {
  struct Way {
    int64_t kernel, stride;
    const char* padding;
    int64_t size;  // of the convolution's input
  };
  for (const Way& way : {Way{3, 2, "same", 6}, Way{2, 3, "same", 6}, Way{5, 2, "valid", 7},
                         Way{3, 1, "same", 4}, Way{4, 2, "same", 8}, Way{2, 3, "valid", 6}}) {
    SCOPED_TRACE(cat(way.kernel, " ", way.stride, " ", way.padding));
    const Conv2D forward(3, way.kernel,
                         {.strides = way.stride, .padding = way.padding, .use_bias = false});
    Tensor image = wave({2, way.size, way.size, 2});
    GradientTape tape;
    tape.watch(image);
    const Tensor small = forward(image);
    const Tensor upstream = wave(small.sizes().vec(), .9);
    const Tensor expected = tape.gradient((small * upstream).sum(), image);
    const Conv2DTranspose back(2, way.kernel,
                               {.strides = way.stride, .padding = way.padding, .use_bias = false});
    back->build_for({-1, upstream.size(1), upstream.size(2), 3});
    Variable(back->weights()[0]).assign(forward->weights()[0].read_value());
    EXPECT_TENSOR_NEAR(back(upstream), expected, 1e-5);
  }
}

TEST(TransposedConvolutions, RefuseAnOutputPaddingThatLeadsNowhere) {
  EXPECT_ERROR(Conv1DTranspose(1, 3, {.strides = 2, .output_padding = 2}), InvalidArgument,
               "output_padding 2 with stride 2");
  EXPECT_ERROR(
      Conv2DTranspose(1, 2, {.strides = 2, .padding = "same", .output_padding = Size2(1, 0)}),
      InvalidArgument, "output_padding 0");
}

TEST(Conv1D, CausalSeesOnlyWhatWasBefore) {
  const Conv1D conv(2, 3, {.padding = "causal", .dilation_rate = 2});
  Tensor x = wave({1, 8, 2});
  const Tensor before = conv(x);
  EXPECT_EQ(before.sizes().vec(), (Shape{1, 8, 2}));
  x.narrow(1, 5, 3).add_(1);
  const Tensor after = conv(x);
  EXPECT_TENSOR_EQ(after.narrow(1, 0, 5), before.narrow(1, 0, 5));
  EXPECT_FALSE(at::equal(after, before));
  EXPECT_ERROR(Conv2D(1, 2, {.padding = "causal"}), InvalidArgument,
               "padding \"causal\", expected \"valid\" or \"same\"");
}

TEST(Conv1D, IsConv2DOfOneRow) {
  const Conv1D conv(3, 2, {.strides = 2, .padding = "same"});
  const Conv2D images(3, {1, 2}, {.strides = {1, 2}, .padding = "same"});
  const Tensor x = wave({2, 7, 2}), y = conv(x);
  images->build_for({-1, 1, 7, 2});
  Variable(images->weights()[0]).assign(conv->weights()[0].read_value().unsqueeze(0));
  EXPECT_TENSOR_NEAR(images(x.unsqueeze(1)).squeeze(1), y, 1e-6);
}

TEST(Convolutions, SayWhatTheyCannotTake) {
  EXPECT_ERROR(Conv1D(2, 3)->build_for({-1, 2, 1}), InvalidArgument, "a window of 3");
  EXPECT_ERROR(Conv1D(2, 3)->build_for({-1, 8}), InvalidArgument, "(batch, steps, channels)");
  EXPECT_ERROR(Conv3D(2, 3)->build_for({-1, 8, 8, 8}), InvalidArgument,
               "(batch, depth, height, width, channels)");
  EXPECT_ERROR(DepthwiseConv2D(2, {.depth_multiplier = 0}), InvalidArgument, "depth_multiplier 0");
  EXPECT_ERROR(SeparableConv2D(0, 2), InvalidArgument, "filters 0");
  const DepthwiseConv2D conv(2, {.name = "d"});
  conv(wave({1, 3, 3, 2}));
  EXPECT_ERROR(conv(wave({1, 3, 3, 1})), InvalidArgument,
               "width, 2), the channels that it was built");
}

TEST(Convolutions, WeightsHaveKerasNamesAndShapes) {
  const SeparableConv2D separable(4, 3, {.depth_multiplier = 2, .name = "s"});
  separable->build_for({-1, 5, 5, 3});
  const auto weights = separable->weights();
  EXPECT_EQ(weights[0].name(), "s/depthwise_kernel");
  EXPECT_EQ(weights[0].sizes().vec(), (Shape{3, 3, 3, 2}));
  EXPECT_EQ(weights[1].name(), "s/pointwise_kernel");
  EXPECT_EQ(weights[1].sizes().vec(), (Shape{1, 1, 6, 4}));
  const Conv2DTranspose transposed(4, 3, {.name = "t"});
  transposed->build_for({-1, 5, 5, 3});
  EXPECT_EQ(transposed->weights()[0].sizes().vec(), (Shape{3, 3, 4, 3}));
}

TEST(Convolutions, ConstraintsReachTheVariables) {
  const Conv2D conv(1, 2, {.kernel_constraint = "non_neg", .bias_constraint = [](const Tensor& b) {
                             return b * 0;
                           }});
  conv->build_for({-1, 3, 3, 1});
  const auto weights = conv->weights();
  EXPECT_TENSOR_EQ(weights[0].constraint()(at::tensor({-1.f, 2.f})), at::tensor({0.f, 2.f}));
  EXPECT_TENSOR_EQ(weights[1].constraint()(at::ones({1})), at::zeros({1}));
  const Conv2D free(1, 2);
  free->build_for({-1, 3, 3, 1});
  EXPECT_FALSE(free->weights()[0].constraint());
}

}  // namespace
}  // namespace tutti::keras::layers
