#include "tutti/tensor/flat_buffer.h"

#include <limits>

#include "support/expect.h"

namespace tutti {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

uintptr_t address(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
}

TEST(FlatBuffer, ViewsAreZeroAlignedAndApart) {
  const FlatBuffer buffer({{{3}, {}}, {{2, 5}, {}}, {{}, {}}}, at::kFloat, at::kCPU);
  ASSERT_EQ(buffer.views().size(), 3u);
  EXPECT_EQ(buffer.offset(0), 0);
  EXPECT_EQ(buffer.offset(1), 16);
  EXPECT_EQ(buffer.offset(2), 32);
  EXPECT_EQ(buffer.flat().numel(), 48);
  EXPECT_EQ(buffer.views()[2].dim(), 0);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(address(buffer.views()[i]) % 64, 0u);
    EXPECT_EQ(address(buffer.views()[i]), address(buffer.flat()) + 4 * buffer.offset(i));
  }
  EXPECT_TENSOR_EQ(buffer.flat(), at::zeros({48}));
}

TEST(FlatBuffer, WritingAViewLeavesTheGapsZero) {
  const FlatBuffer buffer({{{3}, {}}, {{2}, {}}}, at::kDouble, at::kCPU);
  buffer.views()[0].fill_(1);
  buffer.views()[1].fill_(2);
  EXPECT_TENSOR_EQ(buffer.flat(),
                   at::tensor({1., 1., 1., 0., 0., 0., 0., 0., 2., 2., 0., 0., 0., 0., 0., 0.}));
}

