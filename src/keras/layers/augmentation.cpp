#include "tutti/keras/layers/augmentation.h"

#include <cmath>
#include <numbers>

#include "keras/layers/images.h"
#include "keras/layers/random.h"

namespace tutti::keras::layers {
namespace {

Json to_json(const Factor& factor) {
  if (factor.single) return factor.upper;
  return Json::array({factor.lower, factor.upper});
}
Factor factor_from(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number()) return {found->get<double>()};
  const auto pair = member<std::vector<double>>(json, key, {});
  if (pair.size() != 2)
    throw DataLoss(cat("configuration [", key, "]: ", pair.size(),
                       " numbers, expected one or two; the file is damaged"));
  return {pair[0], pair[1]};
}

/// What all have: images in, changed in training by `augment`.
class AugmentationImpl : public LayerImpl {
 public:
  AugmentationImpl(const char* class_name, const std::string& name, const Shape& input_shape,
                   std::optional<int64_t> seed)
      : LayerImpl(class_name, name, input_shape), class_name_(class_name), random_(seed) {}
  std::string class_name() const override { return class_name_; }
  std::string config() const override {
    Json json = base_config(*this);
    put(json, "seed", random_.seed());
    add_arguments(json);
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_images(*this, input);
    return input;
  }

 protected:
  virtual void add_arguments(Json& json) const = 0;
  virtual Tensor augment(const Tensor& images) = 0;
  virtual Tensor otherwise(const Tensor& images) { return images; }

  void build(const Shape& input) override { random_.build(); }
  Tensor call(const Tensor& input, bool training) override {
    check_images(*this, input.sizes().vec());
    const Tensor images =
        as_batch(input.is_floating_point() ? input : input.to(dtype_policy().compute_dtype()));
    return like_given(training ? augment(images) : otherwise(images), input);
  }

  void check_factor(const char* what, const Factor& factor, double low, double high) const {
    const bool fits = factor.lower >= low && factor.upper <= high && factor.lower <= factor.upper;
    if (!fits)
      throw InvalidArgument(cat(head(*this), what, " from ", factor.lower, " to ", factor.upper,
                                ", expected a range inside [", low, ", ", high, "]"));
  }
  /// One number for each image, [batch].
  Tensor uniform(const Tensor& images, double low, double high) {
    return at::empty({images.size(0)}, images.options().dtype(at::kFloat))
        .uniform_(low, high, random_.generator(*this));
  }
  Tensor uniform(const Tensor& images, const Factor& factor) {
    return uniform(images, factor.lower, factor.upper);
  }
  /// For all channels of an image.
  static Tensor per_image(const Tensor& numbers, const Tensor& images) {
    return numbers.view({-1, 1, 1, 1}).to(images.scalar_type());
  }

 private:
  std::string class_name_;
  LayerRandom random_;
};

class RandomFlipImpl : public AugmentationImpl {
 public:
  RandomFlipImpl(const std::string& mode, const RandomFlipOptions& options)
      : AugmentationImpl("RandomFlip", options.name, options.input_shape, options.seed),
        mode_(mode) {
    check_word(*this, "mode", mode, {"horizontal", "vertical", "horizontal_and_vertical"});
  }

 protected:
  void add_arguments(Json& json) const override { json["mode"] = mode_; }
  Tensor augment(const Tensor& images) override {
    Tensor flipped = images;
    if (mode_ != "vertical") flipped = flip(flipped, 2);
    if (mode_ != "horizontal") flipped = flip(flipped, 1);
    return flipped;
  }

 private:
  Tensor flip(const Tensor& images, int64_t axis) {
    const Tensor which = uniform(images, 0, 1).lt(0.5).view({-1, 1, 1, 1});
    return at::where(which, images.flip(axis), images);
  }

