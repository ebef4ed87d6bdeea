#pragma once
// Sizes of windows and strides, and what is added or cut at the edges.

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
/// Depth, height and width; one number means all.
struct Size3 {
  int64_t depth;
  int64_t height;
  int64_t width;
  Size3(int64_t all) : depth(all), height(all), width(all) {}  // NOLINT
  Size3(int64_t depth, int64_t height, int64_t width)
      : depth(depth), height(height), width(width) {}
  bool operator==(const Size3&) const = default;
};

/// Entries before and behind one axis; one number means both.
struct Border1 {
  int64_t before;
  int64_t after;
  Border1(int64_t both) : before(both), after(both) {}  // NOLINT: ZeroPadding1D(1)
  Border1(int64_t before, int64_t after) : before(before), after(after) {}
  bool operator==(const Border1&) const = default;
};
/// Around images: `1`, `{1, 2}` rows and columns on either side, `{{1, 0}, {2, 1}}` {top, bottom}
/// and {left, right}.
struct Border2 {
  Border1 rows;
  Border1 columns;
  Border2(int64_t all) : rows(all), columns(all) {}  // NOLINT
  Border2(Border1 rows, Border1 columns) : rows(rows), columns(columns) {}
  bool operator==(const Border2&) const = default;
};
/// Around volumes, in the same three ways.
struct Border3 {
  Border1 planes;
  Border1 rows;
  Border1 columns;
  Border3(int64_t all) : planes(all), rows(all), columns(all) {}  // NOLINT
  Border3(Border1 planes, Border1 rows, Border1 columns)
      : planes(planes), rows(rows), columns(columns) {}
  bool operator==(const Border3&) const = default;
};

}  // namespace tutti::keras::layers
