#pragma once
// What all convolutions share: the window, the bias, the last steps of a call. They go through
// LibTorch's convolution with channels second; sequences, images and volumes are one template.

#include "keras/layers/windows.h"

namespace tutti::keras::layers {

/// `Arguments` has kernel_size, and options with strides, padding, dilation_rate, use_bias, …
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
    return this->penalised(to_channels_last(activate(this->options().activation, output)));
  }

  static constexpr std::array<int64_t, kN> kNoOutputPadding{};
  Window<kN> window_;
  Variable bias_;
};

}  // namespace tutti::keras::layers
