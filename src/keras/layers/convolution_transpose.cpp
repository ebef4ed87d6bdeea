// Transposed convolutions.

#include "keras/layers/convolution.h"

namespace tutti::keras::layers {
namespace {

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

}  // namespace

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

namespace {

constexpr LayerEntry kTransposed[] = {
    {"Conv1DTranspose", make_configured<ConvTransposeImpl<int64_t>>},
    {"Conv2DTranspose", make_configured<ConvTransposeImpl<Size2>>},
    {"Conv3DTranspose", make_configured<ConvTransposeImpl<Size3>>},
};

}  // namespace

LayerFamily transposed_convolution_layers() { return kTransposed; }

}  // namespace tutti::keras::layers
