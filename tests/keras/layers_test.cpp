#include "tutti/keras/layers.h"

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"

namespace tutti::keras::layers {
namespace {

using distribute::MirroredStrategy;

std::vector<std::string> weight_names(const Layer& layer) {
  std::vector<std::string> names;
  for (const Variable& weight : layer->weights()) names.push_back(weight.name());
  return names;
}

// ---- names and building

TEST(Layers, NamesCountUpLikeKeras) {
  clear_session();
  EXPECT_EQ(Dense(1)->name(), "dense");
  EXPECT_EQ(Dense(1)->name(), "dense_1");
  EXPECT_EQ(Conv2D(1, 1)->name(), "conv2d");
  EXPECT_EQ(MaxPooling2D()->name(), "max_pooling2d");
  EXPECT_EQ(AveragePooling2D()->name(), "average_pooling2d");
  EXPECT_EQ(GlobalAveragePooling2D()->name(), "global_average_pooling2d");
  EXPECT_EQ(BatchNormalization()->name(), "batch_normalization");
  EXPECT_EQ(Activation("relu")->name(), "activation");
  EXPECT_EQ(Input({2})->name(), "input_layer");
  EXPECT_EQ(Dense(1, {.name = "mine"})->name(), "mine");
  clear_session();
  EXPECT_EQ(Dense(1)->name(), "dense");
}

TEST(Layers, WeightsHaveKerasNamesAndOrder) {
  const Dense dense(3, {.name = "d"});
  dense->build_for({-1, 2});
  EXPECT_EQ(weight_names(dense), (std::vector<std::string>{"d/kernel", "d/bias"}));
  const BatchNormalization norm({.name = "n"});
  norm->build_for({-1, 2});
  EXPECT_EQ(weight_names(norm),
            (std::vector<std::string>{"n/gamma", "n/beta", "n/moving_mean", "n/moving_variance"}));
  EXPECT_EQ(norm->trainable_weights().size(), 2);
  const BatchNormalization bare({.center = false, .scale = false, .name = "b"});
  bare->build_for({-1, 2});
  EXPECT_EQ(weight_names(bare), (std::vector<std::string>{"b/moving_mean", "b/moving_variance"}));
}

TEST(Layers, AHandleStandsInAListOfLayers) {
  const std::initializer_list<Layer> list = {Conv2D(32, 3, {.activation = "relu"}),
                                             Conv2D(8, {3, 2}),
                                             MaxPooling2D(),
                                             MaxPooling2D({2, 1}),
                                             Flatten(),
                                             Dense(10)};
  EXPECT_EQ(list.size(), 6);
}

TEST(Layers, WeightsOfAnUnbuiltLayerAreAnError) {
  EXPECT_ERROR(Dense(1)->weights(), FailedPrecondition, "not built");
  EXPECT_TRUE(Flatten()->weights().empty());
}

TEST(Layers, ASecondBuildChangesNothing) {
  const Dense dense(2);
  dense->build_for({-1, 3});
  const Variable kernel = dense->weights()[0];
  dense->build_for({-1, 5});
  EXPECT_TRUE(dense->weights()[0].is_same(kernel));
  EXPECT_EQ(dense->weights().size(), 2);
}

TEST(Layers, ReplicasBuildALayerTogether) {
  for (int round = 0; round < 20; ++round) {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
    auto scope = strategy.scope();
    const Dense dense(2);
    const auto outputs = strategy.run([&] { return dense(at::ones({1, 3})); });
    ASSERT_EQ(dense->weights().size(), 2);
    EXPECT_EQ(&dense->weights()[0].strategy(), &strategy);
    EXPECT_TENSOR_EQ(outputs[0], outputs[2]);
  }
}

TEST(Layers, AnUndefinedInputIsAnError) {
  EXPECT_ERROR(Flatten()(Tensor()), InvalidArgument, "undefined");
}

TEST(Layers, PenaltiesEndWithTraining) {
  const Dense dense(1, {.use_bias = false,
                        .kernel_initializer = initializers::Constant(2),
                        .kernel_regularizer = regularizers::L2(0.5)});
  dense(at::ones({1, 3}));
  ASSERT_EQ(dense->losses().size(), 1);
  EXPECT_NEAR(dense->losses()[0].item<double>(), 6, 1e-6);
  EXPECT_TRUE(dense->losses()[0].requires_grad());
  dense->set_trainable(false);
  EXPECT_TRUE(dense->losses().empty());
  EXPECT_TRUE(dense->trainable_weights().empty());
}

/// A user's own layer: y = x scale.
class Scale : public LayerImpl {
 public:
  Scale() : LayerImpl("Scale", "", {}) {}
  std::string class_name() const override { return "Scale"; }
  std::string config() const override { return "{}"; }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    scale_ = add_weight(
        {.name = "scale", .shape = {input.back()}, .initializer = initializers::Constant(3)});
  }
  Tensor call(const Tensor& input, bool training) override { return input * scale_.value(); }

