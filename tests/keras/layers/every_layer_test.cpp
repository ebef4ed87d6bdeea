// What holds of every layer: it comes back from its config, takes batches without rows, says its
// output's shape, and computes in the dtype of its policy on float32 weights.

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

struct Case {
  Layer layer;
  std::vector<Shape> samples;  ///< one shape an input, without the batch axis
};

std::vector<Case> convolutions() {
  return {
      {Conv1D(3, 2, {.strides = 2, .padding = "same", .activation = "relu"}), {{5, 2}}},
      {Conv1D(3, 3, {.padding = "causal", .dilation_rate = 2}), {{7, 2}}},
      {Conv2D(4, {3, 2},
              {.padding = "same",
               .dilation_rate = {1, 2},
               .groups = 2,
               .use_bias = false,
               .kernel_initializer = initializers::HeNormal(3),
               .kernel_regularizer = regularizers::L1L2(.1, .2),
               .activity_regularizer = "l2",
               .kernel_constraint = constraints::MaxNorm(2, {0, 1, 2})}),
       {{6, 6, 2}}},
      {Conv3D(2, 2, {.strides = {1, 2, 1}, .padding = "same"}), {{3, 4, 3, 2}}},
      {Conv1DTranspose(2, 3, {.strides = 2, .output_padding = 1}), {{4, 2}}},
      {Conv2DTranspose(2, 3, {.strides = 2, .padding = "same", .activation = "relu"}), {{3, 3, 2}}},
      {Conv2DTranspose(2, 4, {.strides = 2, .padding = "same"}), {{3, 3, 2}}},
      {Conv3DTranspose(2, 2, {.strides = 2}), {{2, 2, 2, 1}}},
      {DepthwiseConv1D(3, {.padding = "same", .depth_multiplier = 2}), {{5, 2}}},
      {DepthwiseConv2D(2, {.strides = 2, .depthwise_regularizer = "l1"}), {{6, 6, 3}}},
      {SeparableConv1D(4, 3, {.padding = "same", .depth_multiplier = 2}), {{5, 2}}},
      {SeparableConv2D(4, 3, {.pointwise_constraint = "non_neg"}), {{5, 5, 2}}},
  };
}

std::vector<Case> pooling() {
  return {
      {MaxPooling1D(3, {.strides = 2, .padding = "same"}), {{6, 2}}},
      {MaxPooling2D({2, 3}, {.strides = 1, .padding = "same"}), {{5, 5, 2}}},
      {MaxPooling3D(2, {.padding = "same"}), {{3, 2, 2, 2}}},
      {AveragePooling1D(2), {{6, 2}}},
      {AveragePooling2D(3, {.padding = "same"}), {{5, 5, 2}}},
      {AveragePooling3D({1, 2, 2}), {{3, 2, 2, 2}}},
      {AdaptiveAveragePooling1D(3), {{7, 2}}},
      {AdaptiveAveragePooling2D({2, 3}), {{5, 5, 2}}},
      {AdaptiveAveragePooling3D(2), {{3, 4, 5, 2}}},
      {AdaptiveMaxPooling1D(3), {{7, 2}}},
      {AdaptiveMaxPooling2D({4, 1}), {{5, 5, 2}}},
      {AdaptiveMaxPooling3D({1, 2, 3}), {{3, 4, 5, 2}}},
      {GlobalMaxPooling1D(), {{4, 2}}},
      {GlobalMaxPooling2D({.keepdims = true}), {{4, 3, 2}}},
      {GlobalMaxPooling3D(), {{2, 2, 3, 2}}},
      {GlobalAveragePooling1D(), {{4, 2}}},
      {GlobalAveragePooling2D({.keepdims = true}), {{4, 3, 2}}},
      {GlobalAveragePooling3D(), {{2, 2, 3, 2}}},
  };
}