  std::string mode_;
};

/// Those that move pixels.
class RandomTransformImpl : public AugmentationImpl {
 public:
  RandomTransformImpl(const char* class_name, const RandomTransformOptions& options)
      : AugmentationImpl(class_name, options.name, options.input_shape, options.seed),
        how_{options.interpolation, options.fill_mode, options.fill_value} {
    check_word(*this, "fill_mode", options.fill_mode, {"reflect", "wrap", "constant", "nearest"});
    check_word(*this, "interpolation", options.interpolation, {"bilinear", "nearest"});
  }

 protected:
  virtual void add_factors(Json& json) const = 0;
  /// [batch, 6]: for each image where its pixels come from.
  virtual Tensor matrices(const Tensor& images) = 0;

  void add_arguments(Json& json) const override {
    json.update({{"fill_mode", how_.fill_mode},
                 {"interpolation", how_.interpolation},
                 {"fill_value", how_.fill_value}});
    add_factors(json);
  }
  Tensor augment(const Tensor& images) override {
    return transform(images, matrices(images), how_);
  }

 private:
  Transformation how_;
};

class RandomRotationImpl : public RandomTransformImpl {
 public:
  RandomRotationImpl(const Factor& factor, const RandomTransformOptions& options)
      : RandomTransformImpl("RandomRotation", options), factor_(factor) {
    check_factor("factor", factor, -1, 1);
  }

 protected:
  void add_factors(Json& json) const override { json["factor"] = to_json(factor_); }
  Tensor matrices(const Tensor& images) override {
    const Tensor angle = uniform(images, factor_) * (2 * std::numbers::pi);
    const Tensor cosine = angle.cos(), sine = angle.sin();
    const double x = static_cast<double>(images.size(2) - 1) / 2;
    const double y = static_cast<double>(images.size(1) - 1) / 2;
    return at::stack(
        {cosine, -sine, x - x * cosine + y * sine, sine, cosine, y - x * sine - y * cosine}, 1);
  }

 private:
  Factor factor_;
};

class RandomTranslationImpl : public RandomTransformImpl {
 public:
  RandomTranslationImpl(const Factor& height, const Factor& width,
                        const RandomTransformOptions& options)
      : RandomTransformImpl("RandomTranslation", options), height_(height), width_(width) {
    check_factor("height_factor", height, -1, 1);
    check_factor("width_factor", width, -1, 1);
  }

 protected:
  void add_factors(Json& json) const override {
    json.update({{"height_factor", to_json(height_)}, {"width_factor", to_json(width_)}});
  }
  Tensor matrices(const Tensor& images) override {
    const Tensor down = uniform(images, height_) * static_cast<double>(images.size(1));
    const Tensor right = uniform(images, width_) * static_cast<double>(images.size(2));
    const Tensor one = at::ones_like(down), zero = at::zeros_like(down);
    return at::stack({one, zero, -right, zero, one, -down}, 1);
  }

 private:
  Factor height_, width_;
};

class RandomZoomImpl : public RandomTransformImpl {
 public:
  RandomZoomImpl(const Factor& height, const RandomZoomOptions& options)
      : RandomTransformImpl("RandomZoom", {options.fill_mode, options.interpolation, options.seed,
                                           options.fill_value, options.name, options.input_shape}),
        height_(height),
        width_(options.width_factor) {
    check_factor("height_factor", height, -1, 1);
    if (width_) check_factor("width_factor", *width_, -1, 1);
  }

 protected:
  void add_factors(Json& json) const override {
    json["height_factor"] = to_json(height_);
    if (width_) json["width_factor"] = to_json(*width_);
  }
  Tensor matrices(const Tensor& images) override {
    const Tensor rows = uniform(images, height_) + 1;
    const Tensor columns = width_ ? uniform(images, *width_) + 1 : rows;
    const double x = static_cast<double>(images.size(2) - 1) / 2;
    const double y = static_cast<double>(images.size(1) - 1) / 2;
    const Tensor zero = at::zeros_like(rows);
    return at::stack({columns, zero, (1 - columns) * x, zero, rows, (1 - rows) * y}, 1);
  }