 private:
  Variable scale_;
};

TEST(Layers, AUsersOwnLayerIsALayer) {
  const Layer scale = std::make_shared<Scale>();
  EXPECT_TENSOR_EQ(scale(at::ones({2, 2})), at::full({2, 2}, 3.f));
  EXPECT_ERROR(layer_from_config("Scale", "{}"), Unimplemented, "load_weights");
}

TEST(Layers, ALayerIsMadeAgainFromItsConfig) {
  const std::vector<Layer> layers = {
      Input({4, 4, 1}, "i"),
      Dense(3, {.activation = "tanh",
                .use_bias = false,
                .kernel_initializer = initializers::RandomNormal(1, 2),
                .kernel_regularizer = regularizers::L1L2(.1, .2),
                .name = "d"}),
      Conv2D(4, {3, 2},
             {.strides = {2, 1},
              .padding = "same",
              .dilation_rate = {1, 2},
              .groups = 2,
              .bias_regularizer = regularizers::L1(),
              .name = "c",
              .input_shape = {4, 4, 2}}),
      MaxPooling2D({2, 3}, {.strides = 1, .padding = "same", .name = "m"}),
      AveragePooling2D(3, {.name = "a"}),
      GlobalAveragePooling2D({.name = "g"}),
      Flatten({.name = "f"}),
      Reshape({-1, 2}, {.name = "r"}),
      Dropout(0.25, {.seed = 7, .name = "o"}),
      BatchNormalization(
          {.momentum = .5, .epsilon = .1, .center = false, .name = "n", .synchronized = true}),
      Activation("gelu", {.name = "v"}),
      Rescaling(2, {.offset = 1, .name = "s"}),
  };
  for (const Layer& layer : layers) {
    layer->set_trainable(false);
    const Layer again = layer_from_config(layer->class_name(), layer->config());
    EXPECT_EQ(again->class_name(), layer->class_name());
    EXPECT_EQ(again->config(), layer->config());
    EXPECT_EQ(again->input_shape(), layer->input_shape());
    EXPECT_FALSE(again->trainable());
  }
}

// ---- Dense

TEST(Dense, GivesKerasNumbersAndGradients) {
  const Dense dense(3, {.activation = "relu"});
  dense->build_for({-1, 4});
  Variable kernel = dense->weights()[0], bias = dense->weights()[1];
  kernel.assign(
      at::tensor({.442799985f, .597599983f, .363900006f, -.1065f, -.507600009f, -.578599989f,
                  -.273400009f, .209600002f, .556299984f, .541299999f, .1743f, -.305999994f})
          .view({4, 3}));
  bias.assign(at::tensor({.578100026f, .485100001f, .0249000005f}));
  Tensor x = at::tensor({1.39810002f, 1.29480004f, .211700007f, -1.0316f, -1.49419999f,
                         -.825999975f, .467299998f, 1.40699995f})
                 .view({2, 4});
  const Tensor upstream =
      at::tensor({.666899979f, .952099979f, .976100028f, .732200027f, .287499994f, -.236200005f})
          .view({2, 3});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = dense(x);
  EXPECT_TENSOR_NEAR(
      y,
      at::tensor({.442998588f, .527928472f, .217935607f, .638286531f, .354629904f, 0.f})
          .view({2, 3}),
      1e-5);
  const Tensor target = (y * upstream).sum();
  EXPECT_TENSOR_NEAR(tape.gradient(target, bias),
                     at::tensor({1.39910007f, 1.23959994f, .976100028f}), 1e-5);
  EXPECT_TENSOR_NEAR(tape.gradient(target, kernel)[3],
                     at::tensor({.342231333f, -.577673852f, -1.00694478f}), 1e-5);
  EXPECT_TENSOR_NEAR(tape.gradient(target, x)[1],
                     at::tensor({.496028125f, -.223914295f, -.139923498f, .446451128f}), 1e-5);
}

TEST(Dense, TakesAnyRankAndNoBias) {
  for (bool use_bias : {true, false}) {
    const Dense dense(2, {.use_bias = use_bias, .bias_initializer = initializers::Constant(5)});
    const Tensor x = wave({2, 3, 4, 5});
    const Tensor flat = at::matmul(x.view({24, 5}), [&] {
      dense->build_for({-1, 3, 4, 5});
      return dense->weights()[0].value();
    }());
    EXPECT_TENSOR_NEAR(dense(x), (flat + (use_bias ? 5 : 0)).view({2, 3, 4, 2}), 1e-6);
    EXPECT_EQ(dense->compute_output_shape({-1, 3, 4, 5}), (Shape{-1, 3, 4, 2}));
  }
}

TEST(Dense, SaysWhatItCannotTake) {
  EXPECT_ERROR(Dense(0), InvalidArgument, "units 0, expected at least 1");
  EXPECT_ERROR(Dense(1)->build_for({-1, -1}), InvalidArgument, "known number of features");
  const Dense dense(2, {.name = "d"});
  dense(at::ones({1, 3}));
  EXPECT_ERROR(dense(at::ones({1, 4})), InvalidArgument,
               "Dense [d]: input of shape (1, 4), expected 3 features");
}

// ---- shapes and numbers

TEST(Flatten, KeepsTheChannelsInnermost) {
  const Tensor x = at::arange(24, at::kFloat).view({2, 2, 3, 2});
  EXPECT_TENSOR_EQ(Flatten()(x), x.reshape({2, 12}));
  const Conv2D conv(3, 1);
  const Tensor y = conv(x);
  EXPECT_TENSOR_EQ(Flatten()(y), y.contiguous().view({2, 18}));
}

TEST(Reshape, FindsTheSizeThatIsLeftOpen) {
  EXPECT_EQ(Reshape({-1, 5})(at::ones({2, 10})).sizes().vec(), (Shape{2, 2, 5}));
  EXPECT_EQ(Reshape({28, 28, 1})->compute_output_shape({-1, 784}), (Shape{-1, 28, 28, 1}));
  EXPECT_ERROR(Reshape({3})(at::ones({2, 10})), InvalidArgument, "same number of entries");
  EXPECT_ERROR(Reshape({-1, -1})(at::ones({2, 10})), InvalidArgument, "at most one -1");
}

TEST(Rescaling, ScalesThenShifts) {
  EXPECT_TENSOR_NEAR(Rescaling(1 / 255.0, {.offset = -.5})(at::full({1, 1}, 171.730194f)),
                     at::full({1, 1}, .173451781f), 1e-6);
}

// ---- Dropout

TEST(Dropout, IsTheIdentityInInference) {
  const Tensor x = wave({3, 4});
  EXPECT_TENSOR_EQ(Dropout(.5)(x), x);
}

TEST(Dropout, KeepsTheMean) {
  const Tensor y = Dropout(.25, {.seed = 1})(at::ones({100, 100}), true);
  EXPECT_NEAR(y.mean().item<double>(), 1, .03);
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), .25, .02);
  EXPECT_NEAR(y.max().item<double>(), 1 / .75, 1e-6);
}

