#pragma once
// Numbers to try layers on: the same everywhere, hardly two alike.

#include <ATen/ATen.h>

#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

inline Tensor wave(const Shape& shape, double from = 0.3) {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return at::sin(at::arange(numel, at::kFloat) * 0.7 + from).view(shape);
}

}  // namespace tutti::keras::layers
