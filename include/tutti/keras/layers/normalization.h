#pragma once
// Normalisation layers. Under a policy of half precision they compute in float32 and give out the
// compute dtype.

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

struct BatchNormalizationOptions {
  int64_t axis = -1;
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = initializers::Zeros();
  Initializer gamma_initializer = initializers::Ones();
  Initializer moving_mean_initializer = initializers::Zeros();
  Initializer moving_variance_initializer = initializers::Ones();
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  /// True: the statistics of a step are those of all replicas' rows together, exact for uneven
  /// batches. False: each replica's own.
  bool synchronized = false;
  Shape input_shape = {};
};
/// Normalises each entry of `axis` over all others. Moving statistics are those of the biased
/// variance; each replica keeps its own and evaluates with it, outside replicas and in files they
/// are the first one's; `set_weights(get_weights())` gives every replica the first one's.
/// Synchronized, they are the same everywhere. An empty batch changes nothing. A mask (of the last
/// axis' steps) leaves out of the statistics what it leaves out.
class BatchNormalization : public Layer {
 public:
  explicit BatchNormalization(const BatchNormalizationOptions& options = {});
};

struct LayerNormalizationOptions {
  /// One or several; gamma and beta have their shape.
  std::vector<int64_t> axis = {-1};
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = initializers::Zeros();
  Initializer gamma_initializer = initializers::Ones();
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Normalises each sample over `axis`.
class LayerNormalization : public Layer {
 public:
  explicit LayerNormalization(const LayerNormalizationOptions& options = {});
};

struct GroupNormalizationOptions {
  /// Must divide the channels; -1 is one a channel.
  int64_t groups = 32;
  int64_t axis = -1;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = initializers::Zeros();
  Initializer gamma_initializer = initializers::Ones();
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Normalises each sample over the groups of neighbouring entries of `axis`, and all other axes.
class GroupNormalization : public Layer {
 public:
  explicit GroupNormalization(const GroupNormalizationOptions& options = {});
};

struct RMSNormalizationOptions {
  std::vector<int64_t> axis = {-1};
  double epsilon = 1e-6;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// x / sqrt(mean of x^2 over `axis` + epsilon) * scale.
class RMSNormalization : public Layer {
 public:
  explicit RMSNormalization(const RMSNormalizationOptions& options = {});
};

struct UnitNormalizationOptions {
  std::vector<int64_t> axis = {-1};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Makes the norm over `axis` 1; zeros stay zeros.
class UnitNormalization : public Layer {
 public:
  explicit UnitNormalization(const UnitNormalizationOptions& options = {});
};

}  // namespace tutti::keras::layers
