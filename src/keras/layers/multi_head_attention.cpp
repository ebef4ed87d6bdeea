#include <cmath>

#include "keras/layers/attention_impl.h"

namespace tutti::keras::layers {
namespace {

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
  Constraint kernel_constraint;
  Constraint bias_constraint;
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
            double dropout, std::optional<int64_t> seed, AttentionFlags flags,
            HeadArguments arguments)
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
                 {"bias_regularizer", to_json(arguments_.bias_regularizer)},
                 {"kernel_constraint", to_json(arguments_.kernel_constraint)},
                 {"bias_constraint", to_json(arguments_.bias_constraint)}});
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
                                    .constraint = arguments_.kernel_constraint.function()});
    if (arguments_.use_bias) {
      projection.bias = add_weight({.name = part + "/bias",
                                    .shape = Shape(shape.begin() + inputs, shape.end()),
                                    .initializer = arguments_.bias_initializer,
                                    .regularizer = arguments_.bias_regularizer,
                                    .constraint = arguments_.bias_constraint.function()});
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
      AttentionFlags{options.return_attention_scores, options.use_causal_mask},
      std::move(arguments));
}
std::shared_ptr<LayerImpl> make_groups(int64_t head_dim, int64_t query_heads, int64_t key_heads,
                                       const GroupQueryAttentionOptions& options) {
  HeadArguments arguments = head_arguments(options);
  arguments.query_heads = query_heads;
  arguments.key_heads = key_heads;
  arguments.key_dim = arguments.value_dim = head_dim;
  return std::make_shared<HeadsImpl>(
      "GroupedQueryAttention", options.name, options.input_shape, options.dropout, options.seed,
      AttentionFlags{options.return_attention_scores, options.use_causal_mask},
      std::move(arguments));
}

template <class Options>
Options heads_options(const Json& json, const LayerBase& base) {
  auto options = attention_options<Options>(json, base);
  options.use_bias = member<bool>(json, "use_bias", true);
  options.kernel_initializer =
      argument_from(json, "kernel_initializer", options.kernel_initializer, base);
  options.bias_initializer =
      argument_from(json, "bias_initializer", options.bias_initializer, base);
  options.kernel_regularizer =
      argument_from(json, "kernel_regularizer", options.kernel_regularizer, base);
  options.bias_regularizer =
      argument_from(json, "bias_regularizer", options.bias_regularizer, base);
  options.kernel_constraint =
      argument_from(json, "kernel_constraint", options.kernel_constraint, base);
  options.bias_constraint = argument_from(json, "bias_constraint", options.bias_constraint, base);
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
constexpr LayerEntry kHeads[] = {{"MultiHeadAttention", multi_head_from},
                                 {"GroupedQueryAttention", group_query_from},
                                 {"GroupQueryAttention", group_query_from}};

}  // namespace

MultiHeadAttention::MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                                       const MultiHeadAttentionOptions& options)
    : Layer(make_heads(num_heads, key_dim, options)) {}
GroupQueryAttention::GroupQueryAttention(int64_t head_dim, int64_t num_query_heads,
                                         int64_t num_key_value_heads,
                                         const GroupQueryAttentionOptions& options)
    : Layer(make_groups(head_dim, num_query_heads, num_key_value_heads, options)) {}
TUTTI_ATTENTION_CALLS(MultiHeadAttention)
TUTTI_ATTENTION_CALLS(GroupQueryAttention)

LayerFamily multi_head_layers() { return kHeads; }

}  // namespace tutti::keras::layers
