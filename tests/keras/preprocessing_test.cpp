// Layers that get numbers and images ready: what Keras' numbers (keras_layers_test.cpp) do not say.

#include "tutti/keras/layers/preprocessing.h"

#include "keras/line_model.h"
#include "keras/wave.h"

namespace tutti::keras::layers {
namespace {

using testing::replicas;

data::Dataset<Tensor> rows_in_batches(const Tensor& rows, int64_t size) {
  return data::from_tensor_slices(rows).batch(size);
}

// ---- Normalization

TEST(Normalization, AdaptsToADatasetAsToItsTensor) {
  const Tensor rows = wave({11, 3}) * 5 + 2;
  const Normalization whole, batches, pairs, singles;
  whole.adapt(rows);
  batches.adapt(rows_in_batches(rows, 4));
  pairs.adapt(data::from_tensor_slices(rows, at::arange(11)).batch(3));
  singles.adapt(data::from_tensor_slices(rows));
  EXPECT_TENSOR_NEAR(whole(rows).mean(0), at::zeros({3}), 1e-5);
  EXPECT_TENSOR_NEAR(whole(rows).square().mean(0), at::ones({3}), 1e-5);
  for (const Normalization& other : {batches, pairs, singles})
    EXPECT_TENSOR_NEAR(other(rows), whole(rows), 1e-6);
}

TEST(Normalization, HasKerasWeightsThatAreNotTrained) {
  const Normalization layer({.name = "n"});
  layer.adapt(wave({7, 2}));
  std::vector<std::string> names;
  for (const Variable& weight : layer->weights()) names.push_back(weight.name());
  EXPECT_EQ(names, (std::vector<std::string>{"n/mean", "n/variance", "n/count"}));
  EXPECT_TRUE(layer->trainable_weights().empty());
  EXPECT_EQ(layer->weights()[2].value().item<int64_t>(), 7);
}

TEST(Normalization, AdaptsAnewFromTheBeginning) {
  const Normalization layer, other;
  layer.adapt(wave({5, 2}) * 100);
  layer.adapt(wave({9, 2}));
  other.adapt(wave({9, 2}));
  EXPECT_TENSOR_EQ(layer(wave({3, 2})), other(wave({3, 2})));
}

TEST(Normalization, TakesOneSampleWithoutBatchAxis) {
  const Normalization layer;
  layer.adapt(wave({5, 3}));
  EXPECT_TENSOR_NEAR(layer(wave({4, 3})[2]), layer(wave({4, 3}))[2], 1e-6);
  const auto mapped =
      rows_in_batches(wave({4, 3}), 2).unbatch().map([&](const Tensor& row) { return layer(row); });
  EXPECT_TENSOR_NEAR(mapped.iterator().get_next(), layer(wave({4, 3}))[0], 1e-6);
}

/// Before the scope, in it, and in replicas: one answer.
TEST(Normalization, GivesTheSameInsideAndOutsideReplicas) {
  const Tensor rows = wave({6, 2}) * 3 + 1;
  const Normalization outside;
  outside.adapt(rows);
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const Normalization inside;
  inside.adapt(rows);
  EXPECT_TENSOR_EQ(inside(rows), outside(rows));
  const auto results = strategy->run([&] { return inside(rows); });
  EXPECT_TENSOR_EQ(results[0], outside(rows));
  EXPECT_TENSOR_EQ(results[1], outside(rows));
  EXPECT_ERROR(strategy->run([&] { inside.adapt(rows); }), FailedPrecondition, "outside replicas");
}

TEST(Normalization, StandsInAModel) {
  const Normalization layer({.input_shape = {2}});
  const Tensor rows = wave({8, 2}) * 3 + 1;
  layer.adapt(rows);
  Sequential model({layer, Dense(1)});
  EXPECT_EQ(model.trainable_variables().size(), 2);
  EXPECT_TENSOR_NEAR(model(rows), model.layers()[1](layer(rows)), 1e-6);
}

TEST(Normalization, SaysWhatItCannotTake) {
  EXPECT_ERROR(Normalization({.mean = {1}}), InvalidArgument, "1 means and 0 variances");
  EXPECT_ERROR(Normalization({.axis = {3}})(at::ones({2, 2})), InvalidArgument, "axis 3");
  EXPECT_ERROR(Normalization({.mean = {1}, .variance = {1}}).adapt(at::ones({2, 2})),
               InvalidArgument, "were given");
  EXPECT_ERROR(Normalization().adapt(at::empty({0, 2})), InvalidArgument, "no numbers");
  EXPECT_ERROR(Normalization().adapt(rows_in_batches(at::ones({2, 2}), 1).take(0)), InvalidArgument,
               "without elements");
  EXPECT_ERROR(Normalization().adapt(rows_in_batches(at::ones({2, 2}), 1).repeat()),
               InvalidArgument, "give steps");
  const Normalization layer;
  layer.adapt(rows_in_batches(wave({6, 2}), 2).repeat(), 3);
  EXPECT_ERROR(layer.adapt(wave({2, 3})), InvalidArgument, "as the layer was built");
  EXPECT_ERROR(Normalization(Layer(Dense(1))), InvalidArgument, "Normalization: Dense");
}

// ---- CategoryEncoding and Discretization

TEST(CategoryEncoding, NamesIndicesOutOfRange) {
  const CategoryEncoding layer(3, {.name = "c"});
  EXPECT_ERROR(layer(at::tensor({0, 3})), InvalidArgument, "expected 0 or more and below 3");
  EXPECT_ERROR(layer(at::tensor({-1})), InvalidArgument, "from -1");
  EXPECT_ERROR(CategoryEncoding(0), InvalidArgument, "num_tokens 0");
  EXPECT_ERROR(CategoryEncoding(3, {.output_mode = "int"}), InvalidArgument, "output_mode");
  EXPECT_EQ(layer(at::empty({0, 2}, at::kLong)).sizes().vec(), (Shape{0, 3}));
}

TEST(Discretization, KeepsWhatItLearnedInItsConfig) {
  const Discretization layer({.num_bins = 4});
  EXPECT_ERROR(layer(at::ones({1, 2})), FailedPrecondition, "no bins yet");
  layer.adapt(rows_in_batches(wave({200, 1}), 50));
  EXPECT_EQ(layer.bin_boundaries().size(), 3);
  const Discretization again(layer_from_config(layer->class_name(), layer->config()));
  EXPECT_TENSOR_EQ(again(wave({9, 1})), layer(wave({9, 1})));
  EXPECT_EQ(layer(wave({9, 1})).scalar_type(), at::kInt);
  again.adapt(wave({10, 1}));
}

TEST(Discretization, SaysWhatItCannotTake) {
  EXPECT_ERROR(Discretization(DiscretizationOptions{}), InvalidArgument, "neither");
  EXPECT_ERROR(Discretization({.bin_boundaries = {1, 0}}), InvalidArgument, "rising");
  EXPECT_ERROR(Discretization({.bin_boundaries = {1}}).adapt(at::ones({2})), InvalidArgument,
               "were given");
}

TEST(Discretization, PutsEverythingIntoOneBin) {
  const Discretization layer({.num_bins = 1});
  layer.adapt(wave({10}));
  EXPECT_TENSOR_EQ(layer(wave({4})), at::zeros({4}, at::kInt));
}

// ---- images

TEST(Resizing, TakesOneImageAndMemoryOfAnyOrder) {
  const Resizing layer(3, 5);
  const Tensor images = wave({2, 4, 6, 3});
  EXPECT_TENSOR_NEAR(layer(images[1]), layer(images)[1], 1e-6);
  const Tensor other = images.permute({0, 3, 1, 2}).contiguous().permute({0, 2, 3, 1});
  EXPECT_TENSOR_NEAR(layer(other), layer(images), 1e-6);
  EXPECT_EQ(layer(at::zeros({1, 2, 2, 1}, at::kByte)).scalar_type(), at::kByte);
  EXPECT_ERROR(layer(at::ones({2, 2})), InvalidArgument, "or one image");
  EXPECT_ERROR(Resizing(0, 2), InvalidArgument, "height 0");
  EXPECT_ERROR(Resizing(2, 2, {.interpolation = "bicubic"}), InvalidArgument, "interpolation");
}

TEST(CenterCrop, IsAViewOfTheMiddle) {
  const Tensor images = wave({1, 5, 7, 2});
  const CenterCrop layer(3, 4);
  EXPECT_TENSOR_EQ(layer(images), images.narrow(1, 1, 3).narrow(2, 1, 4));
  EXPECT_EQ(layer->compute_output_shape({-1, 5, 7, 2}), (Shape{-1, 3, 4, 2}));
}

}  // namespace
}  // namespace tutti::keras::layers
