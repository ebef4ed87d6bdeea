// Convolutions. All go through LibTorch's with channels second; sequences, images and volumes are
// one template.

#include "keras/layers/windows.h"

namespace tutti::keras::layers {
namespace {

/// What all of them share: the window, the bias, the last steps of a call.
template <class Arguments, class Size>
class ConvolutionLayer : public ConfiguredLayer<Arguments> {
 protected:
  static constexpr std::size_t kN = kRank<Size>;

  ConvolutionLayer(const char* class_name, Arguments arguments, bool causal = false)
      : ConfiguredLayer<Arguments>(class_name, std::move(arguments)) {
    const auto& options = this->options();
    window_ = {values_of(this->arguments().kernel_size), values_of(options.strides),
               values_of(options.dilation_rate), padding_kind(*this, options.padding, causal)};
    window_.check(*this, "kernel_size");
  }
  bool has_weights() const final { return true; }
  void add_bias(int64_t filters) {
    const auto& options = this->options();
    if (!options.use_bias) return;
    bias_ = this->add_weight({.name = "bias",
                              .shape = {filters},
                              .initializer = options.bias_initializer,
                              .regularizer = options.bias_regularizer,
                              .constraint = options.bias_constraint.function()});
  }
  Shape kernel_shape(int64_t a, int64_t b) const {
    Shape shape(window_.kernel.begin(), window_.kernel.end());
    shape.push_back(a);
    shape.push_back(b);
    return shape;
  }
  Tensor bias() const { return this->options().use_bias ? this->value_of(bias_) : Tensor(); }
  void check_channels(const Tensor& input, int64_t channels) const {
    if (input.dim() == static_cast<int64_t>(kN) + 2 && input.size(-1) == channels) return;
    throw InvalidArgument(cat(this->class_name(), " [", this->name(), "]: input of shape ",
                              shape_text(input.sizes()), ", expected (batch, ", kAxisNames[kN - 1],
                              ", ", channels, "), the channels that it was built with"));
  }
  /// `weight` [filters, channels / groups, window…].
  Tensor convolve(Tensor images, const Tensor& weight, const Tensor& bias, int64_t groups) const {
    std::array<int64_t, kN> padding{};
    bool even = true;  // then LibTorch pads, without a copy
    for (std::size_t i = 0; i < kN; ++i) {
      const Padding one = window_.padding_of(i, images.size(static_cast<int64_t>(i) + 2));
      even = even && one.before == one.after;
      padding[i] = one.before;
    }
    if (!even) {
      images = at::constant_pad_nd(images, window_.pads(images));
      padding.fill(0);
    }
    return at::convolution(images, weight, bias, window_.stride, padding, window_.dilation, false,
                           kNoOutputPadding, groups);
  }
  Tensor finished(const Tensor& output) {
    return this->activity_.record(to_channels_last(activate(this->options().activation, output)));
  }

