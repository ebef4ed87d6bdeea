#include "tutti/keras/activations.h"

#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::keras {
namespace activations {

Tensor linear(const Tensor& x) { return x; }
Tensor relu(const Tensor& x, double negative_slope, std::optional<double> max_value,
            double threshold) {
  if (threshold == 0 && !max_value) {
    return negative_slope == 0 ? at::relu(x) : at::leaky_relu(x, negative_slope);
  }
  Tensor output = threshold == 0 ? at::relu(x) : at::threshold(x, threshold, 0);
  if (max_value) output = output.clamp(0, *max_value);
  if (negative_slope != 0) output = output - at::relu(threshold - x) * negative_slope;
  return output;
}
Tensor relu6(const Tensor& x) { return at::clamp(x, 0, 6); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return at::leaky_relu(x, negative_slope);
}
Tensor elu(const Tensor& x, double alpha) { return at::elu(x, alpha); }
Tensor selu(const Tensor& x) { return at::selu(x); }
Tensor celu(const Tensor& x, double alpha) { return at::celu(x, alpha); }
Tensor gelu(const Tensor& x, bool approximate) {
  return at::gelu(x, approximate ? "tanh" : "none");
}
Tensor silu(const Tensor& x) { return at::silu(x); }
Tensor mish(const Tensor& x) { return at::mish(x); }
Tensor sigmoid(const Tensor& x) { return at::sigmoid(x); }
Tensor log_sigmoid(const Tensor& x) { return at::log_sigmoid(x); }
Tensor hard_sigmoid(const Tensor& x) { return at::clamp(x / 6 + 0.5, 0, 1); }
Tensor hard_silu(const Tensor& x) { return x * hard_sigmoid(x); }
Tensor tanh(const Tensor& x) { return at::tanh(x); }
Tensor hard_tanh(const Tensor& x) { return at::hardtanh(x); }
Tensor tanh_shrink(const Tensor& x) { return x - at::tanh(x); }
Tensor hard_shrink(const Tensor& x, double threshold) { return at::hardshrink(x, threshold); }
Tensor soft_shrink(const Tensor& x, double threshold) { return at::softshrink(x, threshold); }
Tensor threshold(const Tensor& x, double threshold, double default_value) {
  return at::threshold(x, threshold, default_value);
}
Tensor softplus(const Tensor& x) { return at::softplus(x); }
Tensor softsign(const Tensor& x) { return x / (x.abs() + 1); }
Tensor squareplus(const Tensor& x, double b) { return (x + (x.square() + b).sqrt()) / 2; }
Tensor sparse_plus(const Tensor& x) {
  // Flat below -1, by a quarter of a square up to 1, then straight.
  return at::clamp(x + 1, 0, 2).square() / 4 + at::relu(x - 1);
}
Tensor sparse_sigmoid(const Tensor& x) { return at::clamp((x + 1) / 2, 0, 1); }
Tensor sparsemax(const Tensor& x, int64_t axis) {
  const Tensor sorted = std::get<0>(x.sort(axis, /*descending=*/true));
  const Tensor sums = sorted.cumsum(axis);
  std::vector<int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[static_cast<std::size_t>(axis < 0 ? axis + x.dim() : axis)] = -1;
  const Tensor ranks = at::arange(1, x.size(axis) + 1, x.options()).view(shape);
  const Tensor support = (sorted - (sums - 1) / ranks > 0).detach();
  const Tensor number = support.sum(axis, true);
  const Tensor inside = sorted.masked_fill(support.logical_not(), 0).sum(axis, true);
  return at::relu(x - (inside - 1) / number);
}
Tensor softmax(const Tensor& x, int64_t axis) { return at::softmax(x, axis); }
Tensor log_softmax(const Tensor& x, int64_t axis) { return at::log_softmax(x, axis); }
Tensor exponential(const Tensor& x) { return at::exp(x); }
Tensor glu(const Tensor& x, int64_t axis) {
  const bool fits = axis >= -x.dim() && axis < x.dim() && x.size(axis) % 2 == 0;
  if (!fits)
    throw InvalidArgument(cat("glu: input of shape ", shape_text(x.sizes()), " in two along axis ",
                              axis, ", expected an axis of even length"));
  return at::glu(x, axis);
}

}  // namespace activations

namespace {

struct Known {
  const char* name;
  Activation::Function function;
};
const Known kKnown[] = {
    {"linear", nullptr},
    {"relu", [](const Tensor& x) { return at::relu(x); }},
    {"relu6", activations::relu6},
    {"leaky_relu", [](const Tensor& x) { return activations::leaky_relu(x); }},
    {"elu", [](const Tensor& x) { return activations::elu(x); }},
    {"selu", activations::selu},
    {"celu", [](const Tensor& x) { return activations::celu(x); }},
    {"gelu", [](const Tensor& x) { return activations::gelu(x); }},
    {"silu", activations::silu},
    {"swish", activations::silu},
    {"mish", activations::mish},
    {"sigmoid", activations::sigmoid},
    {"log_sigmoid", activations::log_sigmoid},
    {"hard_sigmoid", activations::hard_sigmoid},
    {"hard_silu", activations::hard_silu},
    {"hard_swish", activations::hard_silu},
    {"tanh", activations::tanh},
    {"hard_tanh", activations::hard_tanh},
    {"tanh_shrink", activations::tanh_shrink},
    {"hard_shrink", [](const Tensor& x) { return activations::hard_shrink(x); }},
    {"soft_shrink", [](const Tensor& x) { return activations::soft_shrink(x); }},
    {"softplus", activations::softplus},
    {"softsign", activations::softsign},
    {"squareplus", [](const Tensor& x) { return activations::squareplus(x); }},
    {"sparse_plus", activations::sparse_plus},
    {"sparse_sigmoid", activations::sparse_sigmoid},
    {"sparsemax", [](const Tensor& x) { return activations::sparsemax(x); }},
    {"softmax", [](const Tensor& x) { return activations::softmax(x); }},
    {"log_softmax", [](const Tensor& x) { return activations::log_softmax(x); }},
    {"exponential", activations::exponential},
    {"glu", [](const Tensor& x) { return activations::glu(x); }},
};

}  // namespace

Activation::Activation(const std::string& name) : name_(name.empty() ? "linear" : name) {
  std::vector<std::string> names;
  for (const Known& known : kKnown) {
    if (name_ == known.name) {
      function_ = known.function;
      return;
    }
    names.emplace_back(known.name);
  }
  throw InvalidArgument(cat("activation: \"", name, "\", expected one of ", join(names, ", ")));
}

}  // namespace tutti::keras
