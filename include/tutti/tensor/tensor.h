#pragma once
// The tensor type of the library is LibTorch's.

#include <ATen/core/Tensor.h>

namespace tutti {

using Tensor = at::Tensor;

}  // namespace tutti
