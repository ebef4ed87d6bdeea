// EinsumDense: which axes its equation gives the weights.

#include <algorithm>

#include "keras/layers/config.h"

namespace tutti::keras::layers {
namespace {

struct EinsumDenseArguments {
  std::string equation;
  Shape output_shape;
  EinsumDenseOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("equation", equation);
    io("output_shape", output_shape);
    io("activation", options.activation);
    io("bias_axes", options.bias_axes);
    io("kernel_initializer", options.kernel_initializer);
    io("bias_initializer", options.bias_initializer);
    io("kernel_regularizer", options.kernel_regularizer);
    io("bias_regularizer", options.bias_regularizer);
    io("activity_regularizer", options.activity_regularizer);
    io("kernel_constraint", options.kernel_constraint);
    io("bias_constraint", options.bias_constraint);
  }
};

/// An equation without its dots.
struct Equation {
  std::string input, kernel, output;
  bool dots_in_front = false;
  bool dots_behind = false;
};

bool is_letters(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

/// "...", in front or behind, taken away.
bool take_dots(std::string& text, bool in_front) {
  constexpr std::size_t kDots = 3;
  if (text.size() < kDots) return false;
  const std::size_t at = in_front ? 0 : text.size() - kDots;
  if (text.compare(at, kDots, "...") != 0) return false;
  text.erase(at, kDots);
  return true;
}

std::optional<Equation> parsed(const std::string& text) {
  const auto comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) return {};
  Equation equation{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                    text.substr(arrow + 2)};
  equation.dots_in_front = take_dots(equation.input, true);
  equation.dots_behind = !equation.dots_in_front && take_dots(equation.input, false);
  if (equation.dots_in_front && !take_dots(equation.output, true)) return {};
  if (equation.dots_behind && !take_dots(equation.output, false)) return {};
  const bool letters =
      is_letters(equation.input) && is_letters(equation.kernel) && is_letters(equation.output);
  if (!letters || (equation.dots_behind && equation.input.size() < 2)) return {};
  return equation;
}

/// What the weights of a layer must be, and what it gives out.
struct EinsumShapes {
  Shape kernel, bias, output;
  int64_t fan_in = 1, fan_out = 1;
};

/// VarianceScaling and what is made of it, for kernels of any axes: the numbers in and out are
/// those of the equation.
class EinsumInitializer : public Initializer::Impl {
 public:
  EinsumInitializer(Initializer given, int64_t fan_in, int64_t fan_out)
      : given_(std::move(given)), fans_{fan_in, fan_out} {}
  Tensor operator()(const std::vector<int64_t>& shape) const override {
    return given_(fans_).reshape(shape);
  }
  std::string class_name() const override { return given_.class_name(); }
  std::string config() const override { return given_.config(); }

 private:
  Initializer given_;
  std::vector<int64_t> fans_;
};

bool scales_variance(const Initializer& initializer) {
  static constexpr const char* kClasses[] = {"VarianceScaling", "GlorotUniform", "GlorotNormal",
                                             "HeUniform",       "HeNormal",      "LecunUniform",
                                             "LecunNormal"};
  const std::string name = initializer.class_name();
  return std::any_of(std::begin(kClasses), std::end(kClasses),
                     [&](const char* one) { return name == one; });
}

class EinsumDenseImpl final : public ConfiguredLayer<EinsumDenseArguments> {
 public:
  explicit EinsumDenseImpl(EinsumDenseArguments given)
      : ConfiguredLayer("EinsumDense", std::move(given)) {
    const auto equation = parsed(arguments().equation);
    if (!equation)
      refuse("expected the form X,Y->Z, ...X,Y->...Z or X...,Y->Z... with letters for X, Y and Z");
    equation_ = *equation;
    for (char letter : equation_.output) {
      if (!has(equation_.input, letter) && !has(equation_.kernel, letter))
        refuse(cat("expected '", std::string(1, letter), "' of the output in the input or kernel"));
    }
    for (char letter : equation_.kernel) {
      if (!has(equation_.input, letter) && !has(equation_.output, letter))
        refuse(cat("expected '", std::string(1, letter), "' of the kernel in the input or output"));
    }
    for (int64_t size : arguments().output_shape) {
      if (size < 1 && size != -1) refuse("expected an output_shape of sizes of at least 1, or -1");
    }
    for (char letter : options().bias_axes) {
      if (!has(equation_.output, letter))
        refuse(cat("expected the bias axis '", std::string(1, letter), "' in the output"));
    }
  }
  Shape compute_output_shape(const Shape& input) const override { return shapes_of(input).output; }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    const EinsumShapes shapes = shapes_of(input);
    Initializer initializer = options().kernel_initializer;
    if (scales_variance(initializer))
      initializer = Initializer(
          std::make_shared<EinsumInitializer>(initializer, shapes.fan_in, shapes.fan_out));
    kernel_ = add_weight({.name = "kernel",
                          .shape = shapes.kernel,
                          .initializer = initializer,
                          .regularizer = options().kernel_regularizer,
                          .constraint = options().kernel_constraint.function()});
    if (shapes.bias.empty()) return;
    bias_ = add_weight({.name = "bias",
                        .shape = shapes.bias,
                        .initializer = options().bias_initializer,
                        .regularizer = options().bias_regularizer,
                        .constraint = options().bias_constraint.function()});
  }
  Tensor call(const Tensor& input, bool training) override {
    shapes_of(input.sizes().vec());  // says what does not fit
    Tensor output = at::einsum(arguments().equation, {input, value_of(kernel_)});
    if (bias_.defined()) output = output + value_of(bias_);
    return penalised(activate(options().activation, output));
  }

