#pragma once
// Activation functions by Keras' names.

#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::keras {

/// One of linear, relu, relu6, leaky_relu, elu, selu, gelu, silu (swish), sigmoid, hard_sigmoid,
/// tanh, softmax, log_softmax, softplus, softsign, exponential. Made from the name; throws
/// InvalidArgument that lists the known ones.
class Activation {
 public:
  using Function = Tensor (*)(const Tensor&);
  Activation() : Activation("linear") {}
  Activation(const std::string& name);                             // NOLINT: `.activation = "relu"`
  Activation(const char* name) : Activation(std::string(name)) {}  // NOLINT
  Tensor operator()(const Tensor& x) const { return function_ == nullptr ? x : function_(x); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Function function_ = nullptr;
};

}  // namespace tutti::keras
