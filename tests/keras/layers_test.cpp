#include "tutti/keras/layers.h"

#include <functional>
#include <set>

#include "support/expect.h"
#include "tutti/base/seed.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/mirrored_strategy.h"
#include "tutti/tensor/device.h"

namespace tutti::keras::layers {
namespace {

using distribute::get_replica_context;
using distribute::MirroredStrategy;

Tensor wave(const Shape& shape, double from = 0.3) {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return at::sin(at::arange(numel, at::kFloat) * 0.7 + from).view(shape);
}

std::vector<std::string> weight_names(const Layer& layer) {
  std::vector<std::string> names;
  for (const Variable& weight : layer->weights()) names.push_back(weight.name());
  return names;
}

// ---- names and building
// --------------------------------------------------------------------------------------------------------

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
// ---------------------------------------------------------------------------------------------------------------------

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

// ---- windows over images: what LibTorch gives against sums that are written out
// -------------------------------------------------

struct Windows {
  int64_t height, width, kernel, stride, dilation;
  bool same;
};

/// Top left corner of the first window, as TensorFlow places it: the extra row is added at the end.
int64_t first_corner(int64_t size, const Windows& w) {
  if (!w.same) return 0;
  const int64_t out = (size + w.stride - 1) / w.stride;
  return -(std::max<int64_t>(0, (out - 1) * w.stride + (w.kernel - 1) * w.dilation + 1 - size) / 2);
}
int64_t num_windows(int64_t size, const Windows& w) {
  return w.same ? (size + w.stride - 1) / w.stride
                : (size - (w.kernel - 1) * w.dilation - 1) / w.stride + 1;
}

/// Calls `window(row, column, inside)` for each output place; `inside` lists (kernel row, kernel
/// column, image row, image column).
using Place = std::array<int64_t, 4>;
void for_each_window(
    const Windows& w,
    const std::function<void(int64_t, int64_t, const std::vector<Place>&)>& window) {
  for (int64_t row = 0; row < num_windows(w.height, w); ++row) {
    for (int64_t column = 0; column < num_windows(w.width, w); ++column) {
      std::vector<Place> inside;
      for (int64_t i = 0; i < w.kernel; ++i) {
        for (int64_t j = 0; j < w.kernel; ++j) {
          const int64_t y = first_corner(w.height, w) + row * w.stride + i * w.dilation;
          const int64_t x = first_corner(w.width, w) + column * w.stride + j * w.dilation;
          if (y >= 0 && y < w.height && x >= 0 && x < w.width) inside.push_back({i, j, y, x});
        }
      }
      window(row, column, inside);
    }
  }
}

class OverImages : public ::testing::TestWithParam<Windows> {
 protected:
  Shape image() const { return {2, GetParam().height, GetParam().width, 3}; }
  Tensor output(int64_t channels) const {
    return at::zeros({2, num_windows(GetParam().height, GetParam()),
                      num_windows(GetParam().width, GetParam()), channels});
  }
  std::string padding() const { return GetParam().same ? "same" : "valid"; }
};

TEST_P(OverImages, Conv2DIsTheSumOverItsWindow) {
  const Windows w = GetParam();
  const Conv2D conv(4, w.kernel,
                    {.strides = w.stride,
                     .padding = padding(),
                     .dilation_rate = w.dilation,
                     .bias_initializer = initializers::Constant(.5)});
  conv->build_for(image());
  Variable kernel = conv->weights()[0];
  kernel.assign(wave({w.kernel, w.kernel, 3, 4}, 1));
  Tensor x = wave(image());
  Tensor same_x = x.clone();
  Tensor plain_kernel = kernel.read_value().contiguous();
  GradientTape tape({.persistent = true});
  for (Tensor* watched : {&x, &same_x, &plain_kernel}) tape.watch(*watched);
  std::vector<Tensor> places;
  for_each_window(w, [&](int64_t, int64_t, const std::vector<Place>& inside) {
    Tensor sum = at::full({2, 4}, .5f);
    for (const Place& at : inside)
      sum = sum + at::matmul(same_x.select(1, at[2]).select(1, at[3]), plain_kernel[at[0]][at[1]]);
    places.push_back(sum);
  });
  const Tensor wanted = at::stack(places, 1).view(output(4).sizes());
  const Tensor found = conv(x);
  EXPECT_TENSOR_NEAR(found, wanted, 1e-5);
  EXPECT_EQ(conv->compute_output_shape(image()), found.sizes().vec());
  const Tensor upstream = wave(output(4).sizes().vec(), 2);
  const Tensor target = (found * upstream).sum();
  const Tensor wanted_target = (wanted * upstream).sum();
  EXPECT_TENSOR_NEAR(tape.gradient(target, kernel), tape.gradient(wanted_target, plain_kernel),
                     1e-5);
  EXPECT_TENSOR_NEAR(tape.gradient(target, x), tape.gradient(wanted_target, same_x), 1e-5);
}

TEST_P(OverImages, PoolingTakesWhatIsInside) {
  const Windows w = GetParam();
  if (w.dilation != 1) return;
  Tensor x = wave(image()) - 2;  // all below zero: what is outside must not win
  Tensor max = output(3), mean = output(3);
  for_each_window(w, [&](int64_t row, int64_t column, const std::vector<Place>& inside) {
    std::vector<Tensor> values;
    for (const Place& at : inside) values.push_back(x.select(1, at[2]).select(1, at[3]));
    max.select(1, row).select(1, column).copy_(std::get<0>(at::stack(values).max(0)));
    mean.select(1, row).select(1, column).copy_(at::stack(values).mean(0));
  });
  const Pooling2DOptions options{.strides = w.stride, .padding = padding()};
  EXPECT_TENSOR_EQ(MaxPooling2D(w.kernel, options)(x), max);
  EXPECT_TENSOR_NEAR(AveragePooling2D(w.kernel, options)(x), mean, 1e-6);
  EXPECT_EQ(MaxPooling2D(w.kernel, options)->compute_output_shape(image()), max.sizes().vec());
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, OverImages,
    ::testing::Values(Windows{5, 5, 3, 1, 1, false}, Windows{5, 5, 3, 1, 1, true},
                      Windows{5, 6, 3, 2, 1, true}, Windows{6, 4, 2, 2, 1, true},
                      Windows{5, 5, 2, 1, 1, true}, Windows{7, 5, 3, 2, 1, false},
                      Windows{7, 8, 4, 3, 1, true}, Windows{6, 5, 3, 1, 2, true},
                      Windows{7, 6, 2, 1, 3, false}, Windows{4, 4, 1, 1, 1, false},
                      Windows{4, 5, 1, 2, 1, true}));

TEST(Conv2D, GivesKerasNumbers) {
  const Conv2D conv(2, 2, {.strides = 2, .padding = "same"});
  conv->build_for({-1, 6, 4, 2});
  Variable kernel = conv->weights()[0], bias = conv->weights()[1];
  kernel.assign(
      at::tensor({.442799985f, .597599983f, .363900006f, -.1065f, -.507600009f, -.578599989f,
                  -.273400009f, .209600002f, .556299984f, .541299999f, .1743f, -.305999994f,
                  -.587400019f, -.486799985f, -.0697000027f, .392699987f})
          .view({2, 2, 2, 2}));
  bias.assign(at::tensor({.578100026f, .485100001f}));
  const Tensor x =
      at::tensor(
          {.543500006f,  .969099998f,  1.18449998f,  1.14310002f,   .853799999f,  .379299998f,
           -.177399993f, -.69569999f,  -1.06309998f, -1.19990003f,  -1.07650006f, -.719699979f,
           -.206799999f, .351000011f,  .832599998f,  1.13370001f,   1.18889999f,  .986299992f,
           .569800019f,  .0296999998f, -.516799986f, -.951200008f,  -1.17939997f, -1.15180004f,
           -.87440002f,  -.407400012f, .148000002f,  .671199977f,   1.04890001f,  1.19920003f,
           1.08930004f,  .743300021f,  .236000001f,  -.322400004f,  -.810899973f, -1.12360001f,
           -1.19260001f, -1.0029f,     -.595799983f, -.0593999997f, .489800006f,  .932799995f,
           1.17349994f,  1.15980005f,  .894500017f,  .435200006f,   -.1184f,      -.646399975f})
          .view({1, 6, 4, 2});
  EXPECT_TENSOR_NEAR(
      conv(x),
      at::tensor({.139595747f, .294055998f, .752490878f, .732307732f, .474952668f, .609969974f,
                  1.0175457f, .680983722f, .948995352f, .758034945f, .691797495f, .366308242f})
          .view({1, 3, 2, 2}),
      1e-5);
}

TEST(Conv2D, TheKernelIsDenseInLibTorchsOrderAndSoIsItsGradient) {
  const Conv2D conv(4, {3, 2});
  conv->build_for({-1, 6, 6, 5});
  const Variable kernel = conv->weights()[0];
  EXPECT_EQ(kernel.sizes().vec(), (Shape{3, 2, 5, 4}));
  const Tensor seen_by_torch = kernel.value().permute({3, 2, 0, 1});
  EXPECT_TRUE(seen_by_torch.is_contiguous() ||
              seen_by_torch.is_contiguous(at::MemoryFormat::ChannelsLast));
  GradientTape tape;
  const Tensor gradient = tape.gradient(conv(wave({2, 6, 6, 5})), kernel);
  EXPECT_EQ(gradient.strides(), kernel.value().strides());
}

TEST(Conv2D, GroupsSeeTheirOwnChannels) {
  const Conv2D conv(4, 1, {.groups = 2, .use_bias = false});
  Tensor x = wave({1, 2, 2, 4});
  const Tensor y = conv(x);
  EXPECT_EQ(conv->weights()[0].sizes().vec(), (Shape{1, 1, 2, 4}));
  const Tensor kernel = conv->weights()[0].read_value()[0][0];
  EXPECT_TENSOR_NEAR(y.narrow(3, 0, 2), at::matmul(x.narrow(3, 0, 2), kernel.narrow(1, 0, 2)),
                     1e-6);
  EXPECT_TENSOR_NEAR(y.narrow(3, 2, 2), at::matmul(x.narrow(3, 2, 2), kernel.narrow(1, 2, 2)),
                     1e-6);
  EXPECT_ERROR(Conv2D(3, 1, {.groups = 2})->build_for({-1, 2, 2, 4}), InvalidArgument,
               "in 2 groups");
}

TEST(Conv2D, SaysWhatItCannotTake) {
  EXPECT_ERROR(Conv2D(1, 3, {.padding = "full", .name = "c"}), InvalidArgument,
               "Conv2D [c]: padding \"full\", expected \"valid\" or \"same\"");
  EXPECT_ERROR(Conv2D(1, 3, {.strides = 0}), InvalidArgument, "strides 0");
  EXPECT_ERROR(Conv2D(1, 3)(at::ones({2, 28, 28})), InvalidArgument, "add a channel axis");
  EXPECT_ERROR(Conv2D(1, 3)(at::ones({2, 2, 2, 1})), InvalidArgument, "window of 3");
  const Conv2D conv(1, 1);
  conv(at::ones({1, 2, 2, 3}));
  EXPECT_ERROR(conv(at::ones({1, 2, 2, 4})), InvalidArgument, "expected (batch, height, width, 3)");
}

TEST(GlobalAveragePooling2D, IsTheMeanOfAnImage) {
  const Tensor x = wave({2, 3, 4, 5});
  EXPECT_TENSOR_NEAR(GlobalAveragePooling2D()(x), x.view({2, 12, 5}).mean(1), 1e-6);
}

// ---- shapes and numbers
// --------------------------------------------------------------------------------------------------------

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
// -------------------------------------------------------------------------------------------------------------------

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

// ---- BatchNormalization
// --------------------------------------------------------------------------------------------------------

TEST(BatchNormalization, GivesKerasNumbers) {
  const BatchNormalization norm;
  const Tensor x = at::tensor({1.f, 2.f, 3.f, 6.f}).view({4, 1});
  EXPECT_TENSOR_NEAR(norm(x, true).flatten(),
                     at::tensor({-1.0688922f, -.5344461f, 0.f, 1.6033385f}), 1e-5);
  EXPECT_TENSOR_NEAR(norm->weights()[2].read_value(), at::tensor({.03f}), 1e-6);
  EXPECT_TENSOR_NEAR(norm->weights()[3].read_value(), at::tensor({1.025f}), 1e-6);
  EXPECT_TENSOR_NEAR(norm(x).flatten(), at::tensor({.9576307f, 1.9448788f, 2.9321268f, 5.8938713f}),
                     1e-5);
}

TEST(BatchNormalization, NormalisesTheChannelsOfImages) {
  const Tensor x = wave({3, 4, 5, 2});
  const BatchNormalization images, rows;
  const Tensor y = images(x, true);
  EXPECT_TENSOR_NEAR(y, rows(x.view({60, 2}), true).view({3, 4, 5, 2}), 1e-5);
  EXPECT_TENSOR_NEAR(images->weights()[3].read_value(), rows->weights()[3].read_value(), 1e-6);
  EXPECT_TENSOR_NEAR(BatchNormalization()(x.view({3, 20, 2}), true), y.reshape({3, 20, 2}), 1e-5);
}

TEST(BatchNormalization, FrozenMeansInference) {
  const BatchNormalization norm;
  norm->set_trainable(false);
  const Tensor x = wave({4, 2});
  EXPECT_TENSOR_EQ(norm(x, true), norm(x, false));
  EXPECT_TENSOR_EQ(norm->weights()[2].read_value(), at::zeros({2}));
}

TEST(BatchNormalization, TrainingOutsideReplicasMovesTheStatisticsOfAll) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.momentum = 0});
  norm(at::full({3, 1}, 4.f), true);
  for (const Tensor& component : norm->weights()[2].components())
    EXPECT_TENSOR_NEAR(component, at::tensor({4.f}), 1e-6);
}

