#pragma once
// Noise in training, and penalties on activations.

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

struct DropoutOptions {
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// In training, zeroes a share `rate` of the entries and scales the rest by 1 / (1 - rate). Draws
/// from the replica's generator, or with a seed from a stream of its own: masks are a function of
/// seed, step and replica (tutti/base/seed.h).
class Dropout : public Layer {
 public:
  explicit Dropout(double rate, const DropoutOptions& options = {});
};

}  // namespace tutti::keras::layers
