#pragma once
// Activation functions by Keras' names, with arguments, or a user's own.

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/tensor/tensor.h"

namespace tutti::keras {

/// What a layer does to its output. Made from a name: linear, relu, relu6, leaky_relu, elu, selu,
/// celu, gelu, silu (swish), mish, sigmoid, log_sigmoid, hard_sigmoid, hard_silu (hard_swish),
/// tanh, hard_tanh, tanh_shrink, hard_shrink, soft_shrink, softplus, softsign, squareplus,
/// sparse_plus, sparse_sigmoid, sparsemax, softmax, log_softmax, exponential, glu. InvalidArgument
/// lists them for another name. Or from a function of a tensor: `.activation = [](const Tensor& x)
/// { … }`, a layer too.
class Activation {
 public:
  using Function = Tensor (*)(const Tensor&);
  Activation() : Activation("linear") {}
  Activation(const std::string& name);                             // NOLINT: `.activation = "relu"`
  Activation(const char* name) : Activation(std::string(name)) {}  // NOLINT
  /// `name` stands in config(); a file with it can only be read by making the model in code.
  template <class F>
  requires std::is_invocable_r_v<Tensor, const F&, const Tensor&> &&
      (!std::same_as<F, Activation>)Activation(F function, std::string name = "function")  // NOLINT
      : name_(std::move(name)),
        own_(std::make_shared<const std::function<Tensor(const Tensor&)>>(std::move(function))) {}
  Tensor operator()(const Tensor& x) const {
    if (function_ != nullptr) return function_(x);
    return own_ == nullptr ? x : (*own_)(x);
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Function function_ = nullptr;
  std::shared_ptr<const std::function<Tensor(const Tensor&)>> own_;
};

/// The functions themselves, with Keras' arguments, defaults and formulas (keras.activations). All
/// keep shape and dtype but glu.
namespace activations {
Tensor linear(const Tensor& x);
/// max_value cuts above; below `threshold` it is negative_slope * (x - threshold).
Tensor relu(const Tensor& x, double negative_slope = 0,
            std::optional<double> max_value = std::nullopt, double threshold = 0);
Tensor relu6(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.2);
Tensor elu(const Tensor& x, double alpha = 1);
Tensor selu(const Tensor& x);
Tensor celu(const Tensor& x, double alpha = 1);
/// x Phi(x); `approximate` by tanh.
Tensor gelu(const Tensor& x, bool approximate = false);
/// x sigmoid(x).
Tensor silu(const Tensor& x);
/// x tanh(softplus(x)).
Tensor mish(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor log_sigmoid(const Tensor& x);
/// relu6(x + 3) / 6.
Tensor hard_sigmoid(const Tensor& x);
/// x hard_sigmoid(x).
Tensor hard_silu(const Tensor& x);
Tensor tanh(const Tensor& x);
/// x between -1 and 1.
Tensor hard_tanh(const Tensor& x);
/// x - tanh(x).
Tensor tanh_shrink(const Tensor& x);
/// x where |x| > threshold, else 0.
Tensor hard_shrink(const Tensor& x, double threshold = 0.5);
/// x less the threshold in the direction of 0, and 0 between.
Tensor soft_shrink(const Tensor& x, double threshold = 0.5);
/// x where x > threshold, else default_value.
Tensor threshold(const Tensor& x, double threshold, double default_value);
Tensor softplus(const Tensor& x);
/// x / (|x| + 1).
Tensor softsign(const Tensor& x);
/// (x + sqrt(x^2 + b)) / 2.
Tensor squareplus(const Tensor& x, double b = 4);
/// 0 up to -1, (x + 1)^2 / 4 up to 1, then x.
Tensor sparse_plus(const Tensor& x);
/// 0 up to -1, (x + 1) / 2 up to 1, then 1.
Tensor sparse_sigmoid(const Tensor& x);
/// The nearest point of the simplex (Martins and Astudillo, 2016).
Tensor sparsemax(const Tensor& x, int64_t axis = -1);
Tensor softmax(const Tensor& x, int64_t axis = -1);
Tensor log_softmax(const Tensor& x, int64_t axis = -1);
Tensor exponential(const Tensor& x);
/// a sigmoid(b) of the two halves of `axis`; InvalidArgument when it is odd.
Tensor glu(const Tensor& x, int64_t axis = -1);
}  // namespace activations
}  // namespace tutti::keras
