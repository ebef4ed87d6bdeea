#pragma once
// Layers that change images at random, in training only; otherwise they are the identity.
//
// Images are [batch, height, width, channels], or one without the batch axis. Each image has draws
// of its own (RandomCrop: each batch), from the replica's generator, or with a seed from streams of
// the layer's own: a function of seed, step and replica as Dropout's (tutti/base/seed.h). Integers
// become the compute dtype.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

/// From where a factor is drawn: between two numbers, or around 0 (1 for RandomContrast) as far as
/// one number.
struct Factor {
  double lower;
  double upper;
  bool single;
  Factor(double reach) : lower(-reach), upper(reach), single(true) {}  // NOLINT: RandomZoom(.2)
  Factor(double lower, double upper) : lower(lower), upper(upper), single(false) {}
};

struct RandomFlipOptions {
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// `mode` "horizontal", "vertical" or "horizontal_and_vertical": each direction with probability
/// one half, independently.
class RandomFlip : public Layer {
 public:
  explicit RandomFlip(const std::string& mode = "horizontal_and_vertical",
                      const RandomFlipOptions& options = {});
};

struct RandomTransformOptions {
  /// What stands outside the image: "reflect" (dcba|abcd|dcba), "wrap", "constant" or "nearest".
  std::string fill_mode = "reflect";
  /// "bilinear" or "nearest".
  std::string interpolation = "bilinear";
  std::optional<int64_t> seed = std::nullopt;
  double fill_value = 0;
  std::string name = "";
  Shape input_shape = {};
};
/// Turns by a share of the full circle between the factors: .25 is 90 degrees.
class RandomRotation : public Layer {
 public:
  explicit RandomRotation(const Factor& factor, const RandomTransformOptions& options = {});
};
/// Moves by shares of height and width; positive ones down and to the right.
class RandomTranslation : public Layer {
 public:
  RandomTranslation(const Factor& height_factor, const Factor& width_factor,
                    const RandomTransformOptions& options = {});
};

struct RandomZoomOptions {
  /// Unset: the height's draw, which keeps the aspect ratio.
  std::optional<Factor> width_factor = std::nullopt;
  std::string fill_mode = "reflect";
  std::string interpolation = "bilinear";
  std::optional<int64_t> seed = std::nullopt;
  double fill_value = 0;
  std::string name = "";
  Shape input_shape = {};
};
/// Shows 1 + factor of the image: positive factors zoom out.
class RandomZoom : public Layer {
 public:
  explicit RandomZoom(const Factor& height_factor, const RandomZoomOptions& options = {});
};

struct RandomCropOptions {
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// A window of this size, one place for the batch. In inference, and where the image is smaller,
/// the largest window of this aspect ratio around the middle, resized.
class RandomCrop : public Layer {
 public:
  RandomCrop(int64_t height, int64_t width, const RandomCropOptions& options = {});
};

struct RandomContrastOptions {
  std::array<double, 2> value_range = {0, 255};
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// (x - mean) f + mean for each channel of an image, f between 1 - lower and 1 + upper, cut to the
/// value range.
class RandomContrast : public Layer {
 public:
  explicit RandomContrast(const Factor& factor, const RandomContrastOptions& options = {});
};

struct RandomBrightnessOptions {
  std::array<double, 2> value_range = {0, 255};
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// Adds a share of the value range, cut to the range.
class RandomBrightness : public Layer {
 public:
  explicit RandomBrightness(const Factor& factor, const RandomBrightnessOptions& options = {});
};

}  // namespace tutti::keras::layers
