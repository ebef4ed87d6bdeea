#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

Tensor merged(const Layer& layer, const std::vector<Tensor>& inputs,
              const std::vector<Tensor>& masks = {}) {
  return (*layer)(inputs, {false, masks})[0];
}
Tensor numbers(const std::vector<float>& values, const Shape& shape) {
  return at::tensor(values).view(shape);
}

TEST(Merging, WorksElementByElement) {
  const Tensor a = wave({2, 3}), b = wave({2, 3}, 1), c = wave({2, 3}, 2);
  EXPECT_TENSOR_NEAR(merged(Add(), {a, b, c}), a + b + c, 1e-6);
  EXPECT_TENSOR_EQ(merged(Subtract(), {a, b}), a - b);
  EXPECT_TENSOR_NEAR(merged(Multiply(), {a, b, c}), a * b * c, 1e-6);
  EXPECT_TENSOR_NEAR(merged(Average(), {a, b, c}), (a + b + c) / 3, 1e-6);
  EXPECT_TENSOR_EQ(merged(Maximum(), {a, b, c}), at::maximum(at::maximum(a, b), c));
  EXPECT_TENSOR_EQ(merged(Minimum(), {a, b}), at::minimum(a, b));
}

TEST(Merging, FunctionsCallANewLayerOnTensorsAndSymbolicTensors) {
  const Tensor a = wave({2, 3}), b = wave({2, 3}, 1);
  const std::vector<Tensor> both{a, b};
  EXPECT_TENSOR_EQ(add(both), a + b);
  EXPECT_TENSOR_EQ(subtract(both), a - b);
  EXPECT_TENSOR_EQ(multiply(both), a * b);
  EXPECT_TENSOR_EQ(average(both), (a + b) / 2);
  EXPECT_TENSOR_EQ(maximum(both), at::maximum(a, b));
  EXPECT_TENSOR_EQ(minimum({a, b}), at::minimum(a, b));
  EXPECT_TENSOR_EQ(concatenate(both, {.axis = 1}), at::cat({a, b}, 1));
  EXPECT_TENSOR_NEAR(dot(both, 1), (a * b).sum(1, true), 1e-6);
  const Input x({3}), y({3});
  const KerasTensor sum = add({x, y}, {.name = "sum"});
  EXPECT_EQ(sum.layer()->name(), "sum");
  EXPECT_EQ(concatenate({sum, x}).shape(), (Shape{-1, 6}));
  EXPECT_EQ(dot({x, y}, 1).shape(), (Shape{-1, 1}));
  for (const KerasTensor& merged :
       {subtract({x, y}), multiply({x, y}), average({x, y}), maximum({x, y}), minimum({x, y})})
    EXPECT_EQ(merged.shape(), (Shape{-1, 3}));
}

TEST(Merging, BroadcastsAndAddsAxesBehindTheBatch) {
  const Tensor a = wave({2, 3, 4}), b = wave({2, 4}), c = wave({2, 3, 1});
  EXPECT_TENSOR_EQ(merged(Add(), {a, b}), a + b.unsqueeze(1));
  EXPECT_TENSOR_EQ(merged(Multiply(), {c, a}), c * a);
  EXPECT_EQ(Add()->compute_output_shapes({{-1, 3, 4}, {2, 4}, {-1, -1, 1}})[0], (Shape{2, -1, 4}));
}

TEST(Merging, SaysWhichShapesDoNotFit) {
  EXPECT_ERROR(merged(Add(), {wave({2, 3}), wave({2, 4})}), InvalidArgument,
               "shapes (None, 3), (None, 4), expected shapes that broadcast");
  EXPECT_ERROR(merged(Add(), {wave({2, 3})}), InvalidArgument, "at least two inputs");
  EXPECT_ERROR(merged(Subtract(), {wave({2}), wave({2}), wave({2})}), InvalidArgument,
               "exactly two inputs");
  EXPECT_ERROR(merged(Add(), {wave({2, 3}), wave({3, 3})}), InvalidArgument, "batches of one size");
  EXPECT_ERROR(merged(Concatenate(), {wave({2, 3}), wave({3, 3})}), InvalidArgument,
               "agree along all axes but 1");
  EXPECT_ERROR(Concatenate()->build_for({Shape{-1, 3}, Shape{-1, 3, 1}}), InvalidArgument,
               "one rank");
}

