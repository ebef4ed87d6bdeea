#include "tutti/keras/layers/attention.h"

#include <algorithm>
#include <cmath>

#include "keras/layers/nested.h"

namespace tutti::keras::layers {
namespace {

// ---- what all have

/// softmax over the last axis of what the mask (undefined: everything) leaves; 0 elsewhere.
Tensor masked_softmax(const Tensor& scores, const Tensor& mask) {
  if (!mask.defined()) return at::softmax(scores, -1);
  const Tensor hidden = mask.logical_not();
  const double low = scores.scalar_type() == at::kHalf ? -3e4 : -1e9;
  return at::softmax(scores.masked_fill(hidden, low), -1).masked_fill(hidden, 0);
}

Tensor both(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return a.logical_and(b);
}

Tensor causal_mask(int64_t queries, int64_t values, const Tensor& like) {
  return at::ones({1, queries, values}, like.options().dtype(at::kBool)).tril();
}

struct Flags {
  bool scores;
  bool causal;
};

class AttendingImpl : public LayerImpl {
 public:
  AttendingImpl(const char* class_name, const std::string& name, const Shape& input_shape,
                double dropout, std::optional<int64_t> seed, Flags flags)
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
  Flags flags_;
  LayerRandom random_;
};

// ---- heads with projections

struct HeadArguments {
  int64_t query_heads;
  int64_t key_heads;
  int64_t key_dim;
  int64_t value_dim;
  bool use_bias;
  Shape output_shape;
  std::vector<int64_t> attention_axes;
  Initializer kernel_initializer;
  Initializer bias_initializer;
  Regularizer kernel_regularizer;
  Regularizer bias_regularizer;
  std::function<Tensor(const Tensor&)> kernel_constraint;
  std::function<Tensor(const Tensor&)> bias_constraint;
};
template <class Options>
HeadArguments head_arguments(const Options& options) {
  HeadArguments arguments{};
  arguments.use_bias = options.use_bias;
  arguments.kernel_initializer = options.kernel_initializer;
  arguments.bias_initializer = options.bias_initializer;
  arguments.kernel_regularizer = options.kernel_regularizer;
  arguments.bias_regularizer = options.bias_regularizer;
  arguments.kernel_constraint = options.kernel_constraint;
  arguments.bias_constraint = options.bias_constraint;
  return arguments;
}

/// Axes of a projected tensor [batch, axes…, heads, dim] in the order [batch, other axes…, heads,
/// attention axes…, dim].
struct AxisOrder {
  std::vector<int64_t> order;
  std::vector<int64_t> back;
  int64_t others;  ///< how many other axes
};
AxisOrder axis_order(int64_t rank, const std::vector<int64_t>& attention) {
  AxisOrder axes{{0}, {}, 0};
  for (int64_t axis = 1; axis < rank - 1; ++axis) {
    if (std::find(attention.begin(), attention.end(), axis) == attention.end())
      axes.order.push_back(axis);
  }
  axes.others = static_cast<int64_t>(axes.order.size()) - 1;
  axes.order.push_back(rank - 1);
  axes.order.insert(axes.order.end(), attention.begin(), attention.end());
  axes.order.push_back(rank);
  axes.back.resize(axes.order.size());
  for (std::size_t i = 0; i < axes.order.size(); ++i)
    axes.back[static_cast<std::size_t>(axes.order[i])] = static_cast<int64_t>(i);
  return axes;
}

class HeadsImpl : public AttendingImpl {
 public:
  HeadsImpl(const char* class_name, const std::string& name, const Shape& input_shape,
            double dropout, std::optional<int64_t> seed, Flags flags, HeadArguments arguments)
      : AttendingImpl(class_name, name, input_shape, dropout, seed, flags),
        arguments_(std::move(arguments)) {
    check_count(*this, "num_heads", arguments_.query_heads);
    check_count(*this, "num_key_value_heads", arguments_.key_heads);
    check_count(*this, "key_dim", arguments_.key_dim);
    check_count(*this, "value_dim", arguments_.value_dim);
    if (arguments_.query_heads % arguments_.key_heads != 0) {
      throw InvalidArgument(cat(head(*this), arguments_.query_heads, " query heads and ",
                                arguments_.key_heads,
                                " heads of keys and values, expected the first to divide by the "
                                "second"));
    }
  }

