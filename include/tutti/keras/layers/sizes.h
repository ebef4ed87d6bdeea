#pragma once
// Sizes of windows, strides and borders.

#include <cstdint>

namespace tutti::keras::layers {

/// Height and width; one number means both.
struct Size2 {
  int64_t height;
  int64_t width;
  Size2(int64_t both) : height(both), width(both) {}  // NOLINT: Conv2D(32, 3)
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
  bool operator==(const Size2&) const = default;
};

}  // namespace tutti::keras::layers