std::vector<Case> normalisation() {
  return {
      {BatchNormalization({.axis = 1,
                           .momentum = .5,
                           .epsilon = .1,
                           .center = false,
                           .gamma_initializer = "he_uniform",
                           .gamma_constraint = "unit_norm"}),
       {{3, 4}}},
      {BatchNormalization({.synchronized = true}), {{3, 4, 2}}},
      {LayerNormalization({.axis = {1, 2}, .scale = false}), {{3, 4}}},
      {LayerNormalization({.axis = {1}, .epsilon = .01, .beta_regularizer = "l2"}), {{3, 4}}},
      {GroupNormalization({.groups = 2}), {{3, 3, 4}}},
      {GroupNormalization({.groups = -1, .axis = 1, .center = false}), {{3, 4}}},
      {RMSNormalization({.epsilon = .1}), {{3, 4}}},
      {UnitNormalization({.axis = {1}}), {{3, 4}}},
  };
}

std::vector<Case> the_rest() {
  return {
      {Dense(3, {.activation = "tanh",
                 .bias_initializer = initializers::RandomUniform(-1, 1, 5),
                 .kernel_regularizer = regularizers::OrthogonalRegularizer(.1, "columns"),
                 .kernel_constraint = constraints::MinMaxNorm(.1, .9, .5)}),
       {{4}}},
      {Dense(3), {{2, 4}}},
      {EinsumDense("abc,cde->abde", {-1, 2, 3},
                   {.activation = "relu",
                    .bias_axes = "e",
                    .bias_initializer = initializers::RandomUniform(-1, 1, 5),
                    .kernel_regularizer = "l2",
                    .activity_regularizer = "l1",
                    .kernel_constraint = "non_neg"}),
       {{3, 4}}},
      {EinsumDense("...x,xy->...y", 2), {{2, 3, 4}}},
      {Activation("mish"), {{4}}},
      {Activation("glu"), {{4}}},
      {Identity(), {{4}}},
      {Rescaling(2, {.offset = 1}), {{4}}},
      {ReLU({.max_value = 5, .negative_slope = .1, .threshold = .2}), {{4}}},
      {ReLU(), {{4}}},
      {LeakyReLU(.1), {{4}}},
      {ELU(.5), {{4}}},
      {PReLU({.alpha_initializer = initializers::Constant(.25), .shared_axes = {1}}), {{3, 4}}},
      {Softmax({1, 2}), {{3, 4}}},
      {Softmax(1), {{3, 4}}},
      {Flatten(), {{3, 4}}},
      {Reshape({-1, 2}), {{3, 4}}},
      {Permute({2, 1}), {{3, 4}}},
      {RepeatVector(3), {{4}}},
      {Cropping1D({1, 0}), {{4, 2}}},
      {Cropping2D({{1, 0}, {0, 2}}), {{4, 5, 2}}},
      {Cropping3D(1), {{3, 4, 5, 2}}},
      {ZeroPadding1D(2), {{4, 2}}},
      {ZeroPadding2D({1, 2}), {{4, 5, 2}}},
      {ZeroPadding3D({1, 0, 2}), {{2, 2, 2, 2}}},
      {UpSampling1D(3), {{4, 2}}},
      {UpSampling2D({2, 3}), {{3, 2, 2}}},
      {UpSampling2D(2, {.interpolation = "bilinear"}), {{3, 2, 2}}},
      {UpSampling3D({1, 2, 3}), {{2, 3, 2, 2}}},
      {Dropout(.25, {.noise_shape = {-1, 1, 4}, .seed = 7}), {{3, 4}}},
      {AlphaDropout(.25), {{4}}},
      {SpatialDropout1D(.5), {{3, 4}}},
      {SpatialDropout2D(.5, {.seed = 2}), {{3, 3, 4}}},
      {SpatialDropout3D(.5), {{2, 3, 3, 4}}},
      {GaussianNoise(.5), {{4}}},
      {GaussianDropout(.5, {.seed = 1}), {{4}}},
      {ActivityRegularization({.l1 = .1, .l2 = .2}), {{4}}},
      {Add(), {{3, 4}, {3, 4}, {1, 4}}},
      {Subtract(), {{3, 4}, {4}}},
      {Multiply(), {{3, 4}, {3, 4}}},
      {Average(), {{3, 4}, {3, 4}, {3, 4}}},
      {Maximum(), {{3, 4}, {3, 4}}},
      {Minimum(), {{3, 4}, {3, 4}}},
      {Concatenate({.axis = 1}), {{3, 4}, {2, 4}}},
      {Dot({1, 2}, {.normalize = true}), {{3, 4}, {2, 3}}},
  };
}