 protected:
  bool has_weights() const override { return true; }
  void add_arguments(Json& json) const override {
    json.update({{"use_bias", arguments_.use_bias},
                 {"kernel_initializer", to_json(arguments_.kernel_initializer)},
                 {"bias_initializer", to_json(arguments_.bias_initializer)},
                 {"kernel_regularizer", to_json(arguments_.kernel_regularizer)},
                 {"bias_regularizer", to_json(arguments_.bias_regularizer)}});
    if (class_name() == "MultiHeadAttention") {
      json.update({{"num_heads", arguments_.query_heads},
                   {"key_dim", arguments_.key_dim},
                   {"value_dim", arguments_.value_dim}});
      if (!arguments_.output_shape.empty()) json["output_shape"] = arguments_.output_shape;
      if (!arguments_.attention_axes.empty()) json["attention_axes"] = arguments_.attention_axes;
    } else {
      json.update({{"head_dim", arguments_.key_dim},
                   {"num_query_heads", arguments_.query_heads},
                   {"num_key_value_heads", arguments_.key_heads}});
    }
  }
  Shape output_of(const Shape& query, const Shape& value) const override {
    Shape output(query.begin(), query.end() - 1);
    const Shape last =
        arguments_.output_shape.empty() ? Shape{query.back()} : arguments_.output_shape;
    output.insert(output.end(), last.begin(), last.end());
    return output;
  }
  Shape scores_of(const Shape& query, const Shape& key) const override {
    const auto attention = attention_axes(static_cast<int64_t>(query.size()));
    Shape scores;
    const AxisOrder axes = axis_order(static_cast<int64_t>(query.size()), attention);
    for (int64_t i = 0; i <= axes.others; ++i)
      scores.push_back(query[static_cast<std::size_t>(axes.order[static_cast<std::size_t>(i)])]);
    scores.push_back(arguments_.query_heads);
    for (int64_t axis : attention) scores.push_back(query[static_cast<std::size_t>(axis)]);
    for (int64_t axis : attention) scores.push_back(key[static_cast<std::size_t>(axis)]);
    return scores;
  }
  void build_weights(const Shape& query, const Shape& value, const Shape& key) override {
    if (query.size() != value.size())
      throw InvalidArgument(cat(head(*this), "a query of ", query.size(), " axes and a value of ",
                                value.size(), ", expected as many"));
    attention_axes(static_cast<int64_t>(query.size()));
    const int64_t heads = arguments_.query_heads, shared = arguments_.key_heads;
    query_ = add_projection("query", {query.back(), heads, arguments_.key_dim}, 1);
    key_ = add_projection("key", {key.back(), shared, arguments_.key_dim}, 1);
    value_ = add_projection("value", {value.back(), shared, arguments_.value_dim}, 1);
    Shape back{heads, arguments_.value_dim};
    const Shape output = output_of(query, value);
    back.insert(back.end(), output.begin() + static_cast<std::ptrdiff_t>(query.size()) - 1,
                output.end());
    output_ = add_projection("attention_output", back, 2);
  }
  std::pair<Tensor, Tensor> compute(const Tensor& query, const Tensor& value,
                                    const AttentionCall& call, bool scores) override {
    const int64_t rank = query.dim();
    const std::vector<int64_t> attention = attention_axes(rank);
    const AxisOrder axes = axis_order(rank, attention);
    const Tensor q = project(query, query_, 1).permute(axes.order);
    const Tensor k = project(call.key, key_, 1).permute(axes.order);
    const Tensor v = project(value, value_, 1).permute(axes.order);
    const Tensor mask = whole_mask(query, value, call, q.sizes().slice(0, axes.others + 1));
    auto [mixed, weights] =
        weigh(rows_of(q, axes), rows_of(k, axes), rows_of(v, axes), mask, call, scores);
    std::vector<int64_t> sizes = q.sizes().vec();
    sizes.back() = arguments_.value_dim;
    const Tensor output = project(mixed.reshape(sizes).permute(axes.back), output_, 2);
    if (!weights.defined()) return {output, weights};
    return {output, weights.reshape(scores_of(query.sizes().vec(), call.key.sizes().vec()))};
  }

