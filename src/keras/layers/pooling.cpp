// Pooling over windows and over everything.

#include <limits>

#include "keras/layers/windows.h"

namespace tutti::keras::layers {
namespace {

enum class Pool { kMax, kAverage };

template <class Size>
struct PoolingArguments {
  Size pool_size = 2;
  PoolingOptions<Size> options;
  template <class Io>
  void visit(Io&& io) {
    io("pool_size", pool_size);
    io("strides", options.strides);
    io("padding", options.padding);
  }
};

/// With gradient (zero) for a batch without rows, which LibTorch's pooling refuses.
Tensor empty_output(const Tensor& input, const Shape& shape) {
  return input.new_empty(shape) + input.sum();
}

template <class Size, Pool kPool>
class PoolingImpl final : public ConfiguredLayer<PoolingArguments<Size>> {
  static constexpr std::size_t kN = kRank<Size>;
  static constexpr const char* kNames[2][3] = {
      {"MaxPooling1D", "MaxPooling2D", "MaxPooling3D"},
      {"AveragePooling1D", "AveragePooling2D", "AveragePooling3D"}};

 public:
  explicit PoolingImpl(PoolingArguments<Size> arguments)
      : ConfiguredLayer<PoolingArguments<Size>>(kNames[static_cast<int>(kPool)][kN - 1],
                                                std::move(arguments)) {
    const Size& size = this->arguments().pool_size;
    window_.kernel = values_of(size);
    window_.stride = values_of(this->options().strides.value_or(size));
    window_.dilation.fill(1);
    window_.padding = padding_kind(*this, this->options().padding);
    window_.check(*this, "pool_size");
    if (kN == 1) {  // as images of one row
      kernel_.push_back(1);
      stride_.push_back(1);
    }
    kernel_.insert(kernel_.end(), window_.kernel.begin(), window_.kernel.end());
    stride_.insert(stride_.end(), window_.stride.begin(), window_.stride.end());
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    return window_.output_shape(*this, input, input.back());
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    if (input.size(0) == 0) return empty_output(input, compute_output_shape(input.sizes().vec()));
    Tensor images = to_channels_first(input);
    const std::vector<int64_t> pads = window_.pads(images);
    if (kN == 1) images = images.unsqueeze(2);
    Tensor output = kPool == Pool::kMax ? largest(images, pads) : mean(images, pads);
    if (kN == 1) output = output.squeeze(2);
    return to_channels_last(output);
  }

 private:
  Tensor largest(Tensor images, const std::vector<int64_t>& pads) const {
    if (!pads.empty())
      images = at::constant_pad_nd(images, pads, -std::numeric_limits<double>::infinity());
    return kN == 3 ? at::max_pool3d(images, kernel_, stride_)
                   : at::max_pool2d(images, kernel_, stride_);
  }
  Tensor mean(const Tensor& images, const std::vector<int64_t>& pads) const {
    if (pads.empty()) return averages(images, std::nullopt);
    // The entries outside the image do not count: sums are divided by how many lie inside.
    Shape one = images.sizes().vec();
    one[0] = one[1] = 1;
    const Tensor inside = at::constant_pad_nd(at::ones(one, images.options()), pads);
    return averages(at::constant_pad_nd(images, pads), 1) / averages(inside, 1);
  }
  Tensor averages(const Tensor& images, std::optional<int64_t> divisor) const {
    if (kN != 3) return at::avg_pool2d(images, kernel_, stride_, 0, false, true, divisor);
    // Not made for half precision on CPUs.
    const bool wide = images.is_cpu() && at::isReducedFloatingType(images.scalar_type());
    return at::avg_pool3d(wide ? images.to(at::kFloat) : images, kernel_, stride_, 0, false, true,
                          divisor)
        .to(images.scalar_type());
  }

  Window<kN> window_;
  std::vector<int64_t> kernel_, stride_;
};

struct GlobalPoolingArguments {
  GlobalPoolingOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("keepdims", options.keepdims);
  }
};

template <std::size_t kN, Pool kPool>
class GlobalPoolingImpl final : public ConfiguredLayer<GlobalPoolingArguments> {
  static constexpr const char* kNames[2][3] = {
      {"GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D"},
      {"GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D"}};
  static constexpr bool kMasked = kN == 1 && kPool == Pool::kAverage;

