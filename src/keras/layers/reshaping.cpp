// Layers that move, repeat, cut and pad.

#include <algorithm>

#include "keras/layers/windows.h"

namespace tutti::keras::layers {
namespace {

/// Product of the sizes behind the batch axis; -1 when one is unknown.
int64_t sample_numel(const Shape& input) {
  int64_t numel = 1;
  for (std::size_t i = 1; i < input.size(); ++i) {
    if (input[i] < 0) return -1;
    numel *= input[i];
  }
  return numel;
}

class FlattenImpl final : public ConfiguredLayer<NoArguments> {
 public:
  explicit FlattenImpl(NoArguments arguments) : ConfiguredLayer("Flatten", arguments) {}
  Shape compute_output_shape(const Shape& input) const override {
    if (input.empty())
      throw InvalidArgument(cat("Flatten [", name(), "]: a scalar input, expected a batch"));
    return {input[0], sample_numel(input)};
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return input.reshape({input.size(0), sample_numel(input.sizes().vec())});
  }
};

struct ReshapeArguments {
  Shape target_shape;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("target_shape", target_shape);
  }
};

class ReshapeImpl final : public ConfiguredLayer<ReshapeArguments> {
 public:
  explicit ReshapeImpl(ReshapeArguments arguments)
      : ConfiguredLayer("Reshape", std::move(arguments)) {}
  Shape compute_output_shape(const Shape& input) const override {
    const Shape& target = arguments().target_shape;
    const int64_t numel = sample_numel(input);
    Shape output{input.empty() ? -1 : input[0]};
    int64_t known = 1;
    int unknown = 0;
    for (int64_t size : target) {
      output.push_back(size);
      if (size < 0)
        ++unknown;
      else
        known *= size;
    }
    const bool fits =
        numel < 0 || (unknown == 0 ? known == numel : known > 0 && numel % known == 0);
    if (input.empty() || unknown > 1 || !fits) {
      throw InvalidArgument(cat(
          "Reshape [", name(), "]: input of shape ", shape_text(input), " to ", shape_text(target),
          ", expected the same number of entries a sample and at most one -1"));
    }
    for (int64_t& size : output) {
      if (&size != &output[0] && size < 0 && numel >= 0) size = numel / known;
    }
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return input.reshape(compute_output_shape(input.sizes().vec()));
  }
};

struct PermuteArguments {
  std::vector<int64_t> dims;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("dims", dims);
  }
};

class PermuteImpl final : public ConfiguredLayer<PermuteArguments> {
 public:
  explicit PermuteImpl(PermuteArguments arguments)
      : ConfiguredLayer("Permute", std::move(arguments)) {
    const auto& dims = this->arguments().dims;
    std::vector<int64_t> sorted = dims;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i] != static_cast<int64_t>(i) + 1)
        throw InvalidArgument(cat("Permute [", name(), "]: dims ", shape_text(dims),
                                  ", expected each number from 1 to ", dims.size(), " once"));
    }
    order_.push_back(0);
    order_.insert(order_.end(), dims.begin(), dims.end());
  }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.size() != order_.size()) {
      throw InvalidArgument(cat("Permute [", name(), "]: input of shape ", shape_text(input),
                                ", expected rank ", order_.size(), ", one more than dims"));
    }
    Shape output;
    for (int64_t axis : order_) output.push_back(input[static_cast<std::size_t>(axis)]);
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override { return input.permute(order_); }

 private:
  std::vector<int64_t> order_;
};

struct RepeatVectorArguments {
  int64_t n = 1;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("n", n);
  }
};

class RepeatVectorImpl final : public ConfiguredLayer<RepeatVectorArguments> {
 public:
  explicit RepeatVectorImpl(RepeatVectorArguments arguments)
      : ConfiguredLayer("RepeatVector", std::move(arguments)) {
    check_positive(*this, "n", this->arguments().n);
  }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.size() != 2)
      throw InvalidArgument(cat("RepeatVector [", name(), "]: input of shape ", shape_text(input),
                                ", expected (batch, features)"));
    return {input[0], arguments().n, input[1]};
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return input.unsqueeze(1).repeat({1, arguments().n, 1});
  }
};

// ---- edges

std::array<Border1, 1> borders_of(const Border1& border) { return {border}; }
std::array<Border1, 2> borders_of(const Border2& border) { return {border.rows, border.columns}; }
std::array<Border1, 3> borders_of(const Border3& border) {
  return {border.planes, border.rows, border.columns};
}

template <class Border>
struct CroppingArguments {
  Border cropping = 0;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("cropping", cropping);
  }
};
template <class Border>
struct PaddingArguments {
  Border padding = 1;
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("padding", padding);
  }
};

template <class Borders>
void check_borders(const LayerImpl& layer, const Borders& borders) {
  for (const Border1& border : borders) {
    if (border.before < 0 || border.after < 0)
      throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: ", border.before,
                                " and ", border.after, " entries, expected 0 or more"));
  }
}
template <std::size_t N>
void check_rank(const LayerImpl& layer, const Shape& input) {
  if (input.size() == N + 2) return;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: input of shape ",
                            shape_text(input), ", expected rank ", N + 2,
                            " with the batch first and channels last"));
}

