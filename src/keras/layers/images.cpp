#include "keras/layers/images.h"

#include <algorithm>

#include "tutti/keras/layers/preprocessing.h"

namespace tutti::keras::layers {

void check_images(const LayerImpl& layer, const Shape& input) {
  if (input.size() == 3 || input.size() == 4) return;
  throw InvalidArgument(cat(head(layer), "input of shape ", shape_text(input),
                            ", expected (batch, height, width, channels) or one image"));
}

Shape resized_shape(const LayerImpl& layer, const Shape& input, const Size2& size) {
  check_images(layer, input);
  Shape output = input;
  output[output.size() - 3] = size.height;
  output[output.size() - 2] = size.width;
  return output;
}

Tensor resize(const Tensor& images, const Size2& size, const std::string& interpolation) {
  const std::vector<int64_t> target{size.height, size.width};
  const Tensor planes = images.permute({0, 3, 1, 2});
  const Tensor resized = interpolation == "nearest"
                             ? at::_upsample_nearest_exact2d(planes, target)
                             : at::upsample_bilinear2d(planes, target, /*align_corners=*/false);
  return resized.permute({0, 2, 3, 1});
}

Tensor cut_to_aspect_ratio(const Tensor& images, const Size2& size) {
  const int64_t height = images.size(1), width = images.size(2);
  const auto fitting = [](int64_t have, int64_t other, int64_t wanted, int64_t wanted_other) {
    const auto fit = static_cast<int64_t>(static_cast<double>(other * wanted) /
                                          static_cast<double>(wanted_other));
    return std::max<int64_t>(std::min(have, fit), 1);
  };
  const int64_t rows = fitting(height, width, size.height, size.width);
  const int64_t columns = fitting(width, height, size.width, size.height);
  return images.narrow(1, (height - rows) / 2, rows).narrow(2, (width - columns) / 2, columns);
}

namespace {

/// Where a coordinate outside [0, size) points to. Not moved by "constant".
Tensor mapped(const Tensor& place, int64_t size, const std::string& fill_mode) {
  const auto last = static_cast<double>(size - 1);
  if (fill_mode == "constant") return place;
  if (fill_mode == "nearest") return place.clamp(0, last);
  if (size <= 1) return at::zeros_like(place);
  if (fill_mode == "wrap") {
    const Tensor below = place + (place.neg() / last).trunc().add(1) * static_cast<double>(size);
    const Tensor above = place - (place / last).trunc() * static_cast<double>(size);
    return at::where(place < 0, below, at::where(place > last, above, place)).clamp(0, last);
  }
  // Reflected around the outer edges of the first and last pixel: dcba|abcd|dcba.
  const double period = 2 * static_cast<double>(size);
  const Tensor phase = place.remainder(period);
  const Tensor reflected = at::where(phase >= static_cast<double>(size), period - 1 - phase, phase);
  const Tensor below = place.neg().sub(1).remainder(period);
  const Tensor from_below =
      at::where(below >= static_cast<double>(size), period - 1 - below, below);
  return at::where(place < 0, from_below, at::where(place > last, reflected, place)).clamp(0, last);
}

/// Pixels of integral coordinates [batch, height, width]; `fill` outside.
Tensor pixels(const Tensor& images, const Tensor& x, const Tensor& y, double fill) {
  const int64_t height = images.size(1), width = images.size(2), channels = images.size(3);
  const Tensor inside =
      x.ge(0).logical_and(x.lt(width)).logical_and(y.ge(0)).logical_and(y.lt(height));
  const Tensor index =
      (y.clamp(0, height - 1) * static_cast<double>(width) + x.clamp(0, width - 1)).to(at::kLong);
  const Tensor found = images.reshape({images.size(0), height * width, channels})
                           .gather(1, index.reshape({images.size(0), height * width, 1})
                                          .expand({images.size(0), height * width, channels}))
                           .reshape(images.sizes());
  return found.masked_fill(inside.logical_not().unsqueeze(-1), fill);
}

/// Halves away from zero, as std::round.
Tensor rounded(const Tensor& x) { return x.sign() * x.abs().add(0.5).floor(); }

}  // namespace

Tensor transform(const Tensor& images, const Tensor& matrices, const Transformation& how) {
  const int64_t height = images.size(1), width = images.size(2);
  if (images.numel() == 0) return images;
  const auto floats = images.options().dtype(at::kFloat);
  const Tensor columns = at::arange(width, floats).view({1, 1, width});
  const Tensor rows = at::arange(height, floats).view({1, height, 1});
  const auto entry = [&](int64_t i) { return matrices.select(1, i).view({-1, 1, 1}); };
  const Tensor x = mapped(entry(0) * columns + entry(1) * rows + entry(2), width, how.fill_mode);
  const Tensor y = mapped(entry(3) * columns + entry(4) * rows + entry(5), height, how.fill_mode);
  if (how.interpolation == "nearest") return pixels(images, rounded(x), rounded(y), how.fill_value);
  const Tensor left = x.floor(), top = y.floor();
  const Tensor right_share = (x - left).unsqueeze(-1).to(images.scalar_type());
  const Tensor bottom_share = (y - top).unsqueeze(-1).to(images.scalar_type());
  const auto row = [&](const Tensor& of) {
    return pixels(images, left, of, how.fill_value) * (1 - right_share) +
           pixels(images, left + 1, of, how.fill_value) * right_share;
  };
  return row(top) * (1 - bottom_share) + row(top + 1) * bottom_share;
}

// ---- Resizing and CenterCrop

namespace {

class ResizingImpl : public LayerImpl {
 public:
  ResizingImpl(const Size2& size, const ResizingOptions& options)
      : LayerImpl("Resizing", options.name, options.input_shape), size_(size), options_(options) {
    check_count(*this, "height", size.height);
    check_count(*this, "width", size.width);
    check_word(*this, "interpolation", options.interpolation, {"bilinear", "nearest"});
    if (options.crop_to_aspect_ratio && options.pad_to_aspect_ratio)
      throw InvalidArgument(
          cat(head(*this), "crop_to_aspect_ratio and pad_to_aspect_ratio, expected one"));
  }
  std::string class_name() const override { return "Resizing"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"height", size_.height},
                 {"width", size_.width},
                 {"interpolation", options_.interpolation},
                 {"crop_to_aspect_ratio", options_.crop_to_aspect_ratio},
                 {"pad_to_aspect_ratio", options_.pad_to_aspect_ratio},
                 {"fill_value", options_.fill_value}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    return resized_shape(*this, input, size_);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    check_images(*this, input.sizes().vec());
    const bool floating = input.is_floating_point();
    Tensor images = as_batch(floating ? input : input.to(at::kFloat));
    if (options_.crop_to_aspect_ratio) images = cut_to_aspect_ratio(images, size_);
    if (options_.pad_to_aspect_ratio) images = padded(images);
    const Tensor resized = like_given(resize(images, size_, options_.interpolation), input);
    if (floating) return resized;
    if (input.scalar_type() == at::kByte)
      return resized.round().clamp(0, 255).to(input.scalar_type());
    return resized.round().to(input.scalar_type());
  }