 private:
  static bool has(const std::string& letters, char letter) {
    return letters.find(letter) != std::string::npos;
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    throw InvalidArgument(cat("EinsumDense [", name(), "]: equation \"", arguments().equation,
                              "\" and bias axes \"", options().bias_axes, "\", ", expected));
  }
  [[noreturn]] void refuse_input(const Shape& input, const std::string& expected) const {
    throw InvalidArgument(cat("EinsumDense [", name(), "]: input of shape ", shape_text(input),
                              " for \"", arguments().equation, "\" and the output shape ",
                              shape_text(arguments().output_shape), ", expected ", expected));
  }

  EinsumShapes shapes_of(const Shape& input) const {
    const Equation& e = equation_;
    const bool dots = e.dots_in_front || e.dots_behind;
    if (input.size() < e.input.size() || (!dots && input.size() != e.input.size()))
      refuse_input(input, cat(dots ? "at least " : "", e.input.size(), " axes"));
    const std::size_t elided = input.size() - e.input.size();
    const std::size_t front = e.dots_in_front ? elided : 0;
    EinsumShapes shapes;
    shapes.output = full_output(input, elided);
    if (shapes.output.size() != e.output.size() + elided)
      refuse_input(input, cat(e.output.size() + elided,
                              " axes of the output, the batch's among "
                              "them"));
    for (std::size_t i = 0; i < e.input.size(); ++i) {
      const auto at = e.output.find(e.input[i]);
      if (at == std::string::npos) continue;
      int64_t& size = shapes.output[at + front];
      const int64_t own = input[i + front];
      if (size >= 0 && own >= 0 && size != own)
        refuse_input(input, cat(size, " along '", std::string(1, e.input[i]), "'"));
      size = std::max(size, own);
    }
    for (char letter : e.kernel) {
      const auto out = e.output.find(letter), in = e.input.find(letter);
      const bool given_out = out != std::string::npos;
      const int64_t size = given_out ? shapes.output[out + front] : input[in + front];
      if (size < 0) refuse_input(input, cat("a known size of '", std::string(1, letter), "'"));
      shapes.kernel.push_back(size);
      (given_out ? shapes.fan_out : shapes.fan_in) *= size;
    }
    add_bias_shape(shapes, front, e.dots_behind ? elided : 0);
    return shapes;
  }
  /// The batch's axis, the axes that the dots stand for, and those given.
  Shape full_output(const Shape& input, std::size_t elided) const {
    Shape output{input[0]};
    if (equation_.dots_in_front && elided > 0)
      output.insert(output.end(), input.begin() + 1,
                    input.begin() + static_cast<std::ptrdiff_t>(elided));
    const Shape& given = arguments().output_shape;
    output.insert(output.end(), given.begin(), given.end());
    if (equation_.dots_behind)
      output.insert(output.end(), input.end() - static_cast<std::ptrdiff_t>(elided), input.end());
    return output;
  }
  void add_bias_shape(EinsumShapes& shapes, std::size_t front, std::size_t behind) const {
    const std::string& axes = options().bias_axes;
    if (axes.empty()) return;
    std::size_t first = equation_.output.size();
    for (char letter : axes) first = std::min(first, equation_.output.find(letter));
    for (std::size_t i = first; i < equation_.output.size(); ++i) {
      const int64_t size = has(axes, equation_.output[i]) ? shapes.output[i + front] : 1;
      if (size < 0) refuse("expected known sizes of the bias axes");
      shapes.bias.push_back(size);
    }
    shapes.bias.insert(shapes.bias.end(), behind, 1);
  }

  Equation equation_;
  Variable kernel_, bias_;
};

constexpr LayerEntry kEinsum[] = {{"EinsumDense", make_configured<EinsumDenseImpl>}};

}  // namespace

EinsumDense::EinsumDense(const std::string& equation, const Shape& output_shape,
                         const EinsumDenseOptions& options)
    : Layer(std::make_shared<EinsumDenseImpl>(
          EinsumDenseArguments{equation, output_shape, options})) {}

LayerFamily einsum_layers() { return kEinsum; }

}  // namespace tutti::keras::layers
