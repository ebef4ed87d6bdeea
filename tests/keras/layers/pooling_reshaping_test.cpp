#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

Tensor numbers(const std::vector<float>& values, const Shape& shape) {
  return at::tensor(values).view(shape);
}

// ---- pooling: numbers of Keras 3.15

TEST(Pooling, OfSequencesAndVolumesGivesKerasNumbers) {
  EXPECT_TENSOR_NEAR(
      MaxPooling1D(3, {.strides = 2, .padding = "same"})(wave({1, 6, 2})),
      numbers({0.99166483f, 0.84147102f, 0.041580759f, 0.31154129f, 0.85043675f, 0.98935825f},
              {1, 3, 2}),
      1e-6);
  EXPECT_TENSOR_NEAR(
      AveragePooling1D(3, {.strides = 2, .padding = "same"})(wave({1, 6, 2})),
      numbers({0.44292197f, 0.30169219f, -0.43660864f, -0.39459035f, 0.23828009f, 0.65044975f},
              {1, 3, 2}),
      1e-6);
  EXPECT_TENSOR_NEAR(AveragePooling3D(2, {.padding = "same"})(wave({1, 3, 2, 2, 1})),
                     numbers({0.046607196f, 0.44436494f}, {1, 2, 1, 1, 1}), 1e-6);
  EXPECT_TENSOR_NEAR(MaxPooling3D({2, 1, 2})(wave({1, 3, 2, 2, 1})),
                     numbers({0.84147102f, 0.99166483f}, {1, 1, 2, 1, 1}), 1e-6);
}

TEST(Pooling, HasItsSecondNames) {
  EXPECT_EQ(MaxPool2D()->class_name(), "MaxPooling2D");
  EXPECT_EQ(GlobalAvgPool1D()->class_name(), "GlobalAveragePooling1D");
  EXPECT_ERROR(MaxPooling3D(0), InvalidArgument, "pool_size 0");
  EXPECT_ERROR(AveragePooling1D(2, {.padding = "causal"}), InvalidArgument, "\"causal\"");
}

TEST(GlobalPooling, KeepsAxesWhenAsked) {
  const Tensor x = wave({2, 3, 4, 5});
  EXPECT_TENSOR_EQ(GlobalMaxPooling2D()(x), x.amax({1, 2}));
  EXPECT_TENSOR_EQ(GlobalMaxPooling2D({.keepdims = true})(x), x.amax({1, 2}, true));
  EXPECT_TENSOR_EQ(GlobalAveragePooling2D({.keepdims = true})(x), x.mean({1, 2}, true));
  EXPECT_TENSOR_EQ(GlobalAveragePooling3D()(x.unsqueeze(0)), x.mean({0, 1, 2}).unsqueeze(0));
}

TEST(GlobalPooling, AMaskLeavesStepsOutOfTheMean) {
  const Tensor mask = at::tensor({1, 1, 0, 1, 0, 0}).view({2, 3}).to(at::kBool);
  const GlobalAveragePooling1D mean;
  const Tensor x = wave({2, 3, 2});
  const CallArguments arguments{false, {mask}};
  EXPECT_TENSOR_NEAR((*mean)({x}, arguments)[0],
                     numbers({0.64359254f, 0.7584672f, -0.97753012f, -0.8834545f}, {2, 2}), 1e-6);
  EXPECT_FALSE(mean->compute_mask({x}, arguments).defined());
  const CallArguments none{false, {at::zeros({2, 3}, at::kBool)}};
  EXPECT_TENSOR_EQ((*mean)({x}, none)[0], at::zeros({2, 2}));
}

// ---- reshaping

