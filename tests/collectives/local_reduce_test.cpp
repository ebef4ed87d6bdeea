#include "collectives/local_reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using testing::throws_saying;

TEST(LocalReduce, SumsInOrderIntoANewTensor) {
  // 1e8 + 1 is 1e8 in float32, so the order of adding shows.
  const std::vector<Tensor> parts{at::full({2}, 1e8F), at::ones({2}), at::full({2}, -1e8F)};
  EXPECT_TENSOR_EQ(local_reduce(ReduceOp::kSum, parts), at::zeros({2}));
  const std::vector<Tensor> turned{parts[0], parts[2], parts[1]};
  EXPECT_TENSOR_EQ(local_reduce(ReduceOp::kSum, turned), at::ones({2}));
  EXPECT_TENSOR_EQ(parts[0], at::full({2}, 1e8F));
}

TEST(LocalReduce, MeanDividesByTheNumberOfInputs) {
  EXPECT_TENSOR_EQ(
      local_reduce(ReduceOp::kMean, {at::ones({2}), at::zeros({2}), at::ones({2}), at::zeros({2})}),
      at::full({2}, 0.5));
}

TEST(LocalReduce, OneInputIsCopied) {
  const Tensor x = at::ones({2});
  const Tensor sum = local_reduce(ReduceOp::kSum, std::vector<Tensor>{x});
  EXPECT_TENSOR_EQ(sum, x);
  EXPECT_NE(sum.data_ptr(), x.data_ptr());
}

TEST(LocalReduce, TakesTensorsThatAreNotContiguous) {
  const Tensor x = at::arange(6, at::kFloat).reshape({2, 3}).t();
  EXPECT_TENSOR_EQ(local_reduce(ReduceOp::kSum, {x, at::ones({3, 2})}), x + 1);
}

TEST(LocalReduce, HasNoHistory) {
  const Tensor x = at::ones({2}).requires_grad_();
  EXPECT_FALSE(local_reduce(ReduceOp::kSum, {x, x}).requires_grad());
}

TEST(LocalReduce, RefusesWhatDoesNotFit) {
  const auto sum = [](std::vector<Tensor> parts) {
    return [parts] { local_reduce(ReduceOp::kSum, parts); };
  };
  EXPECT_TRUE(throws_saying<InvalidArgument>(sum({}), {"no tensors"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>(sum({at::ones({2}), at::ones({3})}), {"(2,)", "(3,)"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(sum({at::ones({2}), at::ones({2}, at::kInt)}),
                                             {"float32", "int32"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { local_reduce(ReduceOp::kMean, std::vector<Tensor>{at::ones({2}, at::kLong)}); },
      {"MEAN of int64"}));
}

TEST(LocalReduceOfSlices, JoinsTheRows) {
  const IndexedSlices a{at::ones({2, 3}), at::tensor({4, 0}, at::kLong), {5, 3}};
  const IndexedSlices b{at::full({1, 3}, 4.0), at::tensor({4}, at::kLong), {5, 3}};
  const IndexedSlices sum = local_reduce(ReduceOp::kSum, {a, b});
  EXPECT_TENSOR_EQ(sum.indices, at::tensor({4, 0, 4}, at::kLong));
  EXPECT_TENSOR_EQ(sum.to_dense(), a.to_dense() + b.to_dense());
  const IndexedSlices mean = local_reduce(ReduceOp::kMean, {a, b});
  EXPECT_TENSOR_EQ(mean.to_dense(), (a.to_dense() + b.to_dense()) / 2);
  EXPECT_TENSOR_EQ(a.values, at::ones({2, 3}));
}

TEST(LocalReduceOfSlices, MeanOfOneLeavesTheInputAlone) {
  const IndexedSlices a{at::ones({2, 3}), at::tensor({4, 0}, at::kLong), {5, 3}};
  local_reduce(ReduceOp::kMean, std::vector<IndexedSlices>{a}).values.fill_(7);
  EXPECT_TENSOR_EQ(a.values, at::ones({2, 3}));
}

TEST(LocalReduceOfSlices, RefusesWhatDoesNotFit) {
  const IndexedSlices a{at::ones({1, 3}), at::tensor({4}, at::kLong), {5, 3}};
  const IndexedSlices b{at::ones({1, 3}), at::tensor({4}, at::kLong), {6, 3}};
  const IndexedSlices c{at::ones({1, 3}, at::kInt), at::tensor({4}, at::kLong), {5, 3}};
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { local_reduce(ReduceOp::kSum, std::vector<IndexedSlices>{}); }, {"no slices"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        local_reduce(ReduceOp::kSum, {a, b});
      },
      {"(5, 3)", "(6, 3)"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        local_reduce(ReduceOp::kSum, {a, c});
      },
      {"float32", "int32"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        local_reduce(ReduceOp::kMean, {c, c});
      },
      {"MEAN of int32"}));
}

TEST(ReduceRange, TouchesItsEntriesOnly) {
  Tensor a = at::arange(10000, at::kFloat);
  Tensor b = at::arange(10000, at::kFloat) * 3;
  Tensor wanted = a.clone();
  wanted.slice(0, 17, 9001).copy_((a + b).slice(0, 17, 9001) / 2);
  // In place in one input, and in a third buffer.
  Tensor c = a.clone();
  ASSERT_TRUE(reduce_range(ReduceOp::kMean, at::kFloat, {a.data_ptr(), b.data_ptr()},
                           {a.data_ptr(), c.data_ptr()}, 17, 9001));
  EXPECT_TENSOR_EQ(a, wanted);
  EXPECT_TENSOR_EQ(c, wanted);
  EXPECT_TENSOR_EQ(b, at::arange(10000, at::kFloat) * 3);
}

TEST(ReduceRange, IntegersWrapRoundAsTensorsDo) {
  Tensor a = at::full({3}, std::numeric_limits<int32_t>::max(), at::kInt);
  Tensor b = at::ones({3}, at::kInt);
  const Tensor wanted = local_reduce(ReduceOp::kSum, {a, b});
  ASSERT_TRUE(
      reduce_range(ReduceOp::kSum, at::kInt, {a.data_ptr(), b.data_ptr()}, {a.data_ptr()}, 0, 3));
  EXPECT_TENSOR_EQ(a, wanted);
}

TEST(ReduceRange, SaysWhenADtypeHasNoLoop) {
  Tensor a = at::ones({3}, at::kComplexFloat);
  EXPECT_FALSE(reduce_range(ReduceOp::kSum, at::kComplexFloat, {a.data_ptr(), a.data_ptr()},
                            {a.data_ptr()}, 0, 3));
  EXPECT_TRUE(at::equal(a, at::ones({3}, at::kComplexFloat)));
}

}  // namespace
}  // namespace tutti::collectives
