// Dense and the layers that apply a function.

#include <algorithm>

#include "keras/layers/config.h"

namespace tutti::keras::layers {
namespace {

// ---- Dense

struct DenseArguments {
  int64_t units = 0;
  DenseOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("units", units);
    io("activation", options.activation);
    io("use_bias", options.use_bias);
    io("kernel_initializer", options.kernel_initializer);
    io("bias_initializer", options.bias_initializer);
    io("kernel_regularizer", options.kernel_regularizer);
    io("bias_regularizer", options.bias_regularizer);
    io("activity_regularizer", options.activity_regularizer);
    io("kernel_constraint", options.kernel_constraint);
    io("bias_constraint", options.bias_constraint);
  }
};

class DenseImpl final : public ConfiguredLayer<DenseArguments> {
 public:
  explicit DenseImpl(DenseArguments arguments) : ConfiguredLayer("Dense", std::move(arguments)) {
    check_positive(*this, "units", this->arguments().units);
  }
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.size() < 2 || input.back() < 1) {
      throw InvalidArgument(cat(
          "Dense [", name(), "]: input of shape ", shape_text(input),
          ", expected (batch, …, features) with a known number of features; put Flatten in front"));
    }
    Shape output = input;
    output.back() = arguments().units;
    return output;
  }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    kernel_ = add_weight({.name = "kernel",
                          .shape = {input.back(), arguments().units},
                          .initializer = options().kernel_initializer,
                          .regularizer = options().kernel_regularizer,
                          .constraint = options().kernel_constraint.function()});
    if (options().use_bias) {
      bias_ = add_weight({.name = "bias",
                          .shape = {arguments().units},
                          .initializer = options().bias_initializer,
                          .regularizer = options().bias_regularizer,
                          .constraint = options().bias_constraint.function()});
    }
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor kernel = value_of(kernel_);
    if (input.dim() == 0 || input.size(-1) != kernel.size(0)) {
      throw InvalidArgument(cat("Dense [", name(), "]: input of shape ", shape_text(input.sizes()),
                                ", expected ", kernel.size(0),
                                " features, those it was built with"));
    }
    if (input.dim() == 2 && options().use_bias) {
      return penalised(activate(options().activation, at::addmm(value_of(bias_), input, kernel)));
    }
    Tensor output = at::matmul(input, kernel);
    if (options().use_bias) output = output + value_of(bias_);
    return penalised(activate(options().activation, output));
  }

 private:
  Variable kernel_;
  Variable bias_;
};

// ---- functions

struct ActivationArguments {
  keras::Activation activation;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("activation", activation);
  }
};

class ActivationImpl final : public ConfiguredLayer<ActivationArguments> {
 public:
  explicit ActivationImpl(ActivationArguments arguments)
      : ConfiguredLayer("Activation", std::move(arguments)) {}
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override {
    if (arguments().activation.name() != "glu" || input.empty() || input.back() < 0) return input;
    Shape output = input;
    output.back() /= 2;
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override { return arguments().activation(input); }
};

class IdentityImpl final : public ConfiguredLayer<NoArguments> {
 public:
  explicit IdentityImpl(NoArguments arguments) : ConfiguredLayer("Identity", arguments) {}
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  Tensor call(const Tensor& input, bool training) override { return input; }
};

struct LambdaArguments {
  LambdaOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("output_shape", options.output_shape);
  }
};

class LambdaImpl final : public ConfiguredLayer<LambdaArguments> {
 public:
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  LambdaImpl(Function function, const LambdaOptions& options)
      : ConfiguredLayer("Lambda", LambdaArguments{options}), function_(std::move(function)) {}
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (const auto& given = options().output_shape) {
      Shape output{inputs.empty() || inputs[0].empty() ? -1 : inputs[0][0]};
      output.insert(output.end(), given->begin(), given->end());
      return {output};
    }
    // What differs between two sizes of the unknown axes is unknown in the output too.
    Shape output = output_of(inputs, 2);
    const Shape other = output_of(inputs, 3);
    if (other.size() != output.size()) unknown_shape("its rank depends on the size of its input");
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (output[i] != other[i]) output[i] = -1;
    }
    return {output};
  }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    return {function_(inputs)};
  }

 private:
  [[noreturn]] void unknown_shape(const std::string& reason) const {
    throw InvalidArgument(cat("Lambda [", name(), "]: called on zeros to find the output's shape, ",
                              reason, ", expected an output; give output_shape"));
  }
  Shape output_of(const std::vector<Shape>& inputs, int64_t unknown) const {
    at::NoGradGuard no_grad;
    std::vector<Tensor> zeros;
    for (Shape shape : inputs) {
      std::replace(shape.begin(), shape.end(), int64_t{-1}, unknown);
      zeros.push_back(at::zeros(shape, at::TensorOptions(dtype_policy().compute_dtype())));
    }
    try {
      return function_(zeros).sizes().vec();
    } catch (const std::exception& error) {
      unknown_shape(error.what());
    }
  }
  Function function_;
};

struct RescalingArguments {
  double scale = 1;
  RescalingOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("scale", scale);
    io("offset", options.offset);
  }
};

class RescalingImpl final : public ConfiguredLayer<RescalingArguments> {
 public:
  explicit RescalingImpl(RescalingArguments arguments)
      : ConfiguredLayer("Rescaling", std::move(arguments)) {}
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const Tensor scaled = input * arguments().scale;
    return options().offset == 0 ? scaled : scaled + options().offset;
  }
};

}  // namespace

Dense::Dense(int64_t units, const DenseOptions& options)
    : Layer(std::make_shared<DenseImpl>(DenseArguments{units, options})) {}
ActivationLayer::ActivationLayer(const keras::Activation& activation, const LayerOptions& options)
    : Layer(std::make_shared<ActivationImpl>(ActivationArguments{activation, options})) {}
Identity::Identity(const LayerOptions& options)
    : Layer(std::make_shared<IdentityImpl>(NoArguments{options})) {}
Rescaling::Rescaling(double scale, const RescalingOptions& options)
    : Layer(std::make_shared<RescalingImpl>(RescalingArguments{scale, options})) {}
Lambda::Lambda(std::function<Tensor(const std::vector<Tensor>&)> function,
               const LambdaOptions& options)
    : Layer(std::make_shared<LambdaImpl>(std::move(function), options)) {}
Lambda::Lambda(std::function<Tensor(const Tensor&)> function, const LambdaOptions& options)
    : Layer(std::make_shared<LambdaImpl>(
          [function = std::move(function)](const std::vector<Tensor>& inputs) {
            if (inputs.size() != 1)
              throw InvalidArgument(cat("Lambda: ", inputs.size(),
                                        " inputs for a function of one tensor, expected one; give "
                                        "it a function of a vector of tensors"));
            return function(inputs[0]);
          },
          options)) {}

namespace {

constexpr LayerEntry kCore[] = {
    {"Dense", make_configured<DenseImpl>},
    {"Activation", make_configured<ActivationImpl>},
    {"Identity", make_configured<IdentityImpl>},
    {"Lambda",
     [](const Json&, const LayerBase& base) -> Layer {
       throw Unimplemented(cat("Lambda [", base.name,
                               "]: a function that a file cannot hold, expected to be made in "
                               "code; make the model there and call load_weights"));
     }},
    {"Rescaling", make_configured<RescalingImpl>},
};

}  // namespace

LayerFamily core_layers() { return kCore; }

}  // namespace tutti::keras::layers
