#pragma once
// Layers that move, repeat, cut and pad.

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/keras/layers/core.h"
#include "tutti/keras/layers/sizes.h"

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
/// Axes in another order; `dims` counts from 1, behind the batch axis.
class Permute : public Layer {
 public:
  explicit Permute(const std::vector<int64_t>& dims, const LayerOptions& options = {});
};
/// [N, F] → [N, n, F].
class RepeatVector : public Layer {
 public:
  explicit RepeatVector(int64_t n, const LayerOptions& options = {});
};

// Borders have a constructor from pairs of numbers too: nested braces could mean a copy of the
// layer otherwise.

/// Cuts entries off the edges of each axis; InvalidArgument when nothing would be left.
class Cropping1D : public Layer {
 public:
  explicit Cropping1D(Border1 cropping = 1, const LayerOptions& options = {});
};
class Cropping2D : public Layer {
 public:
  explicit Cropping2D(const int64_t (&cropping)[2][2], const LayerOptions& options = {});
  explicit Cropping2D(Border2 cropping = 0, const LayerOptions& options = {});
};
class Cropping3D : public Layer {
 public:
  explicit Cropping3D(const int64_t (&cropping)[3][2], const LayerOptions& options = {});
  explicit Cropping3D(Border3 cropping = 1, const LayerOptions& options = {});
};

/// Zeros around each axis but batch and channels.
class ZeroPadding1D : public Layer {
 public:
  explicit ZeroPadding1D(Border1 padding = 1, const LayerOptions& options = {});
};
class ZeroPadding2D : public Layer {
 public:
  explicit ZeroPadding2D(const int64_t (&padding)[2][2], const LayerOptions& options = {});
  explicit ZeroPadding2D(Border2 padding = 1, const LayerOptions& options = {});
};
class ZeroPadding3D : public Layer {
 public:
  explicit ZeroPadding3D(const int64_t (&padding)[3][2], const LayerOptions& options = {});
  explicit ZeroPadding3D(Border3 padding = 1, const LayerOptions& options = {});
};

/// Each step `size` times.
class UpSampling1D : public Layer {
 public:
  explicit UpSampling1D(int64_t size = 2, const LayerOptions& options = {});
};
struct UpSampling2DOptions {
  /// "nearest" or "bilinear" (half-pixel centres).
  std::string interpolation = "nearest";
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
class UpSampling2D : public Layer {
 public:
  explicit UpSampling2D(Size2 size = 2, const UpSampling2DOptions& options = {});
};
class UpSampling3D : public Layer {
 public:
  explicit UpSampling3D(Size3 size = 2, const LayerOptions& options = {});
};

}  // namespace tutti::keras::layers