  static constexpr std::array<int64_t, kN> kNoOutputPadding{};
  Window<kN> window_;
  Variable bias_;
};

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

// ---- ConvTranspose

template <class Size>
struct ConvTransposeArguments {
  int64_t filters = 0;
  Size kernel_size = 1;
  ConvTransposeOptions<Size> options;
  template <class Io>
  void visit(Io&& io) {
    io("filters", filters);
    io("kernel_size", kernel_size);
    io("strides", options.strides);
    io("padding", options.padding);
    io("output_padding", options.output_padding);
    io("dilation_rate", options.dilation_rate);
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
class ConvTransposeImpl final : public ConvolutionLayer<ConvTransposeArguments<Size>, Size> {
  using Parent = ConvolutionLayer<ConvTransposeArguments<Size>, Size>;
  using Parent::kN;
  static constexpr const char* kNames[] = {"Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"};

 public:
  explicit ConvTransposeImpl(ConvTransposeArguments<Size> arguments)
      : Parent(kNames[kN - 1], std::move(arguments)) {
    check_positive(*this, "filters", filters());
    for (std::size_t i = 0; i < kN; ++i) length(i, 1);
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    Shape output{input[0]};
    for (std::size_t i = 0; i < kN; ++i) output.push_back(length(i, input[i + 1]));
    output.push_back(filters());
    return output;
  }

 protected:
  void build(const Shape& input) override {
    const auto& options = this->options();
    kernel_ = this->add_weight({.name = "kernel",
                                .shape = this->kernel_shape(filters(), input.back()),
                                .initializer = options.kernel_initializer,
                                .regularizer = options.kernel_regularizer,
                                .constraint = options.kernel_constraint.function(),
                                .storage_order = kernel_storage_order(kN)});
    this->add_bias(filters());
  }
  Tensor call(const Tensor& input, bool training) override {
    this->check_channels(input, kernel_.sizes()[kN + 1]);
    const Tensor images = to_channels_first(input);
    const Tensor weight = kernel_view(this->value_of(kernel_));  // [C, filters, window…]
    const auto& window = this->window_;
    // The whole result is (size - 1) * stride + reach long. What the convolution of an image of the
    // wanted length would have padded is cut off in front, and the rest at the end.
    std::array<int64_t, kN> front{}, end{};
    bool direct = true;
    for (std::size_t i = 0; i < kN; ++i) {
      const int64_t size = images.size(static_cast<int64_t>(i) + 2), wanted = length(i, size);
      const int64_t whole = (size - 1) * window.stride[i] + reach(i);
      front[i] =
          window.padding == PaddingKind::kSame ? std::max<int64_t>(0, whole - wanted) / 2 : 0;
      end[i] = whole - wanted - front[i];
      const int64_t output_padding = front[i] - end[i];
      direct = direct && output_padding >= 0 &&
               output_padding < std::max(window.stride[i], window.dilation[i]);
    }
    if (direct) {
      std::array<int64_t, kN> output_padding{};
      for (std::size_t i = 0; i < kN; ++i) output_padding[i] = front[i] - end[i];
      return this->finished(at::convolution(images, weight, this->bias(), window.stride, front,
                                            window.dilation, true, output_padding, 1));
    }
    return this->finished(
        cut(at::convolution(images, weight, {}, window.stride, Parent::kNoOutputPadding,
                            window.dilation, true, Parent::kNoOutputPadding, 1),
            front, end));
  }

 private:
  int64_t filters() const { return this->arguments().filters; }
  int64_t reach(std::size_t axis) const {
    return (this->window_.kernel[axis] - 1) * this->window_.dilation[axis] + 1;
  }
  /// Output length of one axis; -1 for -1. Keras' rule (compute_conv_transpose_output_shape).
  int64_t length(std::size_t axis, int64_t size) const {
    if (size < 0) return -1;
    const int64_t stride = this->window_.stride[axis];
    const bool same = this->window_.padding == PaddingKind::kSame;
    const auto& given = this->options().output_padding;
    if (!given) return same ? size * stride : (size - 1) * stride + std::max(reach(axis), stride);
    const int64_t extra = values_of(*given)[axis];
    const int64_t base = same ? reach(axis) % 2 : reach(axis);
    // The convolution must lead from there back to `size`.
    const bool fits =
        extra >= 0 && (same ? base + extra >= 1 && base + extra <= stride : extra < stride);
    if (!fits) {
      throw InvalidArgument(
          cat(this->class_name(), " [", this->name(), "]: output_padding ", extra, " with stride ",
              stride, " and a window of ", reach(axis), ", expected 0 or more, ",
              same ? "1 to the stride together with window % 2" : "less than the stride"));
    }
    return (size - 1) * stride + base + extra;
  }
  Tensor cut(Tensor output, const std::array<int64_t, kN>& front,
             const std::array<int64_t, kN>& end) const {
    std::vector<int64_t> pads;
    bool grows = false;
    for (std::size_t i = kN; i-- > 0;) {
      pads.push_back(-front[i]);
      pads.push_back(-end[i]);
      grows = grows || front[i] < 0 || end[i] < 0;
    }
    if (grows) {
      output = at::constant_pad_nd(output, pads);
    } else {
      for (std::size_t i = 0; i < kN; ++i) {
        const int64_t axis = static_cast<int64_t>(i) + 2;
        output = output.narrow(axis, front[i], output.size(axis) - front[i] - end[i]);
      }
    }
    const Tensor bias = this->bias();
    if (!bias.defined()) return output.clone();  // activations work in place
    Shape wide(kN + 2, 1);
    wide[1] = filters();
    return output + bias.view(wide);
  }
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
Conv1DTranspose::Conv1DTranspose(int64_t filters, int64_t kernel_size,
                                 const Conv1DTransposeOptions& options)
    : Layer(std::make_shared<ConvTransposeImpl<int64_t>>(
          ConvTransposeArguments<int64_t>{filters, kernel_size, options})) {}
Conv2DTranspose::Conv2DTranspose(int64_t filters, Size2 kernel_size,
                                 const Conv2DTransposeOptions& options)
    : Layer(std::make_shared<ConvTransposeImpl<Size2>>(
          ConvTransposeArguments<Size2>{filters, kernel_size, options})) {}
Conv3DTranspose::Conv3DTranspose(int64_t filters, Size3 kernel_size,
                                 const Conv3DTransposeOptions& options)
    : Layer(std::make_shared<ConvTransposeImpl<Size3>>(
          ConvTransposeArguments<Size3>{filters, kernel_size, options})) {}
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
    {"Conv1DTranspose", make_configured<ConvTransposeImpl<int64_t>>},
    {"Conv2DTranspose", make_configured<ConvTransposeImpl<Size2>>},
    {"Conv3DTranspose", make_configured<ConvTransposeImpl<Size3>>},
    {"DepthwiseConv1D", make_configured<DepthwiseConvImpl<int64_t>>},
    {"DepthwiseConv2D", make_configured<DepthwiseConvImpl<Size2>>},
    {"SeparableConv1D", make_configured<SeparableConvImpl<int64_t>>},
    {"SeparableConv2D", make_configured<SeparableConvImpl<Size2>>},
};

}  // namespace

LayerFamily convolution_layers() { return kConvolutions; }

}  // namespace tutti::keras::layers