template <class Border>
class CroppingImpl final : public ConfiguredLayer<CroppingArguments<Border>> {
  using Borders = decltype(borders_of(std::declval<Border>()));
  static constexpr std::size_t kN = std::tuple_size_v<Borders>;
  static constexpr const char* kNames[] = {"Cropping1D", "Cropping2D", "Cropping3D"};

 public:
  explicit CroppingImpl(CroppingArguments<Border> arguments)
      : ConfiguredLayer<CroppingArguments<Border>>(kNames[kN - 1], std::move(arguments)),
        borders_(borders_of(this->arguments().cropping)) {
    check_borders(*this, borders_);
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_rank<kN>(*this, input);
    Shape output = input;
    for (std::size_t i = 0; i < kN; ++i) {
      if (input[i + 1] < 0) continue;
      output[i + 1] = input[i + 1] - borders_[i].before - borders_[i].after;
      if (output[i + 1] < 1) {
        throw InvalidArgument(cat(this->class_name(), " [", this->name(), "]: ", borders_[i].before,
                                  " and ", borders_[i].after, " entries cut off ", input[i + 1],
                                  ", expected at least one to be left"));
      }
    }
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const Shape output = compute_output_shape(input.sizes().vec());
    Tensor inner = input;
    for (std::size_t i = 0; i < kN; ++i)
      inner = inner.narrow(static_cast<int64_t>(i) + 1, borders_[i].before, output[i + 1]);
    return inner;
  }

 private:
  Borders borders_;
};

template <class Border>
class ZeroPaddingImpl final : public ConfiguredLayer<PaddingArguments<Border>> {
  using Borders = decltype(borders_of(std::declval<Border>()));
  static constexpr std::size_t kN = std::tuple_size_v<Borders>;
  static constexpr const char* kNames[] = {"ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D"};

 public:
  explicit ZeroPaddingImpl(PaddingArguments<Border> arguments)
      : ConfiguredLayer<PaddingArguments<Border>>(kNames[kN - 1], std::move(arguments)),
        borders_(borders_of(this->arguments().padding)) {
    check_borders(*this, borders_);
    pads_ = {0, 0};
    for (std::size_t i = kN; i-- > 0;)
      pads_.insert(pads_.end(), {borders_[i].before, borders_[i].after});
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_rank<kN>(*this, input);
    Shape output = input;
    for (std::size_t i = 0; i < kN; ++i) {
      if (input[i + 1] >= 0) output[i + 1] += borders_[i].before + borders_[i].after;
    }
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return at::constant_pad_nd(input, pads_);
  }

 private:
  Borders borders_;
  std::vector<int64_t> pads_;
};

// ---- up-sampling

template <class Size, class Options>
struct UpSamplingArguments {
  Size size = 2;
  Options options;
  template <class Io>
  void visit(Io&& io) {
    io("size", size);
    if constexpr (requires { options.interpolation; }) io("interpolation", options.interpolation);
  }
};

template <class Size, class Options = LayerOptions>
class UpSamplingImpl final : public ConfiguredLayer<UpSamplingArguments<Size, Options>> {
  static constexpr std::size_t kN = kRank<Size>;
  static constexpr const char* kNames[] = {"UpSampling1D", "UpSampling2D", "UpSampling3D"};

 public:
  explicit UpSamplingImpl(UpSamplingArguments<Size, Options> arguments)
      : ConfiguredLayer<UpSamplingArguments<Size, Options>>(kNames[kN - 1], std::move(arguments)),
        size_(values_of(this->arguments().size)) {
    for (int64_t size : size_) check_positive(*this, "size", size);
    if constexpr (kN == 2) {
      const std::string& interpolation = this->options().interpolation;
      bilinear_ = interpolation == "bilinear";
      if (!bilinear_ && interpolation != "nearest")
        throw InvalidArgument(cat("UpSampling2D [", this->name(), "]: interpolation \"",
                                  interpolation, "\", expected \"nearest\" or \"bilinear\""));
    }
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_rank<kN>(*this, input);
    Shape output = input;
    for (std::size_t i = 0; i < kN; ++i) {
      if (input[i + 1] >= 0) output[i + 1] *= size_[i];
    }
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const Shape shape = compute_output_shape(input.sizes().vec());
    if constexpr (kN == 1) {
      return input.unsqueeze(2)
          .expand({input.size(0), input.size(1), size_[0], input.size(2)})
          .reshape(shape);
    } else {
      if (input.numel() == 0) return input.new_empty(shape) + input.sum();
      const Tensor images = to_channels_first(input);
      const at::IntArrayRef sizes(shape.data() + 1, kN);
      if constexpr (kN == 2) {
        return to_channels_last(
            bilinear_ ? at::upsample_bilinear2d(images, sizes, /*align_corners=*/false)
                      : at::upsample_nearest2d(images, sizes));
      } else {
        return to_channels_last(at::upsample_nearest3d(images, sizes));
      }
    }
  }

