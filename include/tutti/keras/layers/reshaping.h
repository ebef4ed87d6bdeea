#pragma once
// Layers that move, repeat, cut and pad.

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

/// All but the batch axis in one, channels last.
class Flatten : public Layer {
 public:
  explicit Flatten(const LayerOptions& options = {});
};
/// `target` without the batch axis; one entry may be -1.
class Reshape : public Layer {
 public:
  explicit Reshape(const Shape& target, const LayerOptions& options = {});
};

}  // namespace tutti::keras::layers