 private:
  struct Projection {
    Variable kernel;
    Variable bias;
  };
  Projection add_projection(const std::string& part, const Shape& shape, int64_t inputs) {
    Projection projection;
    projection.kernel = add_weight({.name = part + "/kernel",
                                    .shape = shape,
                                    .initializer = arguments_.kernel_initializer,
                                    .regularizer = arguments_.kernel_regularizer,
                                    .constraint = arguments_.kernel_constraint});
    if (arguments_.use_bias) {
      projection.bias = add_weight({.name = part + "/bias",
                                    .shape = Shape(shape.begin() + inputs, shape.end()),
                                    .initializer = arguments_.bias_initializer,
                                    .regularizer = arguments_.bias_regularizer,
                                    .constraint = arguments_.bias_constraint});
    }
    return projection;
  }
  /// The last `inputs` axes of x become the kernel's others: one matmul.
  Tensor project(const Tensor& x, const Projection& projection, int64_t inputs) const {
    const Tensor kernel = value_of(projection.kernel);
    const int64_t width = kernel.size(0) * (inputs == 2 ? kernel.size(1) : 1);
    const Tensor flat = inputs == 1 ? x : x.flatten(-2, -1);
    if (flat.size(-1) != width) {
      throw InvalidArgument(cat(head(*this), "input of shape ", shape_text(x.sizes()),
                                ", expected ", width, " features, those it was built with"));
    }
    const Tensor matrix = kernel.reshape({width, kernel.numel() / width});
    Tensor product = at::matmul(flat, matrix);
    if (projection.bias.defined()) product = product + value_of(projection.bias).reshape({-1});
    std::vector<int64_t> sizes(flat.sizes().begin(), flat.sizes().end() - 1);
    sizes.insert(sizes.end(), kernel.sizes().begin() + inputs, kernel.sizes().end());
    return product.reshape(sizes);
  }
  std::vector<int64_t> attention_axes(int64_t rank) const {
    std::vector<int64_t> axes = arguments_.attention_axes;
    if (axes.empty()) {
      for (int64_t axis = 1; axis < rank - 1; ++axis) axes.push_back(axis);
    }
    for (int64_t& axis : axes) {
      if (axis < 0) axis += rank;
      if (axis < 1 || axis > rank - 2)
        throw InvalidArgument(cat(head(*this), "attention axis ", axis, " of inputs of ", rank,
                                  " axes, expected one from 1 to ", rank - 2));
    }
    return axes;
  }
  /// [batch × other axes, heads, attended positions, dim], keys and values repeated for the query
  /// heads that share them.
  Tensor rows_of(const Tensor& ordered, const AxisOrder& axes) const {
    const int64_t heads = ordered.size(axes.others + 1);
    const int64_t dim = ordered.size(-1);
    int64_t batch = 1, positions = 1;
    for (int64_t i = 0; i <= axes.others; ++i) batch *= ordered.size(i);
    for (int64_t i = axes.others + 2; i < ordered.dim() - 1; ++i) positions *= ordered.size(i);
    const Tensor rows = ordered.reshape({batch, heads, positions, dim});
    return heads == arguments_.query_heads
               ? rows
               : rows.repeat_interleave(arguments_.query_heads / heads, 1);
  }
  /// bool [batch × other axes or 1, 1, T, S] of all that hides values; undefined: nothing does, or
  /// causality alone.
  Tensor whole_mask(const Tensor& query, const Tensor& value, const AttentionCall& call,
                    at::IntArrayRef batch_axes) const {
    Tensor mask;
    if (call.query_mask.defined() || call.value_mask.defined() || call.key_mask.defined()) {
      if (query.dim() != 3)
        throw InvalidArgument(cat(head(*this), "masks for a query of ", query.dim(),
                                  " axes, expected 3; give an attention_mask"));
      if (call.query_mask.defined()) mask = call.query_mask.to(at::kBool).unsqueeze(-1);
      if (call.value_mask.defined()) mask = both(mask, call.value_mask.to(at::kBool).unsqueeze(-2));
      if (call.key_mask.defined()) mask = both(mask, call.key_mask.to(at::kBool).unsqueeze(-2));
    }
    if (call.attention_mask.defined()) {
      const Tensor& given = call.attention_mask;
      const auto attended = static_cast<int64_t>(attention_axes(query.dim()).size());
      if (given.dim() < 2)
        throw InvalidArgument(cat(head(*this), "an attention mask of shape ",
                                  shape_text(given.sizes()), ", expected (batch, T, S)"));
      Tensor flat = given.to(at::kBool);
      if (attended > 1 && given.dim() == 1 + 2 * attended)
        flat = flat.flatten(1 + attended, 2 * attended).flatten(1, attended);
      mask = both(mask, flat.dim() == 2 ? flat.unsqueeze(0) : flat);
    }
    if (!mask.defined()) return mask;
    if (mask.dim() == 4) return mask;  // heads have masks of their own
    int64_t others = 1;
    for (std::size_t i = 1; i < batch_axes.size(); ++i) others *= batch_axes[i];
    if (others > 1 && mask.size(0) > 1) mask = mask.repeat_interleave(others, 0);
    return mask.unsqueeze(1);
  }
  std::pair<Tensor, Tensor> weigh(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& mask, const AttentionCall& call, bool scores) {
    const double factor = 1 / std::sqrt(static_cast<double>(arguments_.key_dim));
    if (!scores && !drops(call) && q.numel() > 0 && k.numel() > 0) {
      const bool alone = call.use_causal_mask && !mask.defined();
      const Tensor all =
          call.use_causal_mask && !alone ? both(mask, causal_mask(q.size(2), k.size(2), q)) : mask;
      const auto given = all.defined() ? std::optional<Tensor>(all) : std::nullopt;
      return {at::scaled_dot_product_attention(q, k, v, given, 0, alone, factor), Tensor()};
    }
    const Tensor all =
        call.use_causal_mask ? both(mask, causal_mask(q.size(2), k.size(2), q)) : mask;
    const Tensor weights = masked_softmax(at::matmul(q * factor, k.transpose(-2, -1)), all);
    return {at::matmul(dropped(weights, call), v), weights};
  }