 private:
  Factor height_;
  std::optional<Factor> width_;
};

class RandomCropImpl : public AugmentationImpl {
 public:
  RandomCropImpl(const Size2& size, const RandomCropOptions& options)
      : AugmentationImpl("RandomCrop", options.name, options.input_shape, options.seed),
        size_(size) {
    check_count(*this, "height", size.height);
    check_count(*this, "width", size.width);
  }
  Shape compute_output_shape(const Shape& input) const override {
    return resized_shape(*this, input, size_);
  }

 protected:
  void add_arguments(Json& json) const override {
    json.update({{"height", size_.height}, {"width", size_.width}});
  }
  Tensor augment(const Tensor& images) override {
    const int64_t rows = images.size(1) - size_.height, columns = images.size(2) - size_.width;
    if (rows < 0 || columns < 0) return otherwise(images);
    const Tensor drawn = uniform(at::empty({2}, images.options()), 0, 1).to(at::kCPU);
    const auto start = [&](int64_t i, int64_t room) {
      const auto at = static_cast<int64_t>(drawn[i].item<float>() * static_cast<double>(room + 1));
      return std::min(at, room);
    };
    return images.narrow(1, start(0, rows), size_.height).narrow(2, start(1, columns), size_.width);
  }
  Tensor otherwise(const Tensor& images) override {
    return resize(cut_to_aspect_ratio(images, size_), size_, "bilinear");
  }

 private:
  Size2 size_;
};

class RandomContrastImpl : public AugmentationImpl {
 public:
  RandomContrastImpl(const Factor& factor, const RandomContrastOptions& options)
      : AugmentationImpl("RandomContrast", options.name, options.input_shape, options.seed),
        factor_(factor),
        range_(options.value_range) {
    const double down = factor.single ? factor.upper : factor.lower;
    if (!(down >= 0 && down <= 1 && factor.upper >= 0 && factor.upper <= 1))
      throw InvalidArgument(
          cat(head(*this), "factors ", down, " and ", factor.upper, ", expected from 0 to 1"));
  }

 protected:
  void add_arguments(Json& json) const override {
    json["factor"] = to_json(factor_);
    json["value_range"] = range_;
  }
  Tensor augment(const Tensor& images) override {
    const double down = factor_.single ? factor_.upper : factor_.lower;
    const Tensor factor = per_image(uniform(images, 1 - down, 1 + factor_.upper), images);
    const Tensor mean = images.mean({1, 2}, /*keepdim=*/true);
    return ((images - mean) * factor + mean).clamp(range_[0], range_[1]);
  }

 private:
  Factor factor_;
  std::array<double, 2> range_;
};

class RandomBrightnessImpl : public AugmentationImpl {
 public:
  RandomBrightnessImpl(const Factor& factor, const RandomBrightnessOptions& options)
      : AugmentationImpl("RandomBrightness", options.name, options.input_shape, options.seed),
        factor_(factor),
        range_(options.value_range) {
    check_factor("factor", factor, -1, 1);
  }

 protected:
  void add_arguments(Json& json) const override {
    json["factor"] = to_json(factor_);
    json["value_range"] = range_;
  }
  Tensor augment(const Tensor& images) override {
    const Tensor added = per_image(uniform(images, factor_) * (range_[1] - range_[0]), images);
    return (images + added).clamp(range_[0], range_[1]);
  }

