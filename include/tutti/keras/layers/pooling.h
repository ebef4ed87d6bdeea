#pragma once
// Pooling over channels-last sequences, images and volumes.

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/keras/layers/core.h"
#include "tutti/keras/layers/sizes.h"

namespace tutti::keras::layers {

template <class Size>
struct PoolingOptions {
  /// Unset: the pool size.
  std::optional<Size> strides = std::nullopt;
  std::string padding = "valid";
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
using Pooling1DOptions = PoolingOptions<int64_t>;
using Pooling2DOptions = PoolingOptions<Size2>;
using Pooling3DOptions = PoolingOptions<Size3>;

class MaxPooling1D : public Layer {
 public:
  explicit MaxPooling1D(int64_t pool_size = 2, const Pooling1DOptions& options = {});
};
class MaxPooling2D : public Layer {
 public:
  explicit MaxPooling2D(Size2 pool_size = 2, const Pooling2DOptions& options = {});
};
class MaxPooling3D : public Layer {
 public:
  explicit MaxPooling3D(Size3 pool_size = 2, const Pooling3DOptions& options = {});
};
/// With "same", the mean is over the entries inside.
class AveragePooling1D : public Layer {
 public:
  explicit AveragePooling1D(int64_t pool_size = 2, const Pooling1DOptions& options = {});
};
class AveragePooling2D : public Layer {
 public:
  explicit AveragePooling2D(Size2 pool_size = 2, const Pooling2DOptions& options = {});
};
class AveragePooling3D : public Layer {
 public:
  explicit AveragePooling3D(Size3 pool_size = 2, const Pooling3DOptions& options = {});
};

struct GlobalPoolingOptions {
  /// Leaves axes of size 1.
  bool keepdims = false;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Mean over steps; a mask leaves out the steps where it is false, and without any step the mean is
/// 0.
class GlobalAveragePooling1D : public Layer {
 public:
  explicit GlobalAveragePooling1D(const GlobalPoolingOptions& options = {});
};
/// Mean over height and width.
class GlobalAveragePooling2D : public Layer {
 public:
  explicit GlobalAveragePooling2D(const GlobalPoolingOptions& options = {});
};
/// Mean over depth, height and width.
class GlobalAveragePooling3D : public Layer {
 public:
  explicit GlobalAveragePooling3D(const GlobalPoolingOptions& options = {});
};
/// Largest entry over steps.
class GlobalMaxPooling1D : public Layer {
 public:
  explicit GlobalMaxPooling1D(const GlobalPoolingOptions& options = {});
};
/// Largest entry over height and width.
class GlobalMaxPooling2D : public Layer {
 public:
  explicit GlobalMaxPooling2D(const GlobalPoolingOptions& options = {});
};
/// Largest entry over depth, height and width.
class GlobalMaxPooling3D : public Layer {
 public:
  explicit GlobalMaxPooling3D(const GlobalPoolingOptions& options = {});
};

/// To `output_size` entries whatever the input's: entry i of n is the mean over the steps from
/// floor(i L / n) to ceil((i + 1) L / n) of L.
class AdaptiveAveragePooling1D : public Layer {
 public:
  explicit AdaptiveAveragePooling1D(int64_t output_size, const LayerOptions& options = {});
};
class AdaptiveAveragePooling2D : public Layer {
 public:
  explicit AdaptiveAveragePooling2D(Size2 output_size, const LayerOptions& options = {});
};
class AdaptiveAveragePooling3D : public Layer {
 public:
  explicit AdaptiveAveragePooling3D(Size3 output_size, const LayerOptions& options = {});
};
/// The largest entry in each of the same windows.
class AdaptiveMaxPooling1D : public Layer {
 public:
  explicit AdaptiveMaxPooling1D(int64_t output_size, const LayerOptions& options = {});
};
class AdaptiveMaxPooling2D : public Layer {
 public:
  explicit AdaptiveMaxPooling2D(Size2 output_size, const LayerOptions& options = {});
};
class AdaptiveMaxPooling3D : public Layer {
 public:
  explicit AdaptiveMaxPooling3D(Size3 output_size, const LayerOptions& options = {});
};

using MaxPool1D = MaxPooling1D;
using AvgPool1D = AveragePooling1D;
using GlobalMaxPool1D = GlobalMaxPooling1D;
using GlobalAvgPool1D = GlobalAveragePooling1D;
using MaxPool2D = MaxPooling2D;
using AvgPool2D = AveragePooling2D;
using GlobalMaxPool2D = GlobalMaxPooling2D;
using GlobalAvgPool2D = GlobalAveragePooling2D;
using MaxPool3D = MaxPooling3D;
using AvgPool3D = AveragePooling3D;
using GlobalMaxPool3D = GlobalMaxPooling3D;
using GlobalAvgPool3D = GlobalAveragePooling3D;

}  // namespace tutti::keras::layers