 public:
  explicit GlobalPoolingImpl(GlobalPoolingArguments arguments)
      : ConfiguredLayer(kNames[static_cast<int>(kPool)][kN - 1], std::move(arguments)) {}
  // The steps are gone, and their mask with them.
  Tensor compute_mask(const std::vector<Tensor>&, const CallArguments&) const override {
    return {};
  }
  bool supports_masking() const override { return kMasked; }
  bool uses_masks() const override { return kMasked; }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    Shape output{input[0]};
    if (options().keepdims) output.insert(output.end(), kN, 1);
    output.push_back(input.back());
    return output;
  }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& context) override {
    const Tensor& input = inputs.at(0);
    const bool keepdims = options().keepdims;
    const Tensor mask = context.mask(0);
    if (kMasked && mask.defined()) {
      const Tensor counts = mask.unsqueeze(-1);
      const Tensor number = counts.sum(1, keepdims).clamp_min(1).to(input.scalar_type());
      return {input.masked_fill(counts.logical_not(), 0).sum(1, keepdims) / number};
    }
    Shape axes;
    for (std::size_t i = 1; i <= kN; ++i) axes.push_back(static_cast<int64_t>(i));
    if (kPool == Pool::kAverage) return {input.mean(axes, keepdims)};
    if (input.size(0) == 0) return {empty_output(input, compute_output_shape(input.sizes().vec()))};
    return {input.amax(axes, keepdims)};
  }
};

template <class Size>
struct AdaptivePoolingArguments {
  Size output_size = 1;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("output_size", output_size);
  }
};

template <class Size, Pool kPool>
class AdaptivePoolingImpl final : public ConfiguredLayer<AdaptivePoolingArguments<Size>> {
  static constexpr std::size_t kN = kRank<Size>;
  static constexpr const char* kNames[2][3] = {
      {"AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D"},
      {"AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D"}};

 public:
  explicit AdaptivePoolingImpl(AdaptivePoolingArguments<Size> arguments)
      : ConfiguredLayer<AdaptivePoolingArguments<Size>>(kNames[static_cast<int>(kPool)][kN - 1],
                                                        std::move(arguments)) {
    if (kN == 1) size_.push_back(1);  // as images of one row
    for (int64_t size : values_of(this->arguments().output_size)) {
      check_positive(*this, "output_size", size);
      size_.push_back(size);
    }
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input, kN);
    Shape output{input[0]};
    output.insert(output.end(), size_.end() - kN, size_.end());
    output.push_back(input.back());
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const Shape shape = compute_output_shape(input.sizes().vec());
    if (input.size(0) == 0) return empty_output(input, shape);
    // Not made for half precision on CPUs.
    const bool wide = input.is_cpu() && at::isReducedFloatingType(input.scalar_type());
    Tensor images = to_channels_first(wide ? input.to(at::kFloat) : input);
    if (kN == 1) images = images.unsqueeze(2);
    Tensor output = kPool == Pool::kMax ? largest(images) : mean(images);
    if (kN == 1) output = output.squeeze(2);
    return to_channels_last(output).to(input.scalar_type());
  }

 private:
  Tensor largest(const Tensor& images) const {
    return std::get<0>(kN == 3 ? at::adaptive_max_pool3d(images, size_)
                               : at::adaptive_max_pool2d(images, size_));
  }
  Tensor mean(const Tensor& images) const {
    return kN == 3 ? at::adaptive_avg_pool3d(images, size_)
                   : at::adaptive_avg_pool2d(images, size_);
  }

  std::vector<int64_t> size_;
};

template <class Size>
using AdaptiveMaxPoolingImpl = AdaptivePoolingImpl<Size, Pool::kMax>;
template <class Size>
using AdaptiveAveragePoolingImpl = AdaptivePoolingImpl<Size, Pool::kAverage>;
template <class Size>
using MaxPoolingImpl = PoolingImpl<Size, Pool::kMax>;
template <class Size>
using AveragePoolingImpl = PoolingImpl<Size, Pool::kAverage>;
template <std::size_t kN>
using GlobalMaxPoolingImpl = GlobalPoolingImpl<kN, Pool::kMax>;
template <std::size_t kN>
using GlobalAveragePoolingImpl = GlobalPoolingImpl<kN, Pool::kAverage>;

template <class Impl, class Size>
std::shared_ptr<LayerImpl> pooling(const Size& pool_size, const PoolingOptions<Size>& options) {
  return std::make_shared<Impl>(PoolingArguments<Size>{pool_size, options});
}
template <template <class> class Impl, class Size>
std::shared_ptr<LayerImpl> adaptive(const Size& output_size, const LayerOptions& options) {
  return std::make_shared<Impl<Size>>(AdaptivePoolingArguments<Size>{output_size, options});
}
template <class Impl>
std::shared_ptr<LayerImpl> global(const GlobalPoolingOptions& options) {
  return std::make_shared<Impl>(GlobalPoolingArguments{options});
}

}  // namespace

MaxPooling1D::MaxPooling1D(int64_t pool_size, const Pooling1DOptions& options)
    : Layer(pooling<MaxPoolingImpl<int64_t>>(pool_size, options)) {}
MaxPooling2D::MaxPooling2D(Size2 pool_size, const Pooling2DOptions& options)
    : Layer(pooling<MaxPoolingImpl<Size2>>(pool_size, options)) {}
MaxPooling3D::MaxPooling3D(Size3 pool_size, const Pooling3DOptions& options)
    : Layer(pooling<MaxPoolingImpl<Size3>>(pool_size, options)) {}
AveragePooling1D::AveragePooling1D(int64_t pool_size, const Pooling1DOptions& options)
    : Layer(pooling<AveragePoolingImpl<int64_t>>(pool_size, options)) {}