 private:
  Factor factor_;
  std::array<double, 2> range_;
};

// ---- from descriptions

RandomTransformOptions transform_options(const Json& json, const LayerBase& base) {
  RandomTransformOptions options;
  options.fill_mode = member<std::string>(json, "fill_mode", "reflect");
  options.interpolation = member<std::string>(json, "interpolation", "bilinear");
  options.seed = optional_member<int64_t>(json, "seed");
  options.fill_value = member<double>(json, "fill_value", 0);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return options;
}
Layer flip_from(const Json& json, const LayerBase& base) {
  return RandomFlip(member<std::string>(json, "mode", "horizontal_and_vertical"),
                    {optional_member<int64_t>(json, "seed"), base.name, base.input_shape});
}
Layer rotation_from(const Json& json, const LayerBase& base) {
  return RandomRotation(factor_from(json, "factor"), transform_options(json, base));
}
Layer translation_from(const Json& json, const LayerBase& base) {
  return RandomTranslation(factor_from(json, "height_factor"), factor_from(json, "width_factor"),
                           transform_options(json, base));
}
Layer zoom_from(const Json& json, const LayerBase& base) {
  const RandomTransformOptions how = transform_options(json, base);
  RandomZoomOptions options;
  if (json.contains("width_factor") && !json["width_factor"].is_null())
    options.width_factor = factor_from(json, "width_factor");
  options.fill_mode = how.fill_mode;
  options.interpolation = how.interpolation;
  options.seed = how.seed;
  options.fill_value = how.fill_value;
  options.name = base.name;
  options.input_shape = base.input_shape;
  return RandomZoom(factor_from(json, "height_factor"), options);
}
Layer crop_from(const Json& json, const LayerBase& base) {
  return RandomCrop(member<int64_t>(json, "height", 0), member<int64_t>(json, "width", 0),
                    {optional_member<int64_t>(json, "seed"), base.name, base.input_shape});
}
template <class Options>
Options range_options(const Json& json, const LayerBase& base) {
  Options options;
  options.value_range = member<std::array<double, 2>>(json, "value_range", {0, 255});
  options.seed = optional_member<int64_t>(json, "seed");
  options.name = base.name;
  options.input_shape = base.input_shape;
  return options;
}
Layer contrast_from(const Json& json, const LayerBase& base) {
  return RandomContrast(factor_from(json, "factor"),
                        range_options<RandomContrastOptions>(json, base));
}
Layer brightness_from(const Json& json, const LayerBase& base) {
  return RandomBrightness(factor_from(json, "factor"),
                          range_options<RandomBrightnessOptions>(json, base));
}

constexpr LayerEntry kAugmentationLayers[] = {{"RandomFlip", flip_from},
                                              {"RandomRotation", rotation_from},
                                              {"RandomZoom", zoom_from},
                                              {"RandomTranslation", translation_from},
                                              {"RandomCrop", crop_from},
                                              {"RandomContrast", contrast_from},
                                              {"RandomBrightness", brightness_from}};

}  // namespace

RandomFlip::RandomFlip(const std::string& mode, const RandomFlipOptions& options)
    : Layer(std::make_shared<RandomFlipImpl>(mode, options)) {}
RandomRotation::RandomRotation(const Factor& factor, const RandomTransformOptions& options)
    : Layer(std::make_shared<RandomRotationImpl>(factor, options)) {}
RandomTranslation::RandomTranslation(const Factor& height_factor, const Factor& width_factor,
                                     const RandomTransformOptions& options)
    : Layer(std::make_shared<RandomTranslationImpl>(height_factor, width_factor, options)) {}
RandomZoom::RandomZoom(const Factor& height_factor, const RandomZoomOptions& options)
    : Layer(std::make_shared<RandomZoomImpl>(height_factor, options)) {}
RandomCrop::RandomCrop(int64_t height, int64_t width, const RandomCropOptions& options)
    : Layer(std::make_shared<RandomCropImpl>(Size2(height, width), options)) {}
RandomContrast::RandomContrast(const Factor& factor, const RandomContrastOptions& options)
    : Layer(std::make_shared<RandomContrastImpl>(factor, options)) {}
RandomBrightness::RandomBrightness(const Factor& factor, const RandomBrightnessOptions& options)
    : Layer(std::make_shared<RandomBrightnessImpl>(factor, options)) {}

LayerFamily augmentation_layers() { return kAugmentationLayers; }

}  // namespace tutti::keras::layers
