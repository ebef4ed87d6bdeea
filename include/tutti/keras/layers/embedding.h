#pragma once
// Rows of a table by their numbers, and masks of sequences.

#include <string>

#include "tutti/keras/constraints.h"
#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

struct EmbeddingOptions {
  Initializer embeddings_initializer = initializers::RandomUniform();
  Regularizer embeddings_regularizer = {};
  Constraint embeddings_constraint = {};
  /// True: 0 is no row but padding, and the output's mask says where it stands.
  bool mask_zero = false;
  std::string name = "";
  Shape input_shape = {};
};
/// Numbers [batch, …] → rows [batch, …, output_dim] of the weight "embeddings" [input_dim,
/// output_dim]. Floats are cut to integers. The gradient has the rows that were looked up and no
/// others (nn::embedding_lookup); a regularizer makes it dense. InvalidArgument for numbers outside
/// [0, input_dim).
class Embedding : public Layer {
 public:
  Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options = {});
};

struct MaskingOptions {
  std::string name = "";
  Shape input_shape = {};
};
/// [batch, time, …, features]: steps whose features all are `mask_value` are masked, and 0 in the
/// output.
class Masking : public Layer {
 public:
  explicit Masking(double mask_value = 0, const MaskingOptions& options = {});
};

}  // namespace tutti::keras::layers