TEST(BatchNormalization, EachReplicaHasItsOwnStatisticsAndAnEmptyOneChangesNothing) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.momentum = .5});
  const auto outputs = strategy.run([&] {
    const int replica = get_replica_context()->replica_id_in_sync_group();
    return norm(replica == 2 ? at::zeros({0, 1})
                             : at::full({2, 1}, 2.f + 2.f * static_cast<float>(replica)),
                true);
  });
  const auto means = norm->weights()[2].components(), variances = norm->weights()[3].components();
  EXPECT_TENSOR_NEAR(means[0], at::tensor({1.f}), 1e-6);
  EXPECT_TENSOR_NEAR(means[1], at::tensor({2.f}), 1e-6);
  EXPECT_TENSOR_EQ(means[2], at::zeros({1}));
  EXPECT_TENSOR_NEAR(variances[0], at::tensor({.5f}), 1e-6);
  EXPECT_TENSOR_EQ(variances[2], at::ones({1}));
  EXPECT_EQ(outputs[2].sizes().vec(), (Shape{0, 1}));
}

/// Rows of replica r of `whole`, cut into parts of these sizes.
Tensor part(const Tensor& whole, const std::vector<int64_t>& sizes, int replica) {
  return whole.split_with_sizes(sizes, 0)[static_cast<std::size_t>(replica)];
}

