// Normalisation of each sample by itself.

#include "keras/layers/normalization.h"

#include <algorithm>

namespace tutti::keras::layers {
namespace {

/// Axes from the front, in rising order; InvalidArgument when one is missing, named twice, or the
/// batch's.
std::vector<int64_t> axes_of(const LayerImpl& layer, const std::vector<int64_t>& given,
                             const Shape& input) {
  std::vector<int64_t> axes;
  for (int64_t axis : given) axes.push_back(axis_of(layer, axis, input));
  std::sort(axes.begin(), axes.end());
  const bool twice = std::adjacent_find(axes.begin(), axes.end()) != axes.end();
  if (axes.empty() || twice || axes[0] == 0)
    throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: axes ", shape_text(given),
                              " of an input of shape ", shape_text(input),
                              ", expected different axes behind the batch axis"));
  return axes;
}
/// The sizes along `axes`; InvalidArgument when one is unknown.
Shape sizes_along(const LayerImpl& layer, const std::vector<int64_t>& axes, const Shape& input) {
  Shape sizes;
  for (int64_t axis : axes) {
    sizes.push_back(input[static_cast<std::size_t>(axis)]);
    if (sizes.back() < 0)
      throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: input of shape ",
                                shape_text(input), ", expected a known size along axis ", axis));
  }
  return sizes;
}
/// True when `axes` are the last ones of `rank`.
bool are_last(const std::vector<int64_t>& axes, int64_t rank) {
  return axes.front() == rank - static_cast<int64_t>(axes.size()) && axes.back() == rank - 1;
}
/// `weight`, whose shape is that of `axes`, made to broadcast with `input`.
Tensor spread(const Tensor& weight, const std::vector<int64_t>& axes, const Tensor& input) {
  Shape shape(static_cast<std::size_t>(input.dim()), 1);
  for (int64_t axis : axes) shape[static_cast<std::size_t>(axis)] = input.size(axis);
  return weight.view(shape);
}

// ---- LayerNormalization

struct LayerNormalizationArguments {
  LayerNormalizationOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axis", options.axis);
    visit_affine(io, options);
  }
};

class LayerNormalizationImpl final : public AffineLayer<LayerNormalizationArguments> {
 public:
  explicit LayerNormalizationImpl(LayerNormalizationArguments arguments)
      : AffineLayer("LayerNormalization", std::move(arguments)) {}
  Shape compute_output_shape(const Shape& input) const override {
    sizes_along(*this, axes_of(*this, options().axis, input), input);
    return input;
  }

 protected:
  void build(const Shape& input) override {
    axes_ = axes_of(*this, options().axis, input);
    shape_ = sizes_along(*this, axes_, input);
    add_affine(shape_);
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor x = widened(input);
    if (are_last(axes_, x.dim()))
      return narrowed(at::layer_norm(x, shape_, gamma(), beta(), options().epsilon));
    const auto [variance, mean] = at::var_mean(x, axes_, /*correction=*/0, /*keepdim=*/true);
    Tensor output = (x - mean) * (variance + options().epsilon).rsqrt();
    if (const Tensor scale = gamma(); scale.defined()) output = output * spread(scale, axes_, x);
    if (const Tensor shift = beta(); shift.defined()) output = output + spread(shift, axes_, x);
    return narrowed(output);
  }

 private:
  std::vector<int64_t> axes_;
  Shape shape_;
};

// ---- GroupNormalization

struct GroupNormalizationArguments {
  GroupNormalizationOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("groups", options.groups);
    io("axis", options.axis);
    visit_affine(io, options);
  }
};

class GroupNormalizationImpl final : public AffineLayer<GroupNormalizationArguments> {
 public:
  explicit GroupNormalizationImpl(GroupNormalizationArguments arguments)
      : AffineLayer("GroupNormalization", std::move(arguments)) {
    if (options().groups != -1) check_positive(*this, "groups", options().groups);
  }
  Shape compute_output_shape(const Shape& input) const override {
    const auto axes = axes_of(*this, {options().axis}, input);
    const int64_t channels = sizes_along(*this, axes, input)[0];
    if (options().groups > 0 && (channels % options().groups != 0 || channels == 0))
      throw InvalidArgument(cat("GroupNormalization [", name(), "]: ", channels, " channels in ",
                                options().groups, " groups, expected groups that divide them"));
    return input;
  }

