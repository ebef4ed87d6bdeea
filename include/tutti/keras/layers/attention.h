#pragma once
// Attention: outputs that are means of values, weighted by how well keys fit queries.
//
// Inputs are query [batch, T, features], value [batch, S, features] and key (the value, where there
// is none). Masks of query and value hide padding: a hidden value has no weight, and a row all of
// whose values are hidden is 0. As layers, the inputs are the vector {query, value[, key]}.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/keras/constraints.h"
#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

/// What a direct call of an attention layer may carry.
struct AttentionCall {
  Tensor key = {};
  /// bool [batch, T] or [batch, S].
  Tensor query_mask = {};
  Tensor value_mask = {};
  Tensor key_mask = {};
  /// bool [batch, T, S], or what broadcasts to it: true where a query may look at a value.
  Tensor attention_mask = {};
  bool training = false;
  /// A query looks at no value behind it.
  bool use_causal_mask = false;
};

struct MultiHeadAttentionOptions {
  /// Unset: key_dim.
  std::optional<int64_t> value_dim = std::nullopt;
  double dropout = 0;
  bool use_bias = true;
  /// Empty: the query's features.
  Shape output_shape = {};
  /// Axes of the inputs over which attention goes; empty: all but the first and the last.
  std::vector<int64_t> attention_axes = {};
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
  /// What Keras takes in each call, for layers in models: the scores [batch, heads, T, S] are a
  /// second output; queries look at no value behind them.
  bool return_attention_scores = false;
  bool use_causal_mask = false;
};
/// softmax(q k / sqrt(key_dim)) v in each head, on projections "query/kernel" [features, heads,
/// key_dim], "key/kernel", "value/kernel" and back by "attention_output/kernel" [heads, value_dim,
/// output]. A fourth input of the layer is the attention mask.
class MultiHeadAttention : public Layer {
 public:
  MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                     const MultiHeadAttentionOptions& options = {});
  using Layer::operator();
  Tensor operator()(const Tensor& query, const Tensor& value, const AttentionCall& call = {}) const;
  /// The output and the scores.
  std::pair<Tensor, Tensor> with_scores(const Tensor& query, const Tensor& value,
                                        const AttentionCall& call = {}) const;
};

struct GroupQueryAttentionOptions {
  double dropout = 0;
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
  bool return_attention_scores = false;
  bool use_causal_mask = false;
};
/// MultiHeadAttention whose query heads share fewer heads of keys and values, each
/// num_query_heads / num_key_value_heads of them one.
class GroupQueryAttention : public Layer {
 public:
  GroupQueryAttention(int64_t head_dim, int64_t num_query_heads, int64_t num_key_value_heads,
                      const GroupQueryAttentionOptions& options = {});
  using Layer::operator();
  Tensor operator()(const Tensor& query, const Tensor& value, const AttentionCall& call = {}) const;
  std::pair<Tensor, Tensor> with_scores(const Tensor& query, const Tensor& value,
                                        const AttentionCall& call = {}) const;
};

struct AttentionOptions {
  /// A trained factor of the scores.
  bool use_scale = false;
  /// "dot": q k; "concat": a trained factor times the sum of tanh(q + k).
  std::string score_mode = "dot";
  double dropout = 0;
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
  bool return_attention_scores = false;
  bool use_causal_mask = false;
};
/// softmax(scores) v, without projections.
class Attention : public Layer {
 public:
  explicit Attention(const AttentionOptions& options = {});
  using Layer::operator();
  Tensor operator()(const Tensor& query, const Tensor& value, const AttentionCall& call = {}) const;
  std::pair<Tensor, Tensor> with_scores(const Tensor& query, const Tensor& value,
                                        const AttentionCall& call = {}) const;
};

struct AdditiveAttentionOptions {
  /// The sum has a trained factor for each feature.
  bool use_scale = true;
  double dropout = 0;
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
  bool return_attention_scores = false;
  bool use_causal_mask = false;
};
/// Attention whose scores are the sum of tanh(q + k).
class AdditiveAttention : public Layer {
 public:
  explicit AdditiveAttention(const AdditiveAttentionOptions& options = {});
  using Layer::operator();
  Tensor operator()(const Tensor& query, const Tensor& value, const AttentionCall& call = {}) const;
  std::pair<Tensor, Tensor> with_scores(const Tensor& query, const Tensor& value,
                                        const AttentionCall& call = {}) const;
};

}  // namespace tutti::keras::layers