 private:
  Tensor padded(const Tensor& images) const {
    const int64_t height = images.size(1), width = images.size(2);
    const auto wanted = [](int64_t have, int64_t other, int64_t target, int64_t target_other) {
      return std::max(have, static_cast<int64_t>(static_cast<double>(other * target) /
                                                 static_cast<double>(target_other)));
    };
    const int64_t rows = (wanted(height, width, size_.height, size_.width) - height) / 2;
    const int64_t columns = (wanted(width, height, size_.width, size_.height) - width) / 2;
    return at::constant_pad_nd(images, {0, 0, columns, columns, rows, rows}, options_.fill_value);
  }

  Size2 size_;
  ResizingOptions options_;
};

class CenterCropImpl : public LayerImpl {
 public:
  CenterCropImpl(const Size2& size, const CenterCropOptions& options)
      : LayerImpl("CenterCrop", options.name, options.input_shape), size_(size) {
    check_count(*this, "height", size.height);
    check_count(*this, "width", size.width);
  }
  std::string class_name() const override { return "CenterCrop"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"height", size_.height}, {"width", size_.width}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    return resized_shape(*this, input, size_);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    check_images(*this, input.sizes().vec());
    const Tensor images =
        as_batch(input.is_floating_point() ? input : input.to(dtype_policy().compute_dtype()));
    const int64_t rows = images.size(1) - size_.height, columns = images.size(2) - size_.width;
    if (rows >= 0 && columns >= 0)
      return like_given(
          images.narrow(1, rows / 2, size_.height).narrow(2, columns / 2, size_.width), input);
    return like_given(resize(cut_to_aspect_ratio(images, size_), size_, "bilinear"), input);
  }

 private:
  Size2 size_;
};

Layer resizing_from(const Json& json, const LayerBase& base) {
  ResizingOptions options;
  options.interpolation = member<std::string>(json, "interpolation", "bilinear");
  options.crop_to_aspect_ratio = member<bool>(json, "crop_to_aspect_ratio", false);
  options.pad_to_aspect_ratio = member<bool>(json, "pad_to_aspect_ratio", false);
  options.fill_value = member<double>(json, "fill_value", 0);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Resizing(member<int64_t>(json, "height", 0), member<int64_t>(json, "width", 0), options);
}

constexpr LayerEntry kImageLayers[] = {
    {"Resizing", resizing_from},
    {"CenterCrop", [](const Json& json, const LayerBase& base) -> Layer {
       return CenterCrop(member<int64_t>(json, "height", 0), member<int64_t>(json, "width", 0),
                         {base.name, base.input_shape});
     }}};

}  // namespace

Resizing::Resizing(int64_t height, int64_t width, const ResizingOptions& options)
    : Layer(std::make_shared<ResizingImpl>(Size2(height, width), options)) {}
CenterCrop::CenterCrop(int64_t height, int64_t width, const CenterCropOptions& options)
    : Layer(std::make_shared<CenterCropImpl>(Size2(height, width), options)) {}

LayerFamily image_preprocessing_layers() { return kImageLayers; }

}  // namespace tutti::keras::layers