AveragePooling2D::AveragePooling2D(Size2 pool_size, const Pooling2DOptions& options)
    : Layer(pooling<AveragePoolingImpl<Size2>>(pool_size, options)) {}
AveragePooling3D::AveragePooling3D(Size3 pool_size, const Pooling3DOptions& options)
    : Layer(pooling<AveragePoolingImpl<Size3>>(pool_size, options)) {}
GlobalMaxPooling1D::GlobalMaxPooling1D(const GlobalPoolingOptions& options)
    : Layer(global<GlobalMaxPoolingImpl<1>>(options)) {}
GlobalMaxPooling2D::GlobalMaxPooling2D(const GlobalPoolingOptions& options)
    : Layer(global<GlobalMaxPoolingImpl<2>>(options)) {}
GlobalMaxPooling3D::GlobalMaxPooling3D(const GlobalPoolingOptions& options)
    : Layer(global<GlobalMaxPoolingImpl<3>>(options)) {}
GlobalAveragePooling1D::GlobalAveragePooling1D(const GlobalPoolingOptions& options)
    : Layer(global<GlobalAveragePoolingImpl<1>>(options)) {}
GlobalAveragePooling2D::GlobalAveragePooling2D(const GlobalPoolingOptions& options)
    : Layer(global<GlobalAveragePoolingImpl<2>>(options)) {}
GlobalAveragePooling3D::GlobalAveragePooling3D(const GlobalPoolingOptions& options)
    : Layer(global<GlobalAveragePoolingImpl<3>>(options)) {}

AdaptiveAveragePooling1D::AdaptiveAveragePooling1D(int64_t output_size, const LayerOptions& options)
    : Layer(adaptive<AdaptiveAveragePoolingImpl>(output_size, options)) {}
AdaptiveAveragePooling2D::AdaptiveAveragePooling2D(Size2 output_size, const LayerOptions& options)
    : Layer(adaptive<AdaptiveAveragePoolingImpl>(output_size, options)) {}
AdaptiveAveragePooling3D::AdaptiveAveragePooling3D(Size3 output_size, const LayerOptions& options)
    : Layer(adaptive<AdaptiveAveragePoolingImpl>(output_size, options)) {}
AdaptiveMaxPooling1D::AdaptiveMaxPooling1D(int64_t output_size, const LayerOptions& options)
    : Layer(adaptive<AdaptiveMaxPoolingImpl>(output_size, options)) {}
AdaptiveMaxPooling2D::AdaptiveMaxPooling2D(Size2 output_size, const LayerOptions& options)
    : Layer(adaptive<AdaptiveMaxPoolingImpl>(output_size, options)) {}
AdaptiveMaxPooling3D::AdaptiveMaxPooling3D(Size3 output_size, const LayerOptions& options)
    : Layer(adaptive<AdaptiveMaxPoolingImpl>(output_size, options)) {}

namespace {

constexpr LayerEntry kPooling[] = {
    {"MaxPooling1D", make_configured<MaxPoolingImpl<int64_t>>},
    {"MaxPooling2D", make_configured<MaxPoolingImpl<Size2>>},
    {"MaxPooling3D", make_configured<MaxPoolingImpl<Size3>>},
    {"AveragePooling1D", make_configured<AveragePoolingImpl<int64_t>>},
    {"AveragePooling2D", make_configured<AveragePoolingImpl<Size2>>},
    {"AveragePooling3D", make_configured<AveragePoolingImpl<Size3>>},
    {"AdaptiveAveragePooling1D", make_configured<AdaptiveAveragePoolingImpl<int64_t>>},
    {"AdaptiveAveragePooling2D", make_configured<AdaptiveAveragePoolingImpl<Size2>>},
    {"AdaptiveAveragePooling3D", make_configured<AdaptiveAveragePoolingImpl<Size3>>},
    {"AdaptiveMaxPooling1D", make_configured<AdaptiveMaxPoolingImpl<int64_t>>},
    {"AdaptiveMaxPooling2D", make_configured<AdaptiveMaxPoolingImpl<Size2>>},
    {"AdaptiveMaxPooling3D", make_configured<AdaptiveMaxPoolingImpl<Size3>>},
    {"GlobalMaxPooling1D", make_configured<GlobalMaxPoolingImpl<1>>},
    {"GlobalMaxPooling2D", make_configured<GlobalMaxPoolingImpl<2>>},
    {"GlobalMaxPooling3D", make_configured<GlobalMaxPoolingImpl<3>>},
    {"GlobalAveragePooling1D", make_configured<GlobalAveragePoolingImpl<1>>},
    {"GlobalAveragePooling2D", make_configured<GlobalAveragePoolingImpl<2>>},
    {"GlobalAveragePooling3D", make_configured<GlobalAveragePoolingImpl<3>>},
};

}  // namespace

LayerFamily pooling_layers() { return kPooling; }

}  // namespace tutti::keras::layers
