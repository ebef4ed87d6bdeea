#pragma once
// Windows that slide over channels-last sequences, images and volumes, and how these lie in memory.

#include "keras/layers/config.h"

namespace tutti::keras::layers {

/// The axes between batch and channels of sequences, images and volumes.
inline constexpr const char* kAxisNames[] = {"steps", "height, width", "depth, height, width"};
/// Rank and channels of a batch with N axes between batch and channels; InvalidArgument otherwise.
inline void check_images(const LayerImpl& layer, const Shape& input, std::size_t n) {
  if (input.size() == n + 2 && input.back() > 0) return;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: input of shape ",
                            shape_text(input), ", expected (batch, ", kAxisNames[n - 1],
                            ", channels) with known channels; add a channel axis with "
                            "unsqueeze(-1)"));
}

/// How images and kernels lie in memory between layers. The numbers are the same, the speed is not;
/// this is the only place to change it.
enum class ImageMemory { kChannelsLast, kChannelsFirst };
inline constexpr ImageMemory kImageMemory = ImageMemory::kChannelsLast;

/// In which order a kernel [window…, a, b] is stored, so that LibTorch sees [b, a, window…] in the
/// memory format of the images.
inline std::vector<int64_t> kernel_storage_order(std::size_t n) {
  const auto rank = static_cast<int64_t>(n);
  std::vector<int64_t> order{rank + 1};
  if (kImageMemory == ImageMemory::kChannelsFirst) order.push_back(rank);
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  if (kImageMemory == ImageMemory::kChannelsLast) order.push_back(rank);
  return order;
}
/// [window…, a, b] → [b, a, window…], a view.
inline Tensor kernel_view(const Tensor& kernel) {
  switch (kernel.dim()) {
    case 3:
      return kernel.permute({2, 1, 0});
    case 4:
      return kernel.permute({3, 2, 0, 1});
    default:
      return kernel.permute({4, 3, 0, 1, 2});
  }
}
/// Images from the user's order to LibTorch's. With kChannelsFirst the first layer copies, the
/// others find their input as they want it.
inline Tensor to_channels_first(const Tensor& images) {
  const Tensor view = images.dim() == 3   ? images.permute({0, 2, 1})
                      : images.dim() == 4 ? images.permute({0, 3, 1, 2})
                                          : images.permute({0, 4, 1, 2, 3});
  return kImageMemory == ImageMemory::kChannelsLast ? view : view.contiguous();
}
/// And back: the same memory.
inline Tensor to_channels_last(const Tensor& images) {
  return images.dim() == 3   ? images.permute({0, 2, 1})
         : images.dim() == 4 ? images.permute({0, 2, 3, 1})
                             : images.permute({0, 2, 3, 4, 1});
}

/// What is added to one axis in front and at the end.
struct Padding {
  int64_t before;
  int64_t after;
};
/// For "same": the extra one at the end.
inline Padding same_padding(int64_t size, int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t out = (size + stride - 1) / stride;
  const int64_t total =
      std::max<int64_t>(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size);
  return {total / 2, total - total / 2};
}

enum class PaddingKind { kValid, kSame, kCausal };
inline PaddingKind padding_kind(const LayerImpl& layer, const std::string& padding,
                                bool causal = false) {
  if (padding == "same") return PaddingKind::kSame;
  if (padding == "valid") return PaddingKind::kValid;
  if (causal && padding == "causal") return PaddingKind::kCausal;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: padding \"", padding,
                            "\", expected \"valid\"", causal ? ", \"causal\"" : "",
                            " or \"same\""));
}

/// A window over N axes.
template <std::size_t N>
struct Window {
  using Sizes = std::array<int64_t, N>;
  Sizes kernel;
  Sizes stride;
  Sizes dilation;
  PaddingKind padding;

  void check(const LayerImpl& layer, const char* kernel_name) const {
    for (std::size_t i = 0; i < N; ++i) {
      check_positive(layer, kernel_name, kernel[i]);
      check_positive(layer, "strides", stride[i]);
      check_positive(layer, "dilation_rate", dilation[i]);
    }
  }
  Padding padding_of(std::size_t axis, int64_t size) const {
    if (padding == PaddingKind::kValid) return {0, 0};
    if (padding == PaddingKind::kCausal) return {(kernel[axis] - 1) * dilation[axis], 0};
    return same_padding(size, kernel[axis], stride[axis], dilation[axis]);
  }
  /// Output size of one axis; -1 for -1. InvalidArgument when the window does not fit.
  int64_t output(const LayerImpl& layer, std::size_t axis, int64_t size) const {
    if (size < 0) return -1;
    if (padding != PaddingKind::kValid) return (size + stride[axis] - 1) / stride[axis];
    const int64_t reach = (kernel[axis] - 1) * dilation[axis] + 1;
    if (size < reach) {
      throw InvalidArgument(
          cat(layer.class_name(), " [", layer.name(), "]: an image of ", size,
              " rows or columns for a window of ", reach,
              ", expected at least the window; use padding \"same\" or a smaller window"));
    }
    return (size - reach) / stride[axis] + 1;
  }
  /// [batch, sizes…, channels] → [batch, output sizes…, filters].
  Shape output_shape(const LayerImpl& layer, const Shape& input, int64_t filters) const {
    Shape output{input[0]};
    for (std::size_t i = 0; i < N; ++i) output.push_back(this->output(layer, i, input[i + 1]));
    output.push_back(filters);
    return output;
  }
  /// Padding of images [batch, channels, sizes…] in the order of constant_pad_nd; empty when there
  /// is none to add.
  std::vector<int64_t> pads(const Tensor& images) const {
    std::vector<int64_t> pads;
    bool any = false;
    for (std::size_t i = N; i-- > 0;) {
      const Padding one = padding_of(i, images.size(static_cast<int64_t>(i) + 2));
      pads.push_back(one.before);
      pads.push_back(one.after);
      any = any || one.before > 0 || one.after > 0;
    }
    if (!any) pads.clear();
    return pads;
  }
};

}  // namespace tutti::keras::layers
