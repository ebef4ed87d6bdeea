// Convolutions whose output is no larger than their input.

#include "keras/layers/convolution.h"

namespace tutti::keras::layers {
namespace {

// ---- Conv

template <class Size>
struct ConvArguments {
  int64_t filters = 0;
  Size kernel_size = 1;
  ConvOptions<Size> options;
  template <class Io>
  void visit(Io&& io) {
    io("filters", filters);
    io("kernel_size", kernel_size);
    io("strides", options.strides);
    io("padding", options.padding);
    io("dilation_rate", options.dilation_rate);
    io("groups", options.groups);
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

template <class Size>
class ConvImpl final : public ConvolutionLayer<ConvArguments<Size>, Size> {
  using Parent = ConvolutionLayer<ConvArguments<Size>, Size>;
  using Parent::kN;
  static constexpr const char* kNames[] = {"Conv1D", "Conv2D", "Conv3D"};

 public:
  explicit ConvImpl(ConvArguments<Size> arguments)
      : Parent(kNames[kN - 1], std::move(arguments), /*causal=*/kN == 1) {
    check_positive(*this, "filters", filters());
    check_positive(*this, "groups", groups());
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    if (input.back() % groups() != 0 || filters() % groups() != 0) {
      throw InvalidArgument(cat(this->class_name(), " [", this->name(), "]: ", input.back(),
                                " channels and ", filters(), " filters in ", groups(),
                                " groups, expected both to divide by the groups"));
    }
    return this->window_.output_shape(*this, input, filters());
  }

 protected:
  void build(const Shape& input) override {
    const auto& options = this->options();
    kernel_ = this->add_weight({.name = "kernel",
                                .shape = this->kernel_shape(input.back() / groups(), filters()),
                                .initializer = options.kernel_initializer,
                                .regularizer = options.kernel_regularizer,
                                .constraint = options.kernel_constraint.function(),
                                .storage_order = kernel_storage_order(kN)});
    this->add_bias(filters());
  }
  Tensor call(const Tensor& input, bool training) override {
    this->check_channels(input, kernel_.sizes()[kN] * groups());
    return this->finished(this->convolve(
        to_channels_first(input), kernel_view(this->value_of(kernel_)), this->bias(), groups()));
  }

 private:
  int64_t filters() const { return this->arguments().filters; }
  int64_t groups() const { return this->options().groups; }
  Variable kernel_;
};

// ---- DepthwiseConv

template <class Size>
struct DepthwiseConvArguments {
  Size kernel_size = 1;
  DepthwiseConvOptions<Size> options;
  template <class Io>
  void visit(Io&& io) {
    io("kernel_size", kernel_size);
    io("strides", options.strides);
    io("padding", options.padding);
    io("depth_multiplier", options.depth_multiplier);
    io("dilation_rate", options.dilation_rate);
    io("activation", options.activation);
    io("use_bias", options.use_bias);
    io("depthwise_initializer", options.depthwise_initializer);
    io("bias_initializer", options.bias_initializer);
    io("depthwise_regularizer", options.depthwise_regularizer);
    io("bias_regularizer", options.bias_regularizer);
    io("activity_regularizer", options.activity_regularizer);
    io("depthwise_constraint", options.depthwise_constraint);
    io("bias_constraint", options.bias_constraint);
  }
};

/// [window…, C, multiplier] is stored as [C, multiplier, window…], which LibTorch takes as
/// [C * multiplier, 1, window…].
std::vector<int64_t> depthwise_storage_order(std::size_t n) {
  const auto rank = static_cast<int64_t>(n);
  std::vector<int64_t> order{rank, rank + 1};
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  return order;
}
Tensor depthwise_view(const Tensor& kernel) {
  const Tensor outer = kernel.dim() == 3 ? kernel.permute({1, 2, 0}) : kernel.permute({2, 3, 0, 1});
  Shape shape{outer.size(0) * outer.size(1), 1};
  for (int64_t i = 2; i < outer.dim(); ++i) shape.push_back(outer.size(i));
  return outer.reshape(shape);
}

template <class Size>
class DepthwiseConvImpl final : public ConvolutionLayer<DepthwiseConvArguments<Size>, Size> {
  using Parent = ConvolutionLayer<DepthwiseConvArguments<Size>, Size>;
  using Parent::kN;
  static constexpr const char* kNames[] = {"DepthwiseConv1D", "DepthwiseConv2D"};

 public:
  explicit DepthwiseConvImpl(DepthwiseConvArguments<Size> arguments)
      : Parent(kNames[kN - 1], std::move(arguments)) {
    check_positive(*this, "depth_multiplier", this->options().depth_multiplier);
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    return this->window_.output_shape(*this, input,
                                      input.back() * this->options().depth_multiplier);
  }

 protected:
  void build(const Shape& input) override {
    const auto& options = this->options();
    kernel_ = this->add_weight({.name = "kernel",
                                .shape = this->kernel_shape(input.back(), options.depth_multiplier),
                                .initializer = options.depthwise_initializer,
                                .regularizer = options.depthwise_regularizer,
                                .constraint = options.depthwise_constraint.function(),
                                .storage_order = depthwise_storage_order(kN)});
    this->add_bias(input.back() * options.depth_multiplier);
  }
  Tensor call(const Tensor& input, bool training) override {
    const int64_t channels = kernel_.sizes()[kN];
    this->check_channels(input, channels);
    return this->finished(this->convolve(
        to_channels_first(input), depthwise_view(this->value_of(kernel_)), this->bias(), channels));
  }

 private:
  Variable kernel_;
};

// ---- SeparableConv

template <class Size>
struct SeparableConvArguments {
  int64_t filters = 0;
  Size kernel_size = 1;
  SeparableConvOptions<Size> options;
  template <class Io>
  void visit(Io&& io) {
    io("filters", filters);
    io("kernel_size", kernel_size);
    io("strides", options.strides);
    io("padding", options.padding);
    io("dilation_rate", options.dilation_rate);
    io("depth_multiplier", options.depth_multiplier);
    io("activation", options.activation);
    io("use_bias", options.use_bias);
    io("depthwise_initializer", options.depthwise_initializer);
    io("pointwise_initializer", options.pointwise_initializer);
    io("bias_initializer", options.bias_initializer);
    io("depthwise_regularizer", options.depthwise_regularizer);
    io("pointwise_regularizer", options.pointwise_regularizer);
    io("bias_regularizer", options.bias_regularizer);
    io("activity_regularizer", options.activity_regularizer);
    io("depthwise_constraint", options.depthwise_constraint);
    io("pointwise_constraint", options.pointwise_constraint);
    io("bias_constraint", options.bias_constraint);
  }
};

template <class Size>
class SeparableConvImpl final : public ConvolutionLayer<SeparableConvArguments<Size>, Size> {
  using Parent = ConvolutionLayer<SeparableConvArguments<Size>, Size>;
  using Parent::kN;
  static constexpr const char* kNames[] = {"SeparableConv1D", "SeparableConv2D"};

 public:
  explicit SeparableConvImpl(SeparableConvArguments<Size> arguments)
      : Parent(kNames[kN - 1], std::move(arguments)) {
    check_positive(*this, "filters", filters());
    check_positive(*this, "depth_multiplier", this->options().depth_multiplier);
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    return this->window_.output_shape(*this, input, filters());
  }

 protected:
  void build(const Shape& input) override {
    const auto& options = this->options();
    depthwise_ =
        this->add_weight({.name = "depthwise_kernel",
                          .shape = this->kernel_shape(input.back(), options.depth_multiplier),
                          .initializer = options.depthwise_initializer,
                          .regularizer = options.depthwise_regularizer,
                          .constraint = options.depthwise_constraint.function(),
                          .storage_order = depthwise_storage_order(kN)});
    Shape pointwise(kN, 1);
    pointwise.push_back(input.back() * options.depth_multiplier);
    pointwise.push_back(filters());
    pointwise_ = this->add_weight({.name = "pointwise_kernel",
                                   .shape = pointwise,
                                   .initializer = options.pointwise_initializer,
                                   .regularizer = options.pointwise_regularizer,
                                   .constraint = options.pointwise_constraint.function(),
                                   .storage_order = kernel_storage_order(kN)});
    this->add_bias(filters());
  }
  Tensor call(const Tensor& input, bool training) override {
    const int64_t channels = depthwise_.sizes()[kN];
    this->check_channels(input, channels);
    static constexpr std::array<int64_t, kN> kOne = [] {
      std::array<int64_t, kN> one{};
      one.fill(1);
      return one;
    }();
    const Tensor each = this->convolve(
        to_channels_first(input), depthwise_view(this->value_of(depthwise_)), Tensor(), channels);
    return this->finished(at::convolution(each, kernel_view(this->value_of(pointwise_)),
                                          this->bias(), kOne, Parent::kNoOutputPadding, kOne, false,
                                          Parent::kNoOutputPadding, 1));
  }

 private:
  int64_t filters() const { return this->arguments().filters; }
  Variable depthwise_;
  Variable pointwise_;
};

}  // namespace

Conv1D::Conv1D(int64_t filters, int64_t kernel_size, const Conv1DOptions& options)
    : Layer(std::make_shared<ConvImpl<int64_t>>(
          ConvArguments<int64_t>{filters, kernel_size, options})) {}
Conv2D::Conv2D(int64_t filters, Size2 kernel_size, const Conv2DOptions& options)
    : Layer(
          std::make_shared<ConvImpl<Size2>>(ConvArguments<Size2>{filters, kernel_size, options})) {}
Conv3D::Conv3D(int64_t filters, Size3 kernel_size, const Conv3DOptions& options)
    : Layer(
          std::make_shared<ConvImpl<Size3>>(ConvArguments<Size3>{filters, kernel_size, options})) {}
DepthwiseConv1D::DepthwiseConv1D(int64_t kernel_size, const DepthwiseConv1DOptions& options)
    : Layer(std::make_shared<DepthwiseConvImpl<int64_t>>(
          DepthwiseConvArguments<int64_t>{kernel_size, options})) {}
DepthwiseConv2D::DepthwiseConv2D(Size2 kernel_size, const DepthwiseConv2DOptions& options)
    : Layer(std::make_shared<DepthwiseConvImpl<Size2>>(
          DepthwiseConvArguments<Size2>{kernel_size, options})) {}
SeparableConv1D::SeparableConv1D(int64_t filters, int64_t kernel_size,
                                 const SeparableConv1DOptions& options)
    : Layer(std::make_shared<SeparableConvImpl<int64_t>>(
          SeparableConvArguments<int64_t>{filters, kernel_size, options})) {}
SeparableConv2D::SeparableConv2D(int64_t filters, Size2 kernel_size,
                                 const SeparableConv2DOptions& options)
    : Layer(std::make_shared<SeparableConvImpl<Size2>>(
          SeparableConvArguments<Size2>{filters, kernel_size, options})) {}

namespace {

constexpr LayerEntry kConvolutions[] = {
    {"Conv1D", make_configured<ConvImpl<int64_t>>},
    {"Conv2D", make_configured<ConvImpl<Size2>>},
    {"Conv3D", make_configured<ConvImpl<Size3>>},
    {"DepthwiseConv1D", make_configured<DepthwiseConvImpl<int64_t>>},
    {"DepthwiseConv2D", make_configured<DepthwiseConvImpl<Size2>>},
    {"SeparableConv1D", make_configured<SeparableConvImpl<int64_t>>},
    {"SeparableConv2D", make_configured<SeparableConvImpl<Size2>>},
};

}  // namespace

LayerFamily convolution_layers() { return kConvolutions; }

}  // namespace tutti::keras::layers