TEST(Dropout, ASeedRepeatsItsDraws) {
  const Tensor x = at::ones({50});
  const Dropout first(.5, {.seed = 3}), second(.5, {.seed = 3}), third(.5, {.seed = 4});
  const Tensor drawn = first(x, true);
  EXPECT_TENSOR_EQ(second(x, true), drawn);
  EXPECT_FALSE(at::equal(third(x, true), drawn));
  EXPECT_FALSE(at::equal(first(x, true), drawn));
}

TEST(Dropout, ReplicasDrawDifferently) {
  for (std::optional<int64_t> seed : {std::optional<int64_t>(), std::optional<int64_t>(5)}) {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    auto scope = strategy.scope();
    const Dropout dropout(.5, {.seed = seed});
    const auto drawn = strategy.run([&] { return dropout(at::ones({64}), true); });
    EXPECT_FALSE(at::equal(drawn[0], drawn[1]));
  }
}

TEST(Dropout, RatesOutsideTheRangeAreRefused) {
  EXPECT_ERROR(Dropout(1), InvalidArgument, "rate 1, expected from 0 to below 1");
  EXPECT_ERROR(Dropout(-.1), InvalidArgument, "rate");
  EXPECT_ERROR(Dropout(std::nan("")), InvalidArgument, "rate");
}

// ---- batches without rows

TEST(Layers, ABatchWithoutRowsGoesThroughEveryLayerAndBack) {
  const std::vector<std::pair<Layer, Shape>> cases = {
      {Dense(3, {.activation = "relu"}), {4}},
      {Dense(3, {.activation = "softmax"}), {5, 4}},
      {Conv2D(3, 3, {.activation = "relu"}), {6, 6, 2}},
      {Conv2D(3, 2, {.strides = 2, .padding = "same"}), {5, 5, 2}},
      {MaxPooling2D(), {6, 6, 2}},
      {MaxPooling2D(3, {.padding = "same"}), {5, 5, 2}},
      {AveragePooling2D(3, {.padding = "same"}), {5, 5, 2}},
      {GlobalAveragePooling2D(), {5, 5, 2}},
      {Flatten(), {5, 5, 2}},
      {Reshape({-1, 5}), {5, 2}},
      {Dropout(.5), {4}},
      {BatchNormalization(), {4, 4, 2}},
      {BatchNormalization({.synchronized = true}), {3}},
      {Activation("relu"), {4}},
      {Rescaling(2), {4}},
  };
  for (const auto& [layer, sample] : cases) {
    SCOPED_TRACE(layer->name());
    Shape shape = sample;
    shape.insert(shape.begin(), 0);
    Tensor x = at::zeros(shape);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Tensor y = layer(x, true);
    EXPECT_EQ(y.sizes().vec(), layer->compute_output_shape(shape));
    const Tensor gradient = tape.gradient(y, x);
    EXPECT_TRUE(gradient.defined() && gradient.sizes() == x.sizes());
    for (const Variable& weight : layer->trainable_weights()) {
      const Tensor zero = tape.gradient(y, weight);
      EXPECT_TRUE(!zero.defined() || at::equal(zero, at::zeros_like(zero)));
    }
  }
}

}  // namespace
}  // namespace tutti::keras::layers
