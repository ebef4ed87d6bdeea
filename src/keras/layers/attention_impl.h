#pragma once
// What attention layers share: their inputs, masks, dropout and scores.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "keras/layers/nested.h"
#include "keras/layers/random.h"
#include "tutti/keras/layers/attention.h"

namespace tutti::keras::layers {

/// softmax over the last axis of what the mask (undefined: everything) leaves; 0 elsewhere.
inline Tensor masked_softmax(const Tensor& scores, const Tensor& mask) {
  if (!mask.defined()) return at::softmax(scores, -1);
  const Tensor hidden = mask.logical_not();
  const double low = scores.scalar_type() == at::kHalf ? -3e4 : -1e9;
  return at::softmax(scores.masked_fill(hidden, low), -1).masked_fill(hidden, 0);
}

inline Tensor both(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return a.logical_and(b);
}

inline Tensor causal_mask(int64_t queries, int64_t values, const Tensor& like) {
  return at::ones({1, queries, values}, like.options().dtype(at::kBool)).tril();
}

struct AttentionFlags {
  bool scores;
  bool causal;
};

class AttendingImpl : public LayerImpl {
 public:
  AttendingImpl(const char* class_name, const std::string& name, const Shape& input_shape,
                double dropout, std::optional<int64_t> seed, AttentionFlags flags)
      : LayerImpl(class_name, name, input_shape),
        class_name_(class_name),
        dropout_(dropout),
        flags_(flags),
        random_(seed) {
    check_rate(*this, "dropout", dropout);
  }
  std::string class_name() const override { return class_name_; }
  std::string config() const override {
    Json json = base_config(*this);
    json["dropout"] = dropout_;
    put(json, "seed", random_.seed());
    json["return_attention_scores"] = flags_.scores;
    json["use_causal_mask"] = flags_.causal;
    add_arguments(json);
    return json.dump();
  }
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& arguments) const override {
    return arguments.mask(0);
  }
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return true; }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    check_inputs(inputs);
    const Shape& key = inputs.size() > 2 ? inputs[2] : inputs[1];
    std::vector<Shape> outputs{output_of(inputs[0], inputs[1])};
    if (flags_.scores) outputs.push_back(scores_of(inputs[0], key));
    return outputs;
  }

  /// A direct call: casts, builds and attends.
  std::pair<Tensor, Tensor> attend(const Tensor& query, const Tensor& value, AttentionCall call,
                                   bool scores) {
    if (!query.defined() || !value.defined())
      throw InvalidArgument(cat(head(*this), "an undefined query or value, expected batches"));
    if (!built()) {
      std::vector<Shape> shapes{query.sizes().vec(), value.sizes().vec()};
      if (call.key.defined()) shapes.push_back(call.key.sizes().vec());
      for (Shape& shape : shapes) {
        if (!shape.empty()) shape[0] = -1;
      }
      build_for(shapes);
    }
    if (call.key.defined()) call.key = cast(call.key);
    return checked(cast(query), cast(value), call, scores);
  }

 protected:
  virtual void add_arguments(Json& json) const {}
  virtual Shape output_of(const Shape& query, const Shape& value) const = 0;
  virtual Shape scores_of(const Shape& query, const Shape& key) const = 0;
  /// `call.key` is set; the scores may be left undefined when they are not wanted.
  virtual std::pair<Tensor, Tensor> compute(const Tensor& query, const Tensor& value,
                                            const AttentionCall& call, bool scores) = 0;
  virtual void build_weights(const Shape& query, const Shape& value, const Shape& key) = 0;

  void build_all(const std::vector<Shape>& inputs) override {
    build_weights(inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : inputs[1]);
    random_.build();
  }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    if (inputs.size() < 2)
      throw InvalidArgument(cat(head(*this), "one input, expected query and value"));
    AttentionCall call;
    if (inputs.size() > 2) call.key = inputs[2];
    if (inputs.size() > 3) call.attention_mask = inputs[3];
    call.query_mask = arguments.mask(0);
    call.value_mask = arguments.mask(1);
    call.key_mask = arguments.mask(2);
    call.training = arguments.training;
    auto [output, scores] = checked(inputs[0], inputs[1], call, flags_.scores);
    if (!flags_.scores) return {output};
    return {output, scores};
  }

  bool drops(const AttentionCall& call) const { return call.training && dropout_ > 0; }
  Tensor dropped(const Tensor& scores, const AttentionCall& call) {
    return drops(call) ? scores * random_.dropout_mask(*this, scores.sizes(), dropout_, scores)
                       : scores;
  }

 private:
  Tensor cast(const Tensor& input) const {
    return input.is_floating_point() ? input.to(dtype_policy().compute_dtype()) : input;
  }
  void check_inputs(const std::vector<Shape>& inputs) const {
    bool fits = inputs.size() >= 2 && inputs.size() <= 4;
    for (std::size_t i = 0; fits && i < std::min<std::size_t>(inputs.size(), 3); ++i)
      fits = inputs[i].size() >= 3 && inputs[i].back() > 0;
    if (fits) {
      const Shape& value = inputs[1];
      const Shape& key = inputs.size() > 2 ? inputs[2] : value;
      fits = value.size() == key.size() &&
             std::equal(value.begin() + 1, value.end() - 1, key.begin() + 1);
    }
    if (fits) return;
    std::vector<std::string> shapes;
    for (const Shape& input : inputs) shapes.push_back(shape_text(input));
    throw InvalidArgument(cat(head(*this), "inputs of shapes ", join(shapes, ", "),
                              ", expected query (batch, T, features), value (batch, S, features) "
                              "and perhaps key, with as many keys as values"));
  }
  std::pair<Tensor, Tensor> checked(const Tensor& query, const Tensor& value, AttentionCall call,
                                    bool scores) {
    if (!call.key.defined()) call.key = value;
    call.use_causal_mask = call.use_causal_mask || flags_.causal;
    check_inputs({query.sizes().vec(), value.sizes().vec(), call.key.sizes().vec()});
    return compute(query, value, call, scores);
  }

  std::string class_name_;
  double dropout_;
  AttentionFlags flags_;
  LayerRandom random_;
};

inline std::pair<Tensor, Tensor> attend(const Layer& layer, const Tensor& query,
                                        const Tensor& value, const AttentionCall& call,
                                        bool scores) {
  return static_cast<AttendingImpl&>(*layer).attend(query, value, call, scores);
}

template <class Options>
Options attention_options(const Json& json, const LayerBase& base) {
  Options options;
  options.dropout = member<double>(json, "dropout", 0);
  options.seed = optional_member<int64_t>(json, "seed");
  options.return_attention_scores = member<bool>(json, "return_attention_scores", false);
  options.use_causal_mask = member<bool>(json, "use_causal_mask", false);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return options;
}

// The direct calls of a handle, alike for all.
#define TUTTI_ATTENTION_CALLS(Class)                                                            \
  Tensor Class::operator()(const Tensor& query, const Tensor& value, const AttentionCall& call) \
      const {                                                                                   \
    return attend(*this, query, value, call, false).first;                                      \
  }                                                                                             \
  std::pair<Tensor, Tensor> Class::with_scores(const Tensor& query, const Tensor& value,        \
                                               const AttentionCall& call) const {               \
    return attend(*this, query, value, call, true);                                             \
  }

}  // namespace tutti::keras::layers
