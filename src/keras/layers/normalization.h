#pragma once
// What normalisation layers share: an affine map behind them, and float32 inside.

#include "keras/layers/config.h"

namespace tutti::keras::layers {

/// In float32 or float64: half precision would overflow.
inline Tensor widened(const Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

/// `io` names the arguments of gamma and beta.
template <class Io, class Options>
void visit_affine(Io& io, Options& options) {
  io("epsilon", options.epsilon);
  io("center", options.center);
  io("scale", options.scale);
  io("beta_initializer", options.beta_initializer);
  io("gamma_initializer", options.gamma_initializer);
  io("beta_regularizer", options.beta_regularizer);
  io("gamma_regularizer", options.gamma_regularizer);
  io("beta_constraint", options.beta_constraint);
  io("gamma_constraint", options.gamma_constraint);
}

/// A layer with gamma and beta, each of which may be missing.
template <class Arguments>
class AffineLayer : public ConfiguredLayer<Arguments> {
 public:
  using ConfiguredLayer<Arguments>::ConfiguredLayer;
  bool supports_masking() const override { return true; }

 protected:
  bool has_weights() const override { return true; }
  void add_affine(const Shape& shape) {
    const auto& options = this->options();
    if (options.scale) {
      gamma_ = this->add_weight({.name = "gamma",
                                 .shape = shape,
                                 .initializer = options.gamma_initializer,
                                 .regularizer = options.gamma_regularizer,
                                 .constraint = options.gamma_constraint.function()});
    }
    if (options.center) {
      beta_ = this->add_weight({.name = "beta",
                                .shape = shape,
                                .initializer = options.beta_initializer,
                                .regularizer = options.beta_regularizer,
                                .constraint = options.beta_constraint.function()});
    }
  }
  /// Undefined when there is none.
  Tensor gamma() const { return this->options().scale ? widened(gamma_.value()) : Tensor(); }
  Tensor beta() const { return this->options().center ? widened(beta_.value()) : Tensor(); }
  /// Back in the dtype that the layer gives out.
  Tensor narrowed(const Tensor& output) const {
    return output.to(this->dtype_policy().compute_dtype());
  }

 private:
  Variable gamma_, beta_;
};

}  // namespace tutti::keras::layers
