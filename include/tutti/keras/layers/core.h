#pragma once
// Dense and the layers that apply a function.
//
// Every options struct ends with
//   name         empty: the class' name in snake case, counted
//   trainable    false: as set_trainable(false)
//   dtype        a dtype policy by name; empty: the global one
//   input_shape  of one sample; empty: unknown until the first call

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/activations.h"
#include "tutti/keras/constraints.h"
#include "tutti/keras/layer.h"

namespace tutti::keras {

/// Makes automatic layer names start from the beginning again.
void clear_session();

namespace layers {

struct LayerOptions {
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
using InputLayer = Input;

struct DenseOptions {
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  /// Of the output of each call, divided by the rows of its batch (LayerImpl::losses).
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// activation(x kernel + bias) over the last axis; kernel [in, units].
class Dense : public Layer {
 public:
  explicit Dense(int64_t units, const DenseOptions& options = {});
};

struct EinsumDenseOptions {
  keras::Activation activation = {};
  /// Letters of the output along which there is a bias; empty: none.
  std::string bias_axes = "";
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  /// Of the output of each call, divided by the rows of its batch.
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// activation(einsum(equation, x, kernel) + bias), for equations of the form "ab,bc->ac",
/// "...b,bc->...c" or "ab...,bc->ac...". `output_shape` is without the batch axis and without the
/// axes of the dots; -1 where it is the input's. The kernel has an axis for each of its letters;
/// initializers that scale by fans take the letters that the output has not as the inputs.
/// InvalidArgument for other equations, and for inputs that do not fit.
class EinsumDense : public Layer {
 public:
  EinsumDense(const std::string& equation, const Shape& output_shape,
              const EinsumDenseOptions& options = {});
  EinsumDense(const std::string& equation, int64_t units, const EinsumDenseOptions& options = {})
      : EinsumDense(equation, Shape{units}, options) {}
};

class ActivationLayer : public Layer {
 public:
  explicit ActivationLayer(const keras::Activation& activation, const LayerOptions& options = {});
};
/// Keras' name of the layer; the function type is keras::Activation.
using Activation = ActivationLayer;

/// The input.
class Identity : public Layer {
 public:
  explicit Identity(const LayerOptions& options = {});
};

struct LambdaOptions {
  /// Of one sample. Unset: found by calling the function on zeros of two batch sizes.
  std::optional<Shape> output_shape = std::nullopt;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// A function without weights as a layer, of one input or of several. It is called by all replicas
/// at once, so it must be thread-safe. A file cannot bring the function back (Unimplemented): such
/// a model is made in code and its weights loaded. Without output_shape, InvalidArgument when the
/// function fails on zeros.
class Lambda : public Layer {
 public:
  explicit Lambda(std::function<Tensor(const Tensor&)> function, const LambdaOptions& options = {});
  explicit Lambda(std::function<Tensor(const std::vector<Tensor>&)> function,
                  const LambdaOptions& options = {});
};

struct RescalingOptions {
  double offset = 0;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// x * scale + offset.
class Rescaling : public Layer {
 public:
  explicit Rescaling(double scale, const RescalingOptions& options = {});
};

}  // namespace layers
}  // namespace tutti::keras
