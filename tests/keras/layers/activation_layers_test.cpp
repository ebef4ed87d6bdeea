// ReLU, PReLU, Softmax and the layers of functions.

#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

const Tensor& values() {
  static const Tensor kNumbers = at::tensor({-2.f, -.5f, .25f, .75f, 3.f, 8.f}).view({1, 6});
  return kNumbers;
}
Tensor row(const std::vector<float>& numbers) { return at::tensor(numbers).unsqueeze(0); }

TEST(ActivationLayers, GiveKerasNumbers) {
  EXPECT_TENSOR_NEAR(ReLU({.max_value = 5, .negative_slope = .1, .threshold = .5})(values()),
                     row({-0.25f, -0.1f, -0.025f, 0.75f, 3.f, 5.f}), 1e-6);
  EXPECT_TENSOR_NEAR(ReLU()(values()), row({0.f, 0.f, .25f, .75f, 3.f, 8.f}), 0);
  EXPECT_TENSOR_NEAR(LeakyReLU()(values()), row({-.6f, -.15f, .25f, .75f, 3.f, 8.f}), 1e-6);
  EXPECT_TENSOR_NEAR(ELU(2)(values()), row({-1.7293295f, -.78693867f, .25f, .75f, 3.f, 8.f}), 1e-6);
  EXPECT_TENSOR_NEAR(PReLU({.alpha_initializer = initializers::Constant(.5)})(values()),
                     row({-1.f, -.25f, .25f, .75f, 3.f, 8.f}), 1e-6);
}

TEST(ActivationLayers, RefuseNegativeArguments) {
  EXPECT_ERROR(ReLU({.max_value = -1}), InvalidArgument, "max_value -1");
  EXPECT_ERROR(ReLU({.threshold = -1}), InvalidArgument, "threshold -1");
  EXPECT_ERROR(LeakyReLU(-1), InvalidArgument, "negative_slope -1");
}

TEST(PReLU, SharesAlphaAlongAxes) {
  const PReLU shared({.shared_axes = {1, 2}});
  shared->build_for({-1, 4, 5, 3});
  EXPECT_EQ(shared->weights()[0].sizes().vec(), (Shape{1, 1, 3}));
  const PReLU open({.shared_axes = {1}});
  open->build_for({-1, -1, 3});
  EXPECT_EQ(open->weights()[0].sizes().vec(), (Shape{1, 3}));
  EXPECT_ERROR(PReLU()->build_for({-1, -1, 3}), InvalidArgument, "known sizes");
  EXPECT_ERROR(PReLU({.shared_axes = {3}})->build_for({-1, 2, 3}), InvalidArgument, "shared axes");
}

TEST(Softmax, TakesSeveralAxesAndMasks) {
  const Tensor x = wave({2, 3, 2});
  EXPECT_TENSOR_NEAR(Softmax({1, 2})(x), x.flatten(1).softmax(1).view({2, 3, 2}), 1e-6);
  const Tensor mask = at::tensor({1, 1, 0, 1, 0, 0}).view({2, 3}).to(at::kBool);
  const Tensor scores = x.select(2, 0).contiguous();
  EXPECT_TENSOR_NEAR((*Softmax())({scores}, {false, {mask}})[0],
                     at::tensor({0.33266756f, 0.66733241f, 0.f, 1.f, 0.f, 0.f}).view({2, 3}), 1e-6);
  EXPECT_TENSOR_EQ((*Softmax())({scores}, {false, {at::zeros({2, 3}, at::kBool)}})[0],
                   at::zeros({2, 3}));
  EXPECT_ERROR((*Softmax())({x}, {false, {mask}}), InvalidArgument, "broadcast to the input");
}

TEST(Lambda, AppliesAFunctionAndFindsItsShape) {
  const Lambda twice([](const Tensor& x) { return at::cat({x, x * 2}, -1); });
  EXPECT_TENSOR_EQ(twice(at::ones({1, 2})), row({1, 1, 2, 2}));
  EXPECT_EQ(twice->compute_output_shape({-1, 3}), (Shape{-1, 6}));
  EXPECT_EQ(twice->compute_output_shape({-1, -1, 3}), (Shape{-1, -1, 6}));
  const Lambda both([](const std::vector<Tensor>& x) { return x[0] + x[1]; });
  EXPECT_TENSOR_EQ((*both)({at::ones({1, 2}), at::ones({1, 2})}, {})[0], row({2, 2}));
  const Lambda given(
      [](const Tensor& x) {
        return x.view({-1, 1, 2});
      },
      {.output_shape = {{1, 2}}});
  EXPECT_EQ(given->compute_output_shape({-1, 2}), (Shape{-1, 1, 2}));
}

TEST(Lambda, SaysWhatItCannotDo) {
  const Lambda picky([](const Tensor& x) {
    if (x.size(0) != 7) throw std::runtime_error("seven rows");
    return x;
  });
  EXPECT_ERROR(picky->compute_output_shape({-1, 2}), InvalidArgument,
               "seven rows, expected an output; give output_shape");
  EXPECT_ERROR(layer_from_config("Lambda", picky->config()), Unimplemented, "load_weights");
  EXPECT_ERROR((*Lambda([](const Tensor& x) { return x; }, {.output_shape = Shape{2}}))(
                   {at::ones({1, 2}), at::ones({1, 2})}, {}),
               InvalidArgument, "2 inputs for a function of one tensor");
}

TEST(ActivationLayers, AnActivationMayBeAFunctionOrALayer) {
  const Dense dense(2, {.activation = [](const Tensor& x) { return x * 3; },
                        .use_bias = false,
                        .kernel_initializer = "ones"});
  EXPECT_TENSOR_EQ(dense(at::ones({1, 2})), row({6, 6}));
  EXPECT_ERROR(layer_from_config("Dense", dense->config()), InvalidArgument,
               "\"function\", expected one of");
  const Dense leaky(1, {.activation = LeakyReLU(.5), .kernel_initializer = "ones"});
  EXPECT_TENSOR_EQ(leaky(at::full({1, 2}, -1.f)), row({-1}));
}

}  // namespace
}  // namespace tutti::keras::layers
