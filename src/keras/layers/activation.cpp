// Activations that have arguments or weights.

#include "keras/layers/config.h"

namespace tutti::keras::layers {
namespace {

void check_not_negative(const LayerImpl& layer, const char* what, double value) {
  if (value >= 0) return;
  throw InvalidArgument(
      cat(layer.class_name(), " [", layer.name(), "]: ", what, " ", value, ", expected 0 or more"));
}

/// A layer whose output has the input's shape and mask.
template <class Arguments>
class ElementwiseLayer : public ConfiguredLayer<Arguments> {
 public:
  using ConfiguredLayer<Arguments>::ConfiguredLayer;
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override { return input; }
};

struct ReLUArguments {
  ReLUOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("max_value", options.max_value);
    io("negative_slope", options.negative_slope);
    io("threshold", options.threshold);
  }
};

class ReLUImpl final : public ElementwiseLayer<ReLUArguments> {
 public:
  explicit ReLUImpl(ReLUArguments arguments) : ElementwiseLayer("ReLU", std::move(arguments)) {
    check_not_negative(*this, "max_value", options().max_value.value_or(0));
    check_not_negative(*this, "negative_slope", options().negative_slope);
    check_not_negative(*this, "threshold", options().threshold);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return activations::relu(input, options().negative_slope, options().max_value,
                             options().threshold);
  }
};

struct LeakyReLUArguments {
  double negative_slope = 0.3;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("negative_slope", negative_slope);
  }
};

class LeakyReLUImpl final : public ElementwiseLayer<LeakyReLUArguments> {
 public:
  explicit LeakyReLUImpl(LeakyReLUArguments arguments)
      : ElementwiseLayer("LeakyReLU", std::move(arguments)) {
    check_not_negative(*this, "negative_slope", this->arguments().negative_slope);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return at::leaky_relu(input, arguments().negative_slope);
  }
};

struct ELUArguments {
  double alpha = 1;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("alpha", alpha);
  }
};

class ELUImpl final : public ElementwiseLayer<ELUArguments> {
 public:
  explicit ELUImpl(ELUArguments arguments) : ElementwiseLayer("ELU", std::move(arguments)) {}

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return at::elu(input, arguments().alpha);
  }
};

struct PReLUArguments {
  PReLUOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("alpha_initializer", options.alpha_initializer);
    io("alpha_regularizer", options.alpha_regularizer);
    io("alpha_constraint", options.alpha_constraint);
    io("shared_axes", options.shared_axes);
  }
};

class PReLUImpl final : public ElementwiseLayer<PReLUArguments> {
 public:
  explicit PReLUImpl(PReLUArguments arguments) : ElementwiseLayer("PReLU", std::move(arguments)) {}
  Shape compute_output_shape(const Shape& input) const override {
    alpha_shape(input);
    return input;
  }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    alpha_ = add_weight({.name = "alpha",
                         .shape = alpha_shape(input),
                         .initializer = options().alpha_initializer,
                         .regularizer = options().alpha_regularizer,
                         .constraint = options().alpha_constraint.function()});
  }
  Tensor call(const Tensor& input, bool training) override {
    return at::relu(input) - value_of(alpha_) * at::relu(-input);
  }

 private:
  Shape alpha_shape(const Shape& input) const {
    Shape shape(input.begin() + std::min<std::ptrdiff_t>(1, std::ssize(input)), input.end());
    bool known = true;
    for (int64_t axis : options().shared_axes) {
      known = known && axis >= 1 && axis <= std::ssize(shape);
      if (known) shape[static_cast<std::size_t>(axis - 1)] = 1;
    }
    for (int64_t size : shape) known = known && size >= 0;
    if (!known) {
      throw InvalidArgument(cat("PReLU [", name(), "]: input of shape ", shape_text(input),
                                " with shared axes ", shape_text(options().shared_axes),
                                ", expected axes of the input and known sizes along all others"));
    }
    return shape;
  }
  Variable alpha_;
};

struct SoftmaxArguments {
  std::vector<int64_t> axis = {-1};
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axis", axis);
  }
};

class SoftmaxImpl final : public ElementwiseLayer<SoftmaxArguments> {
 public:
  explicit SoftmaxImpl(SoftmaxArguments arguments)
      : ElementwiseLayer("Softmax", std::move(arguments)) {
    if (this->arguments().axis.empty())
      throw InvalidArgument(cat("Softmax [", name(), "]: no axis, expected at least one"));
  }
  bool uses_masks() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override {
    for (int64_t axis : arguments().axis) axis_of(*this, axis, input);
    return input;
  }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& context) override {
    Tensor input = inputs.at(0);
    const Tensor mask = context.mask(0);
    if (mask.defined()) {
      check_mask(mask, input);
      // Keras' large negative number, which float16 can hold.
      input = input.masked_fill(mask.logical_not(), input.scalar_type() == at::kHalf ? -3e4 : -1e9);
    }
    const auto& axis = arguments().axis;
    const Tensor output = axis.size() == 1 ? at::softmax(input, axis[0])
                                           : (input - input.logsumexp(axis, true)).exp();
    if (!mask.defined()) return {output};
    return {output.masked_fill(mask.logical_not(), 0)};
  }

 private:
  void check_mask(const Tensor& mask, const Tensor& input) const {
    bool fits = mask.dim() <= input.dim() && mask.scalar_type() == at::kBool;
    for (int64_t i = 1; fits && i <= mask.dim(); ++i)
      fits = mask.size(-i) == 1 || mask.size(-i) == input.size(-i);
    if (fits) return;
    throw InvalidArgument(cat("Softmax [", name(), "]: a mask of shape ", shape_text(mask.sizes()),
                              " for an input of shape ", shape_text(input.sizes()),
                              ", expected booleans that broadcast to the input"));
  }
};

}  // namespace

ReLU::ReLU(const ReLUOptions& options)
    : Layer(std::make_shared<ReLUImpl>(ReLUArguments{options})) {}
LeakyReLU::LeakyReLU(double negative_slope, const LayerOptions& options)
    : Layer(std::make_shared<LeakyReLUImpl>(LeakyReLUArguments{negative_slope, options})) {}
ELU::ELU(double alpha, const LayerOptions& options)
    : Layer(std::make_shared<ELUImpl>(ELUArguments{alpha, options})) {}
PReLU::PReLU(const PReLUOptions& options)
    : Layer(std::make_shared<PReLUImpl>(PReLUArguments{options})) {}
Softmax::Softmax(std::vector<int64_t> axis, const LayerOptions& options)
    : Layer(std::make_shared<SoftmaxImpl>(SoftmaxArguments{std::move(axis), options})) {}

namespace {

constexpr LayerEntry kActivations[] = {
    {"ReLU", make_configured<ReLUImpl>},       {"LeakyReLU", make_configured<LeakyReLUImpl>},
    {"ELU", make_configured<ELUImpl>},         {"PReLU", make_configured<PReLUImpl>},
    {"Softmax", make_configured<SoftmaxImpl>},
};

}  // namespace

LayerFamily activation_layers() { return kActivations; }

}  // namespace tutti::keras::layers
