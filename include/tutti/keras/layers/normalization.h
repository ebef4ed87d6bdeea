#pragma once
// Normalisation layers.

#include <cstdint>
#include <string>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

struct BatchNormalizationOptions {
  int64_t axis = -1;
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  std::string name = "";
  /// True: the statistics of a step are those of all replicas' rows together, exact for uneven
  /// batches. False: each replica's own.
  bool synchronized = false;
  Shape input_shape = {};
};
/// Normalises the last axis. Moving statistics are those of the biased variance; each replica keeps
/// its own and evaluates with it, outside replicas and in files they are the first one's;
/// `set_weights(get_weights())` gives every replica the first one's. Synchronized, they are the
/// same everywhere. An empty batch changes nothing.
class BatchNormalization : public Layer {
 public:
  explicit BatchNormalization(const BatchNormalizationOptions& options = {});
};

}  // namespace tutti::keras::layers
