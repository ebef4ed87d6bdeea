#pragma once
// Input, Dense and the layers that apply a function.

#include <string>

#include "tutti/keras/activations.h"
#include "tutti/keras/layer.h"

namespace tutti::keras {

/// Makes automatic layer names start from the beginning again.
void clear_session();

namespace layers {

struct LayerOptions {
  std::string name = "";
  Shape input_shape = {};
};
/// The shape of one sample, for a Sequential that is to be built at once.
class Input : public Layer {
 public:
  explicit Input(const Shape& shape, const std::string& name = "");
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
