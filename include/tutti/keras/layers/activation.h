#pragma once
// Activations that have arguments or weights, as layers.

#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

struct ReLUOptions {
  std::optional<double> max_value = std::nullopt;
  double negative_slope = 0;
  double threshold = 0;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// activations::relu; none of the numbers may be negative.
class ReLU : public Layer {
 public:
  explicit ReLU(const ReLUOptions& options = {});
};

/// x, or negative_slope * x below 0.
class LeakyReLU : public Layer {
 public:
  explicit LeakyReLU(double negative_slope = 0.3, const LayerOptions& options = {});
};

/// x, or alpha * (exp(x) - 1) below 0.
class ELU : public Layer {
 public:
  explicit ELU(double alpha = 1, const LayerOptions& options = {});
};

struct PReLUOptions {
  Initializer alpha_initializer = initializers::Zeros();
  Regularizer alpha_regularizer = {};
  Constraint alpha_constraint = {};
  /// Axes (1 is the first behind the batch) along which alpha is one number: {1, 2} behind a Conv2D
  /// makes it one a channel.
  std::vector<int64_t> shared_axes = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// x, or alpha * x below 0, where alpha is a weight of the shape of one sample.
class PReLU : public Layer {
 public:
  explicit PReLU(const PReLUOptions& options = {});
};

/// Over one axis, or over several together. Where a mask that broadcasts to the input is false, the
/// output is 0.
class Softmax : public Layer {
 public:
  explicit Softmax(std::vector<int64_t> axis = {-1}, const LayerOptions& options = {});
  explicit Softmax(int64_t axis, const LayerOptions& options = {})
      : Softmax(std::vector<int64_t>{axis}, options) {}
};

}  // namespace tutti::keras::layers
