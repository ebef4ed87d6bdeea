#pragma once
// The layers, with Keras' names, argument orders, defaults and channels-last shapes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/activations.h"
#include "tutti/keras/layer.h"

namespace tutti::keras {

/// Makes automatic layer names start from the beginning again.
void clear_session();

namespace layers {

/// Height and width; one number means both.
struct Size2 {
  int64_t height;
  int64_t width;
  Size2(int64_t both) : height(both), width(both) {}  // NOLINT: Conv2D(32, 3)
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
  bool operator==(const Size2&) const = default;
};

struct DenseOptions {
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  std::string name = "";
  Shape input_shape = {};
};
/// activation(x kernel + bias) over the last axis; kernel [in, units].
class Dense : public Layer {
 public:
  explicit Dense(int64_t units, const DenseOptions& options = {});
};

struct Conv2DOptions {
  Size2 strides = 1;
  std::string padding = "valid";
  Size2 dilation_rate = 1;
  int64_t groups = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  std::string name = "";
  Shape input_shape = {};
};
/// [N, H, W, C] → [N, H', W', filters]; kernel [h, w, C / groups, filters]. "same" pads the extra
/// row and column at the end.
class Conv2D : public Layer {
 public:
  Conv2D(int64_t filters, Size2 kernel_size, const Conv2DOptions& options = {});
};

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

struct LayerOptions {
  std::string name = "";
  Shape input_shape = {};
};
/// Mean over height and width.
class GlobalAveragePooling2D : public Layer {
 public:
  explicit GlobalAveragePooling2D(const LayerOptions& options = {});
};
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

struct DropoutOptions {
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// In training, zeroes a share `rate` of the entries and scales the rest by 1 / (1 - rate). Draws
/// from the replica's generator, or with a seed from a stream of its own: masks are a function of
/// seed, step and replica (tutti/base/seed.h).
class Dropout : public Layer {
 public:
  explicit Dropout(double rate, const DropoutOptions& options = {});
};

struct BatchNormalizationOptions {
  int64_t axis = -1;
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  std::string name = "";
  /// True: the statistics of a step are those of all replicas' rows together, exact for uneven
  /// batches. False: each replica's own.
  bool synchronized = false;
  Shape input_shape = {};
};
/// Normalises the last axis. Moving statistics are those of the biased variance; each replica keeps
/// its own and evaluates with it, outside replicas and in files they are the first one's;
/// `set_weights(get_weights())` gives every replica the first one's. Synchronized, they are the
/// same everywhere. An empty batch changes nothing.
class BatchNormalization : public Layer {
 public:
  explicit BatchNormalization(const BatchNormalizationOptions& options = {});
};

class ActivationLayer : public Layer {
 public:
  explicit ActivationLayer(const keras::Activation& activation, const LayerOptions& options = {});
};
/// Keras' name of the layer; the function type is keras::Activation.
using Activation = ActivationLayer;

struct RescalingOptions {
  double offset = 0;
  std::string name = "";
  Shape input_shape = {};
};
/// x * scale + offset.
class Rescaling : public Layer {
 public:
  explicit Rescaling(double scale, const RescalingOptions& options = {});
};

}  // namespace layers
}  // namespace tutti::keras