TEST(BatchNormalization, SynchronizedIsTheWholeBatchHoweverItIsCut) {
  const Tensor x = wave({7, 2, 2, 3}), upstream = wave({7, 2, 2, 3}, 1);
  const BatchNormalization single;
  Tensor watched = x.clone();
  GradientTape whole_tape({.persistent = true});
  whole_tape.watch(watched);
  const Tensor wanted = single(watched, true);
  const Tensor target = (wanted * upstream).sum();
  const Tensor wanted_x = whole_tape.gradient(target, watched);
  const Tensor wanted_gamma = whole_tape.gradient(target, single->weights()[0]);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 3}, {6, 1}, {7, 0}, {0, 7}}) {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    auto scope = strategy.scope();
    const BatchNormalization norm({.synchronized = true});
    const auto results = strategy.run([&] {
      const int replica = get_replica_context()->replica_id_in_sync_group();
      Tensor mine = part(x, sizes, replica).clone();
      GradientTape tape({.persistent = true});
      tape.watch(mine);
      const Tensor y = norm(mine, true);
      // Backward meets the other replicas, so all gradients are asked for in one pass.
      Tensor loss = (y * part(upstream, sizes, replica)).sum();
      const Tensor gamma = norm->weights()[0].value();
      const auto gradients = tape.gradient(loss, std::vector<Tensor>{mine, gamma});
      return std::tuple(y.detach(), gradients[0], gradients[1]);
    });
    const auto& [y, x_gradient, gamma_gradient] = results;
    EXPECT_TENSOR_NEAR(at::cat({y[0], y[1]}), wanted, 1e-5);
    EXPECT_TENSOR_NEAR(at::cat({x_gradient[0], x_gradient[1]}), wanted_x, 1e-5);
    EXPECT_TENSOR_NEAR(gamma_gradient[0] + gamma_gradient[1], wanted_gamma, 1e-4);
    for (std::size_t i : {2, 3}) {
      for (const Tensor& component : norm->weights()[i].components())
        EXPECT_TENSOR_NEAR(component, single->weights()[i].read_value(), 1e-6);
    }
  }
}

TEST(BatchNormalization, SaysWhatItCannotTake) {
  EXPECT_ERROR(BatchNormalization({.axis = 1})->build_for({-1, 4, 4, 3}), InvalidArgument,
               "axis 1");
  EXPECT_NO_THROW(BatchNormalization({.axis = 3})->build_for({-1, 4, 4, 3}));
}

// ---- batches without rows
// ------------------------------------------------------------------------------------------------------

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
