// Attention without projections.

#include "keras/layers/attention_impl.h"

namespace tutti::keras::layers {
namespace {

class PlainAttentionImpl : public AttendingImpl {
 public:
  PlainAttentionImpl(const AttentionOptions& options)  // NOLINT: Attention(options)
      : AttendingImpl("Attention", options.name, options.input_shape, options.dropout, options.seed,
                      {options.return_attention_scores, options.use_causal_mask}),
        use_scale_(options.use_scale),
        mode_(options.score_mode) {
    check_word(*this, "score_mode", mode_, {"dot", "concat"});
  }
  explicit PlainAttentionImpl(const AdditiveAttentionOptions& options)
      : AttendingImpl("AdditiveAttention", options.name, options.input_shape, options.dropout,
                      options.seed, {options.return_attention_scores, options.use_causal_mask}),
        use_scale_(options.use_scale),
        mode_("additive") {}

 protected:
  bool has_weights() const override { return use_scale_ || mode_ == "concat"; }
  void add_arguments(Json& json) const override {
    json["use_scale"] = use_scale_;
    if (mode_ != "additive") json["score_mode"] = mode_;
  }
  Shape output_of(const Shape& query, const Shape& value) const override {
    Shape output = query;
    output.back() = value.back();
    return output;
  }
  Shape scores_of(const Shape& query, const Shape& key) const override {
    Shape scores = query;
    scores.back() = key[key.size() - 2];
    return scores;
  }
  void build_weights(const Shape& query, const Shape& value, const Shape& key) override {
    if (mode_ == "additive") {
      if (use_scale_)
        scale_ = add_weight({.name = "scale",
                             .shape = {query.back()},
                             .initializer = initializers::GlorotUniform()});
      return;
    }
    if (use_scale_)
      scale_ = add_weight({.name = "scale", .shape = {}, .initializer = initializers::Ones()});
    if (mode_ == "concat")
      concat_ = add_weight(
          {.name = "concat_score_weight", .shape = {}, .initializer = initializers::Ones()});
  }
  std::pair<Tensor, Tensor> compute(const Tensor& query, const Tensor& value,
                                    const AttentionCall& call, bool scores) override {
    Tensor fits = scores_for(query, call.key);
    Tensor mask;
    if (call.value_mask.defined()) mask = call.value_mask.to(at::kBool).unsqueeze(-2);
    if (call.key_mask.defined()) mask = both(mask, call.key_mask.to(at::kBool).unsqueeze(-2));
    if (call.attention_mask.defined()) mask = both(mask, call.attention_mask.to(at::kBool));
    if (call.use_causal_mask) mask = both(mask, causal_mask(fits.size(-2), fits.size(-1), fits));
    const Tensor weights = dropped(masked_softmax(fits, mask), call);
    Tensor output = at::matmul(weights, value);
    if (call.query_mask.defined())
      output = output.masked_fill(call.query_mask.to(at::kBool).logical_not().unsqueeze(-1), 0);
    return {output, weights};
  }

 private:
  Tensor scores_for(const Tensor& query, const Tensor& key) const {
    if (mode_ == "dot") {
      const Tensor products = at::matmul(query, key.transpose(-2, -1));
      return use_scale_ ? products * value_of(scale_) : products;
    }
    const Tensor sums = query.unsqueeze(-2) + key.unsqueeze(-3);
    if (mode_ == "concat")
      return value_of(concat_) * at::tanh(use_scale_ ? value_of(scale_) * sums : sums).sum(-1);
    return use_scale_ ? at::matmul(at::tanh(sums), value_of(scale_)) : at::tanh(sums).sum(-1);
  }

  bool use_scale_;
  std::string mode_;
  Variable scale_, concat_;
};

Layer attention_from(const Json& json, const LayerBase& base) {
  auto options = attention_options<AttentionOptions>(json, base);
  options.use_scale = member<bool>(json, "use_scale", false);
  options.score_mode = member<std::string>(json, "score_mode", "dot");
  return Attention(options);
}
Layer additive_from(const Json& json, const LayerBase& base) {
  auto options = attention_options<AdditiveAttentionOptions>(json, base);
  options.use_scale = member<bool>(json, "use_scale", true);
  return AdditiveAttention(options);
}

constexpr LayerEntry kAttentionLayers[] = {{"Attention", attention_from},
                                           {"AdditiveAttention", additive_from}};

}  // namespace

Attention::Attention(const AttentionOptions& options)
    : Layer(std::make_shared<PlainAttentionImpl>(options)) {}
AdditiveAttention::AdditiveAttention(const AdditiveAttentionOptions& options)
    : Layer(std::make_shared<PlainAttentionImpl>(options)) {}

TUTTI_ATTENTION_CALLS(Attention)
TUTTI_ATTENTION_CALLS(AdditiveAttention)

LayerFamily attention_layers() { return kAttentionLayers; }

}  // namespace tutti::keras::layers