 protected:
  void build(const Shape& input) override {
    axis_ = axes_of(*this, {options().axis}, input)[0];
    channels_ = input[static_cast<std::size_t>(axis_)];
    add_affine({channels_});
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor x = widened(input);
    const int64_t groups = options().groups == -1 ? channels_ : options().groups;
    // By hand, and not by at::group_norm: that has a crash in its backward when only the weights'
    // gradients of channels-last images are asked for (2.13), and wants rows.
    const Tensor last = x.movedim(axis_, -1);
    const int64_t rows = x.size(0), places = rows == 0 ? 0 : x.numel() / (rows * channels_);
    const Tensor grouped = last.reshape({rows, places, groups, channels_ / groups});
    const auto [variance, mean] = at::var_mean(grouped, at::IntArrayRef{1, 3}, /*correction=*/0,
                                               /*keepdim=*/true);
    Tensor factor = (variance + options().epsilon).rsqrt();
    const Shape shape{1, 1, groups, channels_ / groups};
    if (const Tensor scale = gamma(); scale.defined()) factor = factor * scale.view(shape);
    Tensor offset = -mean * factor;
    if (const Tensor shift = beta(); shift.defined()) offset = offset + shift.view(shape);
    return narrowed(at::addcmul(offset, grouped, factor).reshape(last.sizes()).movedim(-1, axis_));
  }

 private:
  int64_t axis_ = 0;
  int64_t channels_ = 0;
};

// ---- RMSNormalization

struct RMSNormalizationArguments {
  RMSNormalizationOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axis", options.axis);
    io("epsilon", options.epsilon);
  }
};

class RMSNormalizationImpl final : public ConfiguredLayer<RMSNormalizationArguments> {
 public:
  explicit RMSNormalizationImpl(RMSNormalizationArguments arguments)
      : ConfiguredLayer("RMSNormalization", std::move(arguments)) {}
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override {
    sizes_along(*this, axes_of(*this, options().axis, input), input);
    return input;
  }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    axes_ = axes_of(*this, options().axis, input);
    scale_ = add_weight({.name = "scale",
                         .shape = sizes_along(*this, axes_, input),
                         .initializer = initializers::Ones()});
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor x = widened(input);
    const Tensor factor = (x.square().mean(axes_, true) + options().epsilon).rsqrt();
    return (x * factor * spread(widened(scale_.value()), axes_, x))
        .to(dtype_policy().compute_dtype());
  }

 private:
  std::vector<int64_t> axes_;
  Variable scale_;
};

// ---- UnitNormalization

struct UnitNormalizationArguments {
  UnitNormalizationOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axis", options.axis);
  }
};

class UnitNormalizationImpl final : public ConfiguredLayer<UnitNormalizationArguments> {
 public:
  explicit UnitNormalizationImpl(UnitNormalizationArguments arguments)
      : ConfiguredLayer("UnitNormalization", std::move(arguments)) {}
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override {
    axes_of(*this, options().axis, input);
    return input;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const Tensor x = widened(input);
    // 1e-12, Keras' least norm, squared.
    const Tensor factor = x.square().sum(options().axis, true).clamp_min(1e-24).rsqrt();
    return (x * factor).to(dtype_policy().compute_dtype());
  }
};

}  // namespace

LayerNormalization::LayerNormalization(const LayerNormalizationOptions& options)
    : Layer(std::make_shared<LayerNormalizationImpl>(LayerNormalizationArguments{options})) {}
GroupNormalization::GroupNormalization(const GroupNormalizationOptions& options)
    : Layer(std::make_shared<GroupNormalizationImpl>(GroupNormalizationArguments{options})) {}
RMSNormalization::RMSNormalization(const RMSNormalizationOptions& options)
    : Layer(std::make_shared<RMSNormalizationImpl>(RMSNormalizationArguments{options})) {}
UnitNormalization::UnitNormalization(const UnitNormalizationOptions& options)
    : Layer(std::make_shared<UnitNormalizationImpl>(UnitNormalizationArguments{options})) {}

namespace {

constexpr LayerEntry kNormalization[] = {
    {"LayerNormalization", make_configured<LayerNormalizationImpl>},
    {"GroupNormalization", make_configured<GroupNormalizationImpl>},
    {"RMSNormalization", make_configured<RMSNormalizationImpl>},
    {"UnitNormalization", make_configured<UnitNormalizationImpl>},
};

}  // namespace

LayerFamily normalization_layers() { return kNormalization; }

}  // namespace tutti::keras::layers