  HeadArguments arguments_;
  Projection query_, key_, value_, output_;
};

// ---- without projections

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

std::shared_ptr<LayerImpl> make_heads(int64_t num_heads, int64_t key_dim,
                                      const MultiHeadAttentionOptions& options) {
  HeadArguments arguments = head_arguments(options);
  arguments.query_heads = arguments.key_heads = num_heads;
  arguments.key_dim = key_dim;
  arguments.value_dim = options.value_dim.value_or(key_dim);
  arguments.output_shape = options.output_shape;
  arguments.attention_axes = options.attention_axes;
  return std::make_shared<HeadsImpl>(
      "MultiHeadAttention", options.name, options.input_shape, options.dropout, options.seed,
      Flags{options.return_attention_scores, options.use_causal_mask}, std::move(arguments));
}
std::shared_ptr<LayerImpl> make_groups(int64_t head_dim, int64_t query_heads, int64_t key_heads,
                                       const GroupQueryAttentionOptions& options) {
  HeadArguments arguments = head_arguments(options);
  arguments.query_heads = query_heads;
  arguments.key_heads = key_heads;
  arguments.key_dim = arguments.value_dim = head_dim;
  return std::make_shared<HeadsImpl>(
      "GroupedQueryAttention", options.name, options.input_shape, options.dropout, options.seed,
      Flags{options.return_attention_scores, options.use_causal_mask}, std::move(arguments));
}

std::pair<Tensor, Tensor> attend(const Layer& layer, const Tensor& query, const Tensor& value,
                                 const AttentionCall& call, bool scores) {
  return static_cast<AttendingImpl&>(*layer).attend(query, value, call, scores);
}

template <class Options>
Options common_options(const Json& json, const LayerBase& base) {
  Options options;
  options.dropout = member<double>(json, "dropout", 0);
  options.seed = optional_member<int64_t>(json, "seed");
  options.return_attention_scores = member<bool>(json, "return_attention_scores", false);
  options.use_causal_mask = member<bool>(json, "use_causal_mask", false);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return options;
}
template <class Options>
Options heads_options(const Json& json, const LayerBase& base) {
  auto options = common_options<Options>(json, base);
  options.use_bias = member<bool>(json, "use_bias", true);
  options.kernel_initializer =
      initializer_from(json, "kernel_initializer", options.kernel_initializer);
  options.bias_initializer = initializer_from(json, "bias_initializer", options.bias_initializer);
  options.kernel_regularizer = regularizer_from(json, "kernel_regularizer");
  options.bias_regularizer = regularizer_from(json, "bias_regularizer");
  return options;
}

Layer multi_head_from(const Json& json, const LayerBase& base) {
  auto options = heads_options<MultiHeadAttentionOptions>(json, base);
  options.value_dim = optional_member<int64_t>(json, "value_dim");
  options.output_shape = integers(json, "output_shape");
  options.attention_axes = integers(json, "attention_axes");
  return MultiHeadAttention(member<int64_t>(json, "num_heads", 0),
                            member<int64_t>(json, "key_dim", 0), options);
}
Layer group_query_from(const Json& json, const LayerBase& base) {
  return GroupQueryAttention(member<int64_t>(json, "head_dim", 0),
                             member<int64_t>(json, "num_query_heads", 0),
                             member<int64_t>(json, "num_key_value_heads", 0),
                             heads_options<GroupQueryAttentionOptions>(json, base));
}
Layer attention_from(const Json& json, const LayerBase& base) {
  auto options = common_options<AttentionOptions>(json, base);
  options.use_scale = member<bool>(json, "use_scale", false);
  options.score_mode = member<std::string>(json, "score_mode", "dot");
  return Attention(options);
}
Layer additive_from(const Json& json, const LayerBase& base) {
  auto options = common_options<AdditiveAttentionOptions>(json, base);
  options.use_scale = member<bool>(json, "use_scale", true);
  return AdditiveAttention(options);
}

constexpr LayerEntry kAttentionLayers[] = {{"MultiHeadAttention", multi_head_from},
                                           {"GroupedQueryAttention", group_query_from},
                                           {"GroupQueryAttention", group_query_from},
                                           {"Attention", attention_from},
                                           {"AdditiveAttention", additive_from}};

}  // namespace

MultiHeadAttention::MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                                       const MultiHeadAttentionOptions& options)
    : Layer(make_heads(num_heads, key_dim, options)) {}