TEST(FlatBuffer, ViewsHaveTheStridesThatWereAskedFor) {
  const FlatBuffer buffer({{{2, 3}, {1, 2}}, {{2, 3, 4, 5}, {60, 1, 15, 3}}, {{4, 1}, {1, 7}}},
                          at::kFloat, at::kCPU);
  EXPECT_EQ(buffer.views()[0].strides(), at::IntArrayRef({1, 2}));
  EXPECT_TRUE(buffer.views()[1].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(buffer.views()[2].strides(), at::IntArrayRef({1, 7}));
  EXPECT_EQ(buffer.offset(2), 16 + 128);
}

TEST(FlatBuffer, FromTwoMebibytesOnStartsOnAHugePage) {
  const FlatBuffer buffer({{{1 << 19}, {}}, {{5}, {}}}, at::kFloat, at::kCPU);
  EXPECT_EQ(address(buffer.flat()) % (2 << 20), 0u);
  EXPECT_EQ(buffer.flat().count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(buffer.flat().numel(), (1 << 19) + 16);
}

TEST(FlatBuffer, HoldsEmptyViewsAndNoViews) {
  EXPECT_EQ(FlatBuffer({}, at::kFloat, at::kCPU).flat().numel(), 0);
  const FlatBuffer buffer({{{0, 3}, {}}, {{2}, {}}, {{kMax, 0, kMax}, {}}, {{0, 3}, {9, 9}}},
                          at::kFloat, at::kCPU);
  EXPECT_EQ(buffer.views()[0].sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(buffer.views()[2].numel(), 0);
  EXPECT_EQ(buffer.views()[3].numel(), 0);
  EXPECT_EQ(buffer.flat().numel(), 16);
}

TEST(FlatBuffer, EveryDtypeIsAligned) {
  for (at::ScalarType dtype : {at::kBool, at::kHalf, at::kLong, at::kComplexDouble}) {
    const FlatBuffer buffer({{{1}, {}}, {{1}, {}}}, dtype, at::kCPU);
    EXPECT_EQ(buffer.flat().scalar_type(), dtype);
    EXPECT_EQ(address(buffer.views()[1]), address(buffer.flat()) + 64);
  }
}

TEST(FlatBuffer, ViewsKeepTheMemoryAlive) {
  at::Tensor view;
  {
    const FlatBuffer buffer({{{3}, {}}}, at::kFloat, at::kCPU);
    view = buffer.views()[0];
  }
  view.add_(1);
  EXPECT_TENSOR_EQ(view, at::ones({3}));
}

TEST(FlatBuffer, RefusesNegativeSizes) {
  EXPECT_ERROR(FlatBuffer({{{2, -3}, {}}}, at::kFloat, at::kCPU), InvalidArgument,
               "FlatBuffer: sizes (2, -3), expected none below 0");
  EXPECT_ERROR(FlatBuffer({{{0, -3}, {}}}, at::kFloat, at::kCPU), InvalidArgument, "(0, -3)");
}

TEST(FlatBuffer, RefusesStridesWithGapsOrOverlap) {
  using Strides = std::vector<int64_t>;
  for (const Strides& strides : {Strides{4, 1}, {1, 1}, {0, 1}, {3}, {3, 1, 1}, {-3, 1}, {1, 3}}) {
    EXPECT_ERROR(FlatBuffer({{{2, 3}, strides}}, at::kFloat, at::kCPU), InvalidArgument,
                 "for sizes (2, 3), expected a layout without gaps or overlap");
  }
  EXPECT_ERROR(FlatBuffer({{{1, 3}, {-1, 1}}}, at::kFloat, at::kCPU), InvalidArgument,
               "strides (-1, 1)");
}

TEST(FlatBuffer, RefusesSizesBeyond63Bits) {
  EXPECT_ERROR(FlatBuffer({{{kMax, 2}, {}}}, at::kFloat, at::kCPU), InvalidArgument,
               "expected a number of elements that fits in 63 bits");
  EXPECT_ERROR(FlatBuffer({{{kMax / 2}, {}}, {{kMax / 2}, {}}, {{9}, {}}}, at::kByte, at::kCPU),
               InvalidArgument, "3 views, expected a number of elements together that fits");
  EXPECT_ERROR(FlatBuffer({{{kMax / 4}, {}}}, at::kDouble, at::kCPU), InvalidArgument,
               "of Double, expected a number of bytes that fits in 63 bits");
  EXPECT_ERROR(FlatBuffer({{{kMax - 64}, {}}}, at::kByte, at::kCPU), InvalidArgument, "bytes");
}

#ifndef TUTTI_SANITIZED  // a sanitizer ends the program when so much is asked for
TEST(FlatBuffer, SaysHowManyBytesThereWereNot) {
  EXPECT_ERROR(FlatBuffer({{{int64_t{1} << 55}, {}}}, at::kByte, at::kCPU), ResourceExhausted,
               "FlatBuffer: no memory for 36028797018963968 bytes");
}
#endif

TEST(ZerosLikeDense, KeepsSizesDtypeAndDenseStrides) {
  const at::Tensor transposed = at::ones({2, 3}, at::kDouble).t();
  const at::Tensor zeros = zeros_like_dense(transposed);
  EXPECT_EQ(zeros.scalar_type(), at::kDouble);
  EXPECT_EQ(zeros.strides(), transposed.strides());
  EXPECT_EQ(address(zeros) % 64, 0u);
  EXPECT_TENSOR_EQ(zeros, at::zeros({3, 2}, at::kDouble));
  const at::Tensor image = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(zeros_like_dense(image).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(zeros_like_dense(at::scalar_tensor(1)).dim(), 0);
  EXPECT_EQ(zeros_like_dense(at::ones({0, 3})).sizes(), at::IntArrayRef({0, 3}));
}

TEST(ZerosLikeDense, OfALayoutWithGapsOrOverlapIsContiguous) {
  EXPECT_TRUE(zeros_like_dense(at::ones({1}).expand({4})).is_contiguous());
  EXPECT_TRUE(zeros_like_dense(at::ones({4, 4}).narrow(1, 0, 2)).is_contiguous());
}

}  // namespace
}  // namespace tutti
