#pragma once
// Convolutions over channels-last images and sequences.

#include <cstdint>
#include <string>

#include "tutti/keras/activations.h"
#include "tutti/keras/layer.h"
#include "tutti/keras/layers/sizes.h"

namespace tutti::keras::layers {

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

}  // namespace tutti::keras::layers
