#pragma once
// Expectations on tensors.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::testing {

/// Same dtype, same sizes, same values.
inline ::testing::AssertionResult tensors_equal(const at::Tensor& got, const at::Tensor& wanted) {
  const auto text = [](const at::Tensor& tensor) {
    return cat(dtype_name(tensor.scalar_type()), " ", shape_text(tensor.sizes()));
  };
  if (got.scalar_type() != wanted.scalar_type() || got.sizes() != wanted.sizes()) {
    return ::testing::AssertionFailure() << text(got) << ", expected " << text(wanted);
  }
  if (at::equal(got, wanted)) return ::testing::AssertionSuccess();
  const int64_t first = at::ne(got, wanted).flatten().nonzero()[0].item<int64_t>();
  return ::testing::AssertionFailure() << text(got) << " differs first at entry " << first << ": "
                                       << got.flatten()[first].item().toDouble() << ", expected "
                                       << wanted.flatten()[first].item().toDouble();
}

}  // namespace tutti::testing

#define EXPECT_TENSOR_EQ(got, wanted) EXPECT_TRUE(::tutti::testing::tensors_equal((got), (wanted)))
#define ASSERT_TENSOR_EQ(got, wanted) ASSERT_TRUE(::tutti::testing::tensors_equal((got), (wanted)))
