#include "tutti/keras/activations.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/regularizers.h"

namespace tutti::keras {
namespace {

struct Known {
  const char* name;
  Activation::Function function;
};
// Keras' slopes and forms: leaky_relu 0.2 as a function, gelu exact, hard_sigmoid relu6(x + 3) / 6.
const Known kKnown[] = {
    {"linear", nullptr},
    {"relu", [](const Tensor& x) { return at::relu(x); }},
    {"relu6", [](const Tensor& x) { return at::clamp(x, 0, 6); }},
    {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.2); }},
    {"elu", [](const Tensor& x) { return at::elu(x); }},
    {"selu", [](const Tensor& x) { return at::selu(x); }},
    {"gelu", [](const Tensor& x) { return at::gelu(x); }},
    {"silu", [](const Tensor& x) { return at::silu(x); }},
    {"swish", [](const Tensor& x) { return at::silu(x); }},
    {"sigmoid", [](const Tensor& x) { return at::sigmoid(x); }},
    {"hard_sigmoid", [](const Tensor& x) { return at::clamp(x / 6 + 0.5, 0, 1); }},
    {"tanh", [](const Tensor& x) { return at::tanh(x); }},
    {"softmax", [](const Tensor& x) { return at::softmax(x, -1); }},
    {"log_softmax", [](const Tensor& x) { return at::log_softmax(x, -1); }},
    {"softplus", [](const Tensor& x) { return at::softplus(x); }},
    {"softsign", [](const Tensor& x) { return x / (x.abs() + 1); }},
    {"exponential", [](const Tensor& x) { return at::exp(x); }},
};

}  // namespace

Activation::Activation(const std::string& name) : name_(name.empty() ? "linear" : name) {
  std::vector<std::string> names;
  for (const Known& known : kKnown) {
    if (name_ == known.name) {
      function_ = known.function;
      return;
    }
    names.push_back(known.name);
  }
  throw InvalidArgument(cat("activation: \"", name, "\", expected one of ", join(names, ", ")));
}

Tensor Regularizer::operator()(const Tensor& weight) const {
  Tensor penalty;
  if (l1 != 0) penalty = weight.abs().sum() * l1;
  if (l2 != 0) {
    const Tensor squares = weight.square().sum() * l2;
    penalty = penalty.defined() ? penalty + squares : squares;
  }
  return penalty.defined() ? penalty : at::zeros({}, weight.options());
}

}  // namespace tutti::keras
