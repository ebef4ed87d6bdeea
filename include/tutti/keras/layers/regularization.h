#pragma once
// Noise in training, and penalties on activations.
//
// Noise comes from the replica's generator, or with a seed from a stream of the layer's own: it is
// a function of seed, step and replica (docs/randomness.md). Without training these layers hand
// their input on.

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

struct DropoutOptions {
  /// The shape of the noise, batch axis included; -1 is the input's size, and 1 makes an axis share
  /// its noise. Empty: the input's.
  Shape noise_shape = {};
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// In training, zeroes a share `rate` (from 0 to below 1) of the entries and scales the rest by 1 /
/// (1 - rate).
class Dropout : public Layer {
 public:
  explicit Dropout(double rate, const DropoutOptions& options = {});
};
/// Keeps mean and variance of selu's output: dropped entries become selu's least value.
class AlphaDropout : public Layer {
 public:
  explicit AlphaDropout(double rate, const DropoutOptions& options = {});
};

struct NoiseOptions {
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Drops whole channels of [N, T, C].
class SpatialDropout1D : public Layer {
 public:
  explicit SpatialDropout1D(double rate, const NoiseOptions& options = {});
};
/// Drops whole channels of [N, H, W, C].
class SpatialDropout2D : public Layer {
 public:
  explicit SpatialDropout2D(double rate, const NoiseOptions& options = {});
};
/// Drops whole channels of [N, D, H, W, C].
class SpatialDropout3D : public Layer {
 public:
  explicit SpatialDropout3D(double rate, const NoiseOptions& options = {});
};
/// Adds normal noise; stddev from 0 to 1.
class GaussianNoise : public Layer {
 public:
  explicit GaussianNoise(double stddev, const NoiseOptions& options = {});
};
/// Multiplies by normal noise of mean 1 and variance rate / (1 - rate).
class GaussianDropout : public Layer {
 public:
  explicit GaussianDropout(double rate, const NoiseOptions& options = {});
};

struct ActivityRegularizationOptions {
  double l1 = 0;
  double l2 = 0;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Its input, with the penalty L1L2(l1, l2) of it divided by the rows of the batch.
class ActivityRegularization : public Layer {
 public:
  explicit ActivityRegularization(const ActivityRegularizationOptions& options = {});
};

}  // namespace tutti::keras::layers