 private:
  std::array<int64_t, kN> size_;
  bool bilinear_ = false;
};

using UpSampling1DImpl = UpSamplingImpl<int64_t>;
using UpSampling2DImpl = UpSamplingImpl<Size2, UpSampling2DOptions>;
using UpSampling3DImpl = UpSamplingImpl<Size3>;

Border2 border_of(const int64_t (&pairs)[2][2]) {
  return {{pairs[0][0], pairs[0][1]}, {pairs[1][0], pairs[1][1]}};
}
Border3 border_of(const int64_t (&pairs)[3][2]) {
  return {{pairs[0][0], pairs[0][1]}, {pairs[1][0], pairs[1][1]}, {pairs[2][0], pairs[2][1]}};
}

template <class Border>
std::shared_ptr<LayerImpl> cropping(const Border& border, const LayerOptions& options) {
  return std::make_shared<CroppingImpl<Border>>(CroppingArguments<Border>{border, options});
}
template <class Border>
std::shared_ptr<LayerImpl> padding(const Border& border, const LayerOptions& options) {
  return std::make_shared<ZeroPaddingImpl<Border>>(PaddingArguments<Border>{border, options});
}

}  // namespace

Flatten::Flatten(const LayerOptions& options)
    : Layer(std::make_shared<FlattenImpl>(NoArguments{options})) {}
Reshape::Reshape(const Shape& target, const LayerOptions& options)
    : Layer(std::make_shared<ReshapeImpl>(ReshapeArguments{target, options})) {}
Permute::Permute(const std::vector<int64_t>& dims, const LayerOptions& options)
    : Layer(std::make_shared<PermuteImpl>(PermuteArguments{dims, options})) {}
RepeatVector::RepeatVector(int64_t n, const LayerOptions& options)
    : Layer(std::make_shared<RepeatVectorImpl>(RepeatVectorArguments{n, options})) {}
Cropping1D::Cropping1D(Border1 border, const LayerOptions& options)
    : Layer(cropping(border, options)) {}
Cropping2D::Cropping2D(const int64_t (&pairs)[2][2], const LayerOptions& options)
    : Cropping2D(border_of(pairs), options) {}
Cropping2D::Cropping2D(Border2 border, const LayerOptions& options)
    : Layer(cropping(border, options)) {}
Cropping3D::Cropping3D(const int64_t (&pairs)[3][2], const LayerOptions& options)
    : Cropping3D(border_of(pairs), options) {}
Cropping3D::Cropping3D(Border3 border, const LayerOptions& options)
    : Layer(cropping(border, options)) {}
ZeroPadding1D::ZeroPadding1D(Border1 border, const LayerOptions& options)
    : Layer(padding(border, options)) {}
ZeroPadding2D::ZeroPadding2D(const int64_t (&pairs)[2][2], const LayerOptions& options)
    : ZeroPadding2D(border_of(pairs), options) {}
ZeroPadding2D::ZeroPadding2D(Border2 border, const LayerOptions& options)
    : Layer(padding(border, options)) {}
ZeroPadding3D::ZeroPadding3D(const int64_t (&pairs)[3][2], const LayerOptions& options)
    : ZeroPadding3D(border_of(pairs), options) {}
ZeroPadding3D::ZeroPadding3D(Border3 border, const LayerOptions& options)
    : Layer(padding(border, options)) {}
UpSampling1D::UpSampling1D(int64_t size, const LayerOptions& options)
    : Layer(std::make_shared<UpSampling1DImpl>(UpSampling1DImpl::Arguments{size, options})) {}
UpSampling2D::UpSampling2D(Size2 size, const UpSampling2DOptions& options)
    : Layer(std::make_shared<UpSampling2DImpl>(UpSampling2DImpl::Arguments{size, options})) {}
UpSampling3D::UpSampling3D(Size3 size, const LayerOptions& options)
    : Layer(std::make_shared<UpSampling3DImpl>(UpSampling3DImpl::Arguments{size, options})) {}

namespace {

constexpr LayerEntry kReshaping[] = {
    {"Flatten", make_configured<FlattenImpl>},
    {"Reshape", make_configured<ReshapeImpl>},
    {"Permute", make_configured<PermuteImpl>},
    {"RepeatVector", make_configured<RepeatVectorImpl>},
    {"Cropping1D", make_configured<CroppingImpl<Border1>>},
    {"Cropping2D", make_configured<CroppingImpl<Border2>>},
    {"Cropping3D", make_configured<CroppingImpl<Border3>>},
    {"ZeroPadding1D", make_configured<ZeroPaddingImpl<Border1>>},
    {"ZeroPadding2D", make_configured<ZeroPaddingImpl<Border2>>},
    {"ZeroPadding3D", make_configured<ZeroPaddingImpl<Border3>>},
    {"UpSampling1D", make_configured<UpSampling1DImpl>},
    {"UpSampling2D", make_configured<UpSampling2DImpl>},
    {"UpSampling3D", make_configured<UpSampling3DImpl>},
};

}  // namespace

LayerFamily reshaping_layers() { return kReshaping; }

}  // namespace tutti::keras::layers