GroupQueryAttention::GroupQueryAttention(int64_t head_dim, int64_t num_query_heads,
                                         int64_t num_key_value_heads,
                                         const GroupQueryAttentionOptions& options)
    : Layer(make_groups(head_dim, num_query_heads, num_key_value_heads, options)) {}
Attention::Attention(const AttentionOptions& options)
    : Layer(std::make_shared<PlainAttentionImpl>(options)) {}
AdditiveAttention::AdditiveAttention(const AdditiveAttentionOptions& options)
    : Layer(std::make_shared<PlainAttentionImpl>(options)) {}

#define TUTTI_DIRECT_CALLS(Class)                                                               \
  Tensor Class::operator()(const Tensor& query, const Tensor& value, const AttentionCall& call) \
      const {                                                                                   \
    return attend(*this, query, value, call, false).first;                                      \
  }                                                                                             \
  std::pair<Tensor, Tensor> Class::with_scores(const Tensor& query, const Tensor& value,        \
                                               const AttentionCall& call) const {               \
    return attend(*this, query, value, call, true);                                             \
  }
TUTTI_DIRECT_CALLS(MultiHeadAttention)
TUTTI_DIRECT_CALLS(GroupQueryAttention)
TUTTI_DIRECT_CALLS(Attention)
TUTTI_DIRECT_CALLS(AdditiveAttention)
#undef TUTTI_DIRECT_CALLS

LayerFamily attention_layers() { return kAttentionLayers; }

}  // namespace tutti::keras::layers