std::vector<Case> every_layer() {
  std::vector<Case> all;
  for (const auto& family : {convolutions(), pooling(), normalisation(), the_rest()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

std::vector<Tensor> batches(const Case& one, int64_t rows) {
  std::vector<Tensor> inputs;
  for (Shape shape : one.samples) {
    shape.insert(shape.begin(), rows);
    inputs.push_back(wave(shape, .3 + static_cast<double>(inputs.size())));
  }
  return inputs;
}
std::vector<Shape> shapes(const std::vector<Tensor>& inputs) {
  std::vector<Shape> all;
  for (const Tensor& input : inputs) all.push_back(input.sizes().vec());
  return all;
}
void give_weights(const Layer& from, const Layer& to) {
  const auto source = from->weights(), target = to->weights();
  ASSERT_EQ(source.size(), target.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    EXPECT_EQ(source[i].name(), target[i].name());
    Variable(target[i]).assign(source[i].read_value());
  }
}

TEST(EveryLayer, ComesBackFromItsConfigWithTheSameOutput) {
  for (const Case& one : every_layer()) {
    SCOPED_TRACE(one.layer->name());
    const Layer again = layer_from_config(one.layer->class_name(), one.layer->config());
    EXPECT_EQ(again->class_name(), one.layer->class_name());
    EXPECT_EQ(again->config(), one.layer->config());
    const std::vector<Tensor> inputs = batches(one, 2);
    const Tensor output = (*one.layer)(inputs, {})[0];
    again->build_for(shapes(inputs));
    give_weights(one.layer, again);
    EXPECT_TENSOR_EQ((*again)(inputs, {})[0], output);
    EXPECT_EQ(again->losses().size(), one.layer->losses().size());
  }
}

TEST(EveryLayer, SaysTheShapeOfItsOutput) {
  for (const Case& one : every_layer()) {
    SCOPED_TRACE(one.layer->name());
    const std::vector<Tensor> inputs = batches(one, 2);
    const Shape shape = (*one.layer)(inputs, {})[0].sizes().vec();
    EXPECT_EQ(one.layer->compute_output_shapes(shapes(inputs))[0], shape);
    std::vector<Shape> unknown = shapes(inputs);
    for (Shape& input : unknown) input[0] = -1;
    EXPECT_EQ(one.layer->compute_output_shapes(unknown)[0][0], -1);
  }
}

TEST(EveryLayer, ABatchWithoutRowsGoesThroughAndBack) {
  for (const Case& one : every_layer()) {
    SCOPED_TRACE(one.layer->name());
    std::vector<Tensor> inputs = batches(one, 0);
    GradientTape tape({.persistent = true});
    for (Tensor& input : inputs) tape.watch(input);
    const Tensor output = (*one.layer)(inputs, {true})[0];
    EXPECT_EQ(output.sizes().vec(), one.layer->compute_output_shapes(shapes(inputs))[0]);
    for (const Tensor& gradient : tape.gradient(output, inputs)) {
      EXPECT_TRUE(gradient.defined() && gradient.numel() == 0);
    }
    for (const Variable& weight : one.layer->trainable_weights()) {
      const Tensor zero = tape.gradient(output, weight);
      EXPECT_TRUE(!zero.defined() || at::equal(zero, at::zeros_like(zero)));
    }
  }
}

class HalfPrecision : public ::testing::TestWithParam<const char*> {};

TEST_P(HalfPrecision, EveryLayerComputesInItOnFloat32Weights) {
  const at::ScalarType half_dtype = DTypePolicy(GetParam()).compute_dtype();
  for (const Case& one : every_layer()) {
    SCOPED_TRACE(one.layer->name());
    std::string config = one.layer->config();
    const Layer half = layer_from_config(one.layer->class_name(),
                                         config.insert(1, cat("\"dtype\":\"", GetParam(), "\",")));
    EXPECT_EQ(half->dtype_policy().name(), GetParam());
    std::vector<Tensor> inputs = batches(one, 2);
    const Tensor expected = (*one.layer)(inputs, {})[0];
    half->build_for(shapes(inputs));
    give_weights(one.layer, half);
    GradientTape tape({.persistent = true});
    for (Tensor& input : inputs) tape.watch(input);
    const Tensor output = (*half)(inputs, {})[0];
    EXPECT_EQ(output.scalar_type(), half_dtype);
    EXPECT_TENSOR_NEAR(output, expected, .05);
    const Tensor target = output.to(at::kFloat).sum();
    for (const Tensor& gradient : tape.gradient(target, inputs))
      EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    for (const Variable& weight : half->trainable_weights()) {
      EXPECT_EQ(weight.value().scalar_type(), at::kFloat);
      EXPECT_EQ(tape.gradient(target, weight).scalar_type(), at::kFloat);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, HalfPrecision,
                         ::testing::Values("mixed_bfloat16", "mixed_float16"));

TEST(EveryLayer, TakesDtypeAndTrainableAsOptions) {
  const Dense dense(2, {.trainable = false, .dtype = "float64"});
  EXPECT_EQ(dense(at::ones({1, 3})).scalar_type(), at::kDouble);
  EXPECT_FALSE(dense->trainable());
  EXPECT_TRUE(dense->trainable_weights().empty());
  EXPECT_EQ(dense->weights()[0].value().scalar_type(), at::kDouble);
  EXPECT_ERROR(Flatten({.dtype = "float31"}), InvalidArgument, "\"float31\", expected one of");
}

TEST(EveryLayer, ReadsKerasArgumentsAsKerasWritesThem) {
  const Layer conv = layer_from_config(
      "Conv2D",
      R"({"filters": 2, "kernel_size": [3, 2], "strides": 1, "data_format": "channels_last",
          "activation": "relu", "kernel_initializer": "he_normal", "kernel_regularizer": null,
          "bias_regularizer": {"class_name": "L2", "config": {"l2": 0.5}}})");
  conv->build_for({-1, 4, 4, 1});
  EXPECT_EQ(conv->weights()[0].sizes().vec(), (Shape{3, 2, 1, 2}));
  EXPECT_EQ(conv->losses().size(), 1);
  EXPECT_ERROR(layer_from_config("Conv2D", R"({"data_format": "channels_first"})"), Unimplemented,
               "channels_last");
  EXPECT_ERROR(layer_from_config("Dense", R"({"units": "many"})"), DataLoss, "[units]: \"many\"");
  EXPECT_ERROR(layer_from_config("ZeroPadding2D", R"({"padding": [1, 2, 3]})"), DataLoss,
               "padding");
}

TEST(EveryLayer, ReadsPenaltiesOfEarlierFiles) {
  const Layer dense = layer_from_config(
      "Dense", R"({"units": 1, "kernel_initializer": {"class_name": "Ones", "config": {}},
                  "kernel_regularizer": {"l1": 0.5, "l2": 0.25},
                  "bias_regularizer": {"l1": 0, "l2": 0}})");
  dense->build_for({-1, 2});
  ASSERT_EQ(dense->losses().size(), 1);
  EXPECT_NEAR(dense->losses()[0].item<double>(), 1.5, 1e-6);
}

}  // namespace
}  // namespace tutti::keras::layers
