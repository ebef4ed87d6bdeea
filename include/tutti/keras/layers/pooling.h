#pragma once
// Pooling over channels-last images and sequences.

#include <optional>
#include <string>

#include "tutti/keras/layers/core.h"
#include "tutti/keras/layers/sizes.h"

namespace tutti::keras::layers {

struct Pooling2DOptions {
  /// Unset: the pool size.
  std::optional<Size2> strides = std::nullopt;
  std::string padding = "valid";
  std::string name = "";
  Shape input_shape = {};
};
class MaxPooling2D : public Layer {
 public:
  explicit MaxPooling2D(Size2 pool_size = 2, const Pooling2DOptions& options = {});
};
/// With "same", the mean is over the entries inside the image.
class AveragePooling2D : public Layer {
 public:
  explicit AveragePooling2D(Size2 pool_size = 2, const Pooling2DOptions& options = {});
};

/// Mean over height and width.
class GlobalAveragePooling2D : public Layer {
 public:
  explicit GlobalAveragePooling2D(const LayerOptions& options = {});
};

}  // namespace tutti::keras::layers
