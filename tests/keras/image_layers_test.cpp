// Conv2D and pooling against sums that are written out.

#include <array>
#include <functional>

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

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

}  // namespace
}  // namespace tutti::keras::layers