// Numbers of Keras 3.15, with masks (1, 0, 1) and (1, 1, 0).
TEST(Merging, MasksGiveWayToTheOtherInputs) {
  const Tensor a = wave({1, 3, 2}), b = wave({1, 3, 2}, 2);
  const std::vector<Tensor> masks = {at::tensor({1, 0, 1}).view({1, 3}).to(at::kBool),
                                     at::tensor({1, 1, 0}).view({1, 3}).to(at::kBool)};
  EXPECT_TENSOR_NEAR(
      merged(Maximum(), {a, b}, masks),
      numbers({0.90929741f, 0.84147102f, -0.25554121f, -0.81827706f, 0.041580759f, -0.61185783f},
              {1, 3, 2}),
      1e-6);
  EXPECT_TENSOR_NEAR(
      merged(Minimum(), {a, b}, masks),
      numbers({0.29552022f, 0.42737985f, -0.25554121f, -0.81827706f, 0.041580759f, -0.61185783f},
              {1, 3, 2}),
      1e-6);
  EXPECT_TENSOR_NEAR(
      merged(Multiply(), {a, b}, masks),
      numbers({0.26871577f, 0.35962775f, -0.25554121f, -0.81827706f, 0.041580759f, -0.61185783f},
              {1, 3, 2}),
      1e-6);
  EXPECT_TENSOR_EQ(merged(Multiply(), {a, b}, {masks[0], masks[0]})[0][1], at::zeros({2}));
  EXPECT_TENSOR_EQ(merged(Add(), {a, b}, masks), a + b);
}

TEST(Merging, AStepCountsWhereAnyInputsDoes) {
  const Tensor a = wave({1, 3, 2});
  const Tensor left = at::tensor({1, 0, 0}).view({1, 3}).to(at::kBool);
  const Tensor right = at::tensor({0, 0, 1}).view({1, 3}).to(at::kBool);
  const CallArguments both{false, {left, right}}, one{false, {left}}, none;
  EXPECT_TENSOR_EQ(Add()->compute_mask({a, a}, both), left.logical_or(right));
  EXPECT_FALSE(Add()->compute_mask({a, a}, one).defined());
  EXPECT_TENSOR_EQ(Concatenate()->compute_mask({a, a}, both), left.logical_or(right));
  EXPECT_TENSOR_EQ(Concatenate()->compute_mask({a, a}, one), at::ones({1, 3}, at::kBool));
  EXPECT_TENSOR_EQ(Concatenate({.axis = 1})->compute_mask({a, a}, both), at::cat({left, right}, 1));
  EXPECT_FALSE(Concatenate()->compute_mask({a, a}, none).defined());
}

TEST(Concatenate, JoinsAlongItsAxis) {
  const Tensor a = wave({2, 3, 4}), b = wave({2, 1, 4});
  EXPECT_TENSOR_EQ(merged(Concatenate({.axis = 1}), {a, b}), at::cat({a, b}, 1));
  EXPECT_TENSOR_EQ(merged(Concatenate({.axis = -2}), {a, b}), at::cat({a, b}, 1));
  EXPECT_EQ(Concatenate({.axis = 1})->compute_output_shapes({{-1, 3, 4}, {-1, -1, 4}})[0],
            (Shape{-1, -1, 4}));
}

TEST(Dot, SumsOverOneAxisOfEach) {
  const Tensor a = wave({2, 3, 4}), b = wave({2, 5, 3}, .9);
  EXPECT_TENSOR_NEAR(merged(Dot({1, 2}), {a, b}), at::einsum("nij,nki->njk", {a, b}), 1e-5);
  EXPECT_TENSOR_NEAR(merged(Dot(-1), {a, a}), at::einsum("nij,nkj->nik", {a, a}), 1e-5);
  // Keras' numbers.
  EXPECT_NEAR(merged(Dot({1, 2}), {a, b})[0][0][1].item<double>(), 0.37545457, 1e-5);
  EXPECT_TENSOR_NEAR(merged(Dot(1, {.normalize = true}), {wave({2, 3}), wave({2, 3}, .9)}),
                     numbers({0.92257911f, 0.65423834f}, {2, 1}), 1e-5);
  EXPECT_TENSOR_NEAR(merged(Dot({1, 2}), {wave({2, 3}), b}),
                     at::einsum("ni,nki->nk", {wave({2, 3}), b}), 1e-5);
  EXPECT_ERROR(merged(Dot(1), {a, b}), InvalidArgument, "as long as");
  EXPECT_ERROR(merged(Dot({0, 1}), {a, b}), InvalidArgument, "other axes than the batch's");
}

}  // namespace
}  // namespace tutti::keras::layers
