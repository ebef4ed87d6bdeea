#pragma once
// Expectations on tensors and on errors.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "support/expect_error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/printing.h"

namespace tutti::testing {

/// |a - b| <= absolute + relative |b| everywhere, sizes equal; NaN equals NaN.
inline ::testing::AssertionResult tensors_near(const at::Tensor& a, const at::Tensor& b,
                                               double relative, double absolute) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined() ? ::testing::AssertionSuccess()
                                      : ::testing::AssertionFailure() << "one is undefined";
  }
  if (a.sizes() != b.sizes()) {
    return ::testing::AssertionFailure()
           << "shapes " << shape_text(a.sizes()) << " and " << shape_text(b.sizes());
  }
  const at::Tensor x = a.detach().to(at::kDouble);
  const at::Tensor y = b.detach().to(at::kDouble);
  if (at::allclose(x, y, relative, absolute, /*equal_nan=*/true))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(a) << "\nand\n" << to_string(b);
}

}  // namespace tutti::testing

#define EXPECT_TENSOR_EQ(a, b) EXPECT_TRUE(::tutti::testing::tensors_near((a), (b), 0, 0))
#define EXPECT_TENSOR_NEAR(a, b, tolerance) \
  EXPECT_TRUE(::tutti::testing::tensors_near((a), (b), (tolerance), (tolerance)))