TEST(Permute, CountsFromOneBehindTheBatch) {
  const Tensor x = wave({2, 3, 4, 5});
  EXPECT_TENSOR_EQ(Permute({3, 1, 2})(x), x.permute({0, 3, 1, 2}));
  EXPECT_EQ(Permute({3, 1, 2})->compute_output_shape({-1, 3, 4, 5}), (Shape{-1, 5, 3, 4}));
  EXPECT_ERROR(Permute({0, 1}), InvalidArgument, "each number from 1 to 2 once");
  EXPECT_ERROR(Permute({2, 1})(x), InvalidArgument, "expected rank 3");
}

TEST(RepeatVector, RepeatsRows) {
  EXPECT_TENSOR_EQ(RepeatVector(2)(at::tensor({1.f, 2.f}).view({1, 2})),
                   numbers({1, 2, 1, 2}, {1, 2, 2}));
  EXPECT_ERROR(RepeatVector(0), InvalidArgument, "n 0");
}

TEST(Cropping, CutsEachEdge) {
  const Tensor x = wave({1, 4, 5, 1});
  EXPECT_TENSOR_EQ(Cropping2D({{1, 0}, {0, 2}})(x), x.narrow(1, 1, 3).narrow(2, 0, 3));
  EXPECT_TENSOR_EQ(Cropping2D()(x), x);
  EXPECT_TENSOR_EQ(Cropping1D()(x.squeeze(0)), x.squeeze(0).narrow(1, 1, 3));
  EXPECT_ERROR(Cropping2D(2)(x), InvalidArgument, "at least one to be left");
  EXPECT_ERROR(Cropping1D({-1, 0}), InvalidArgument, "expected 0 or more");
}

TEST(ZeroPadding, AddsToEachEdge) {
  const Tensor x = at::ones({1, 2, 1});
  EXPECT_TENSOR_EQ(ZeroPadding1D({2, 1})(x), numbers({0, 0, 1, 1, 0}, {1, 5, 1}));
  EXPECT_EQ(ZeroPadding3D({1, 0, 2})(at::ones({1, 1, 1, 1, 2})).sizes().vec(),
            (Shape{1, 3, 1, 5, 2}));
  EXPECT_EQ(ZeroPadding2D({1, 2})->compute_output_shape({-1, 4, -1, 2}), (Shape{-1, 6, -1, 2}));
}

TEST(UpSampling, RepeatsOrInterpolates) {
  const Tensor x = at::tensor({1.f, 2.f, 3.f, 4.f}).view({1, 2, 2, 1});
  EXPECT_TENSOR_EQ(UpSampling2D({1, 2})(x), numbers({1, 1, 2, 2, 3, 3, 4, 4}, {1, 2, 4, 1}));
  EXPECT_TENSOR_EQ(UpSampling1D(2)(x.view({1, 2, 2})),
                   numbers({1, 2, 1, 2, 3, 4, 3, 4}, {1, 4, 2}));
  EXPECT_TENSOR_EQ(UpSampling3D({2, 1, 1})(x.view({1, 2, 1, 2, 1})),
                   numbers({1, 2, 1, 2, 3, 4, 3, 4}, {1, 4, 1, 2, 1}));
  EXPECT_TENSOR_NEAR(
      UpSampling2D({2, 3}, {.interpolation = "bilinear"})(wave({1, 2, 2, 1})),
      numbers({0.29552022f, 0.29552022f, 0.47750384f, 0.65948749f, 0.84147102f, 0.84147102f,
               0.46955639f, 0.46955639f, 0.57969397f, 0.68983155f, 0.79996908f, 0.79996908f,
               0.81762868f, 0.81762868f, 0.78407419f, 0.75051975f, 0.71696526f, 0.71696526f,
               0.99166483f, 0.99166483f, 0.88626432f, 0.78086382f, 0.67546332f, 0.67546332f},
              {1, 4, 6, 1}),
      1e-6);
  EXPECT_ERROR(UpSampling2D(2, {.interpolation = "cubic"}), InvalidArgument,
               "\"cubic\", expected \"nearest\" or \"bilinear\"");
}

}  // namespace
}  // namespace tutti::keras::layers
