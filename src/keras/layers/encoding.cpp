// Numbers in, numbers out: Normalization, CategoryEncoding, Discretization.

#include "keras/layers/encoding.h"

#include <algorithm>
#include <cmath>

#include "tutti/distribute/strategy.h"
#include "tutti/keras/layers/preprocessing.h"

namespace tutti::keras::layers {

Tensor encode_categories(const Tensor& indices, const std::string& mode, int64_t depth,
                         at::ScalarType dtype, const Tensor& weights) {
  Tensor index = indices.to(at::kLong);
  if (index.dim() == 0) index = index.unsqueeze(0);
  // What is out of range is put into one column more, which is cut off.
  index = at::where(index.lt(0).logical_or(index.ge(depth)), depth, index);
  if (mode == "one_hot") {
    if (index.dim() > 1 && index.size(-1) == 1) index = index.squeeze(-1);
    index = index.unsqueeze(-1);
  }
  std::vector<int64_t> sizes = index.sizes().vec();
  sizes.back() = depth + 1;
  Tensor encoded = at::zeros(sizes, index.options().dtype(dtype));
  if (mode != "count") {
    encoded.scatter_(-1, index, 1);
  } else {
    encoded.scatter_add_(-1, index,
                         weights.defined() ? weights.to(dtype).expand_as(index)
                                           : at::ones_like(index, encoded.options()));
  }
  return encoded.narrow(-1, 0, depth).contiguous();
}

Shape encoded_shape(const Shape& input, const std::string& mode, int64_t depth) {
  if (mode == "int") return input;
  Shape output = input.empty() ? Shape{1} : input;
  if (mode == "one_hot" && (output.size() == 1 || output.back() != 1)) output.push_back(1);
  output.back() = depth;
  return output;
}

void for_each_batch(const LayerImpl& layer, const data::Dataset<Nest>& data,
                    std::optional<int64_t> steps, FunctionRef<void(const Nest&)> take) {
  if (!steps && data.cardinality() == data::kInfinite)
    throw InvalidArgument(cat("adapt [", layer.name(),
                              "]: a dataset without end, expected a finite one; give steps"));
  auto iterator = steps ? data.take(*steps).iterator() : data.iterator();
  bool any = false;
  while (const auto element = iterator.next()) {
    const bool first = element->kind() == NestKind::kTuple && element->size() > 0;
    take(first ? (*element)[0] : *element);
    any = true;
  }
  if (!any)
    throw InvalidArgument(
        cat("adapt [", layer.name(), "]: a dataset without elements, expected at least one"));
}

void check_adapts_here(const LayerImpl& layer) {
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || replica->strategy().is_default()) return;
  throw FailedPrecondition(cat("adapt [", layer.name(), "]: called in replica ",
                               replica->replica_id_in_sync_group(),
                               ", expected outside replicas, before the layer is used"));
}

const Tensor& tensor_of(const LayerImpl& layer, const Nest& element) {
  if (element.is_leaf() && element.leaf().defined()) return element.leaf();
  throw InvalidArgument(
      cat("adapt [", layer.name(), "]: an element ", element.structure(), ", expected a tensor"));
}

std::vector<double> flat_numbers(const Json& json, const char* key) {
  std::vector<double> numbers;
  const auto add = [&](const Json& value, const auto& again) -> void {
    if (value.is_number()) numbers.push_back(value.get<double>());
    if (!value.is_array()) return;
    for (const Json& item : value) again(item, again);
  };
  if (json.contains(key)) add(json[key], add);
  return numbers;
}

namespace {

// ---- Normalization

/// Mean and squared deviations of all that was added, in double; parts meet exactly (Chan).
struct Moments {
  double count = 0;
  Tensor mean, squares;
  /// `rows`: [n, entries].
  void add(const Tensor& rows) {
    if (rows.size(0) == 0) return;
    const Tensor values = rows.to(at::kDouble);
    const auto number = static_cast<double>(values.size(0));
    const auto [variance, center] = at::var_mean(values, at::IntArrayRef{0}, /*correction=*/0);
    if (count == 0) {
      mean = center;
      squares = variance * number;
    } else {
      const Tensor apart = center - mean;
      mean = mean + apart * (number / (count + number));
      squares = squares + variance * number + apart.square() * (count * number / (count + number));
    }
    count += number;
  }
};

class NormalizationImpl : public LayerImpl {
 public:
  explicit NormalizationImpl(const NormalizationOptions& options)
      : LayerImpl("Normalization", options.name, options.input_shape), options_(options) {
    if (options.mean.empty() != options.variance.empty() ||
        options.mean.size() != options.variance.size()) {
      throw InvalidArgument(cat(head(*this), options.mean.size(), " means and ",
                                options.variance.size(),
                                " variances, expected as many, or none of both"));
    }
  }
  std::string class_name() const override { return "Normalization"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["axis"] = options_.axis;
    if (!options_.mean.empty())
      json.update({{"mean", options_.mean}, {"variance", options_.variance}});
    json["invert"] = options_.invert;
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    kept_of(input);
    return input;
  }
  bool supports_masking() const override { return true; }

  void begin() {
    check_adapts_here(*this);
    if (!options_.mean.empty())
      throw InvalidArgument(
          cat("adapt [", name(), "]: mean and variance were given, expected a layer without them"));
    moments_ = {};
  }
  void add(const Tensor& data) {
    const Tensor batch = data.dim() <= 1 && !options_.axis.empty() ? data.unsqueeze(0) : data;
    if (!built()) {
      Shape shape = batch.sizes().vec();
      const std::vector<std::size_t> kept = kept_of(shape);
      if (!shape.empty() && std::find(kept.begin(), kept.end(), 0U) == kept.end()) shape[0] = -1;
      build_for(shape);
    }
    const Shape sizes = batch.sizes().vec();
    const std::vector<std::size_t> kept = kept_of(sizes);
    std::vector<int64_t> order, found;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if (std::find(kept.begin(), kept.end(), axis) == kept.end())
        order.push_back(static_cast<int64_t>(axis));
    }
    for (std::size_t axis : kept) {
      order.push_back(static_cast<int64_t>(axis));
      found.push_back(sizes[axis]);
    }
    if (found != kept_sizes_)
      throw InvalidArgument(cat("adapt [", name(), "]: data of shape ", shape_text(sizes),
                                ", expected ", shape_text(kept_sizes_),
                                " in the axes that are kept, as the layer was built"));
    int64_t entries = 1;
    for (int64_t size : found) entries *= size;
    moments_.add(
        batch.permute(order).reshape({entries == 0 ? 0 : batch.numel() / entries, entries}));
  }
  void finish() {
    if (moments_.count == 0)
      throw InvalidArgument(cat("adapt [", name(), "]: no numbers, expected at least one"));
    const at::ScalarType dtype = dtype_policy().variable_dtype();
    mean_.assign(moments_.mean.reshape(kept_sizes_).to(dtype));
    variance_.assign((moments_.squares / moments_.count).reshape(kept_sizes_).to(dtype));
    count_.assign(at::scalar_tensor(moments_.count, at::kLong));
    moments_ = {};
  }

 protected:
  bool has_weights() const override { return options_.mean.empty(); }
  void build(const Shape& input) override {
    rank_ = static_cast<int64_t>(input.size());
    kept_ = kept_of(input);
    kept_sizes_.clear();
    for (std::size_t axis : kept_) kept_sizes_.push_back(input[axis]);
    if (options_.mean.empty()) {
      mean_ = add_statistic("mean", initializers::Zeros());
      variance_ = add_statistic("variance", initializers::Ones());
      count_ = add_weight({.name = "count",
                           .shape = {},
                           .initializer = initializers::Zeros(),
                           .trainable = false,
                           .dtype = at::kLong});
      return;
    }
    given_mean_ = given(options_.mean);
    given_variance_ = given(options_.variance);
  }
  Tensor call(const Tensor& input, bool training) override {
    const at::ScalarType dtype = dtype_policy().compute_dtype();
    const Tensor x = input.is_floating_point() ? input : input.to(dtype);
    const bool learned = options_.mean.empty();
    const Tensor mean = placed(learned ? mean_.value() : given_mean_, x);
    const Tensor spread =
        placed(learned ? variance_.value() : given_variance_, x).sqrt().clamp_min(1e-7);
    return options_.invert ? x * spread + mean : (x - mean) / spread;
  }

 private:
  Variable add_statistic(const char* weight_name, const Initializer& initializer) {
    return add_weight({.name = weight_name,
                       .shape = kept_sizes_,
                       .initializer = initializer,
                       .trainable = false});
  }
  std::vector<std::size_t> kept_of(const Shape& input) const {
    const auto rank = static_cast<int64_t>(input.size());
    std::vector<std::size_t> kept;
    for (int64_t axis : options_.axis) {
      const int64_t at = axis < 0 ? axis + rank : axis;
      if (at < 0 || at >= rank || input[static_cast<std::size_t>(at)] < 0) {
        throw InvalidArgument(cat(head(*this), "axis ", axis, " of an input of shape ",
                                  shape_text(input), ", expected an axis of known size"));
      }
      kept.push_back(static_cast<std::size_t>(at));
    }
    std::sort(kept.begin(), kept.end());
    return kept;
  }
  Tensor given(const std::vector<double>& numbers) const {
    const Tensor values = at::tensor(numbers, at::kDouble).to(at::kFloat);
    int64_t entries = 1;
    for (int64_t size : kept_sizes_) entries *= size;
    if (values.numel() == 1) return values.expand({entries}).reshape(kept_sizes_);
    if (values.numel() == entries) return values.reshape(kept_sizes_);
    if (!kept_sizes_.empty() && values.numel() == kept_sizes_.back())
      return values.expand(kept_sizes_);
    throw InvalidArgument(cat(head(*this), values.numel(), " means for entries of shape ",
                              shape_text(kept_sizes_), ", expected one, ", entries,
                              " or those of the last axis"));
  }
  /// Where the kept axes are in x, which may be one sample without the batch axis.
  Tensor placed(const Tensor& statistic, const Tensor& x) const {
    const int64_t missing = rank_ - x.dim();
    std::vector<int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const int64_t axis = static_cast<int64_t>(kept_[i]) - missing;
      if (missing < 0 || axis < 0 || x.size(axis) != kept_sizes_[i])
        throw InvalidArgument(cat(head(*this), "input of shape ", shape_text(x.sizes()),
                                  ", expected ", rank_, " axes with ", shape_text(kept_sizes_),
                                  " in those that are kept, as the layer was built"));
      sizes[static_cast<std::size_t>(axis)] = kept_sizes_[i];
    }
    return statistic.to(x.options()).reshape(sizes);
  }

  NormalizationOptions options_;
  int64_t rank_ = 0;
  std::vector<std::size_t> kept_;
  Shape kept_sizes_;
  Variable mean_, variance_, count_;
  Tensor given_mean_, given_variance_;
  Moments moments_;
};

// ---- CategoryEncoding

class CategoryEncodingImpl : public LayerImpl {
 public:
  CategoryEncodingImpl(int64_t num_tokens, const CategoryEncodingOptions& options)
      : LayerImpl("CategoryEncoding", options.name, options.input_shape),
        num_tokens_(num_tokens),
        mode_(options.output_mode) {
    check_count(*this, "num_tokens", num_tokens);
    check_word(*this, "output_mode", mode_, {"one_hot", "multi_hot", "count"});
  }
  std::string class_name() const override { return "CategoryEncoding"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"num_tokens", num_tokens_}, {"output_mode", mode_}});
    return json.dump();
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (inputs.empty() || inputs.size() > 2 || (inputs.size() == 2 && mode_ != "count"))
      throw InvalidArgument(cat(head(*this), inputs.size(), " inputs, expected indices",
                                mode_ == "count" ? " and perhaps what they count" : ""));
    return {encoded_shape(inputs[0], mode_, num_tokens_)};
  }

 protected:
  bool autocasts() const override { return false; }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    const Tensor& indices = inputs[0];
    if (indices.is_cpu() && indices.numel() > 0) {
      const auto low = indices.min().item<double>(), high = indices.max().item<double>();
      if (!(low >= 0 && high < static_cast<double>(num_tokens_)))
        throw InvalidArgument(cat(head(*this), "indices from ", low, " to ", high,
                                  ", expected 0 or more and below ", num_tokens_));
    }
    return {encode_categories(indices, mode_, num_tokens_, dtype_policy().compute_dtype(),
                              inputs.size() > 1 ? inputs[1] : Tensor())};
  }

 private:
  int64_t num_tokens_;
  std::string mode_;
};

// ---- Discretization

/// Numbers that each stand for a weight: a sketch of the data's distribution (Keras').
struct Summary {
  std::vector<float> values;
  std::vector<float> weights;
};

/// np.interp.
double interpolate(double x, const std::vector<float>& at, const std::vector<float>& values) {
  if (x <= at.front()) return values.front();
  if (x >= at.back()) return values.back();
  const auto above =
      static_cast<std::size_t>(std::upper_bound(at.begin(), at.end(), x) - at.begin());
  const double left = at[above - 1], right = at[above];
  const double slope = (static_cast<double>(values[above]) - values[above - 1]) / (right - left);
  return slope * (x - left) + values[above - 1];
}

Summary compressed(const Summary& summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1) return summary;
  std::vector<float> cumulated(summary.weights.size());
  float sum = 0;
  for (std::size_t i = 0; i < cumulated.size(); ++i) cumulated[i] = sum += summary.weights[i];
  std::vector<float> shares(cumulated.size());
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = cumulated[i] / cumulated.back();
  Summary shorter;
  double before = 0;
  const auto steps = static_cast<int64_t>(std::ceil(1.0 / epsilon));
  for (int64_t i = 0; i < steps; ++i) {
    const double share = epsilon + static_cast<double>(i) * epsilon;
    shorter.values.push_back(static_cast<float>(interpolate(share, shares, summary.values)));
    const double weight = interpolate(share, shares, cumulated);
    shorter.weights.push_back(static_cast<float>(weight - before));
    before = weight;
  }
  return shorter;
}

Summary summarized(std::vector<float> values, double epsilon) {
  std::sort(values.begin(), values.end());
  const double step = std::max(static_cast<double>(values.size()) / (1.0 / epsilon), 1.0);
  Summary summary;
  for (auto i = static_cast<std::size_t>(step - 1); i < values.size();
       i += static_cast<std::size_t>(step)) {
    summary.values.push_back(values[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  return summary;
}

Summary merged(const Summary& a, const Summary& b, double epsilon) {
  std::vector<std::pair<float, float>> rows;
  for (std::size_t i = 0; i < a.values.size(); ++i) rows.emplace_back(a.values[i], a.weights[i]);
  for (std::size_t i = 0; i < b.values.size(); ++i) rows.emplace_back(b.values[i], b.weights[i]);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  Summary both;
  for (const auto& [value, weight] : rows) {
    both.values.push_back(value);
    both.weights.push_back(weight);
  }
  return compressed(both, epsilon);
}

class DiscretizationImpl : public LayerImpl {
 public:
  explicit DiscretizationImpl(const DiscretizationOptions& options)
      : LayerImpl("Discretization", options.name, options.input_shape),
        options_(options),
        given_(!options.num_bins) {
    check_word(*this, "output_mode", options_.output_mode,
               {"int", "one_hot", "multi_hot", "count"});
    if (given_ && options_.bin_boundaries.empty())
      throw InvalidArgument(
          cat(head(*this), "neither bin_boundaries nor num_bins, expected one of them"));
    if (!given_) check_count(*this, "num_bins", *options_.num_bins);
    if (!(options_.epsilon > 0 && options_.epsilon < 1))
      throw InvalidArgument(
          cat(head(*this), "epsilon ", options_.epsilon, ", expected between 0 and 1"));
    set_boundaries(options_.bin_boundaries);
  }
  std::string class_name() const override { return "Discretization"; }
  std::string config() const override {
    Json json = base_config(*this);
    if (!options_.bin_boundaries.empty()) json["bin_boundaries"] = options_.bin_boundaries;
    put(json, "num_bins", options_.num_bins);
    json.update({{"epsilon", options_.epsilon}, {"output_mode", options_.output_mode}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    return encoded_shape(input, options_.output_mode, depth());
  }
  const std::vector<double>& boundaries() const { return options_.bin_boundaries; }

  void begin() {
    check_adapts_here(*this);
    if (given_)
      throw InvalidArgument(
          cat("adapt [", name(), "]: bin_boundaries were given, expected a layer with num_bins"));
    summary_ = {};
  }
  void add(const Tensor& data) {
    const Tensor values = data.to(at::kCPU, at::kFloat).contiguous();
    const auto* first = values.const_data_ptr<float>();
    summary_ =
        merged(summarized(std::vector<float>(first, first + values.numel()), options_.epsilon),
               summary_, options_.epsilon);
  }
  void finish() {
    if (summary_.values.empty())
      throw InvalidArgument(cat("adapt [", name(), "]: no numbers, expected at least one"));
    const Summary bins = compressed(summary_, 1.0 / static_cast<double>(*options_.num_bins));
    set_boundaries(std::vector<double>(bins.values.begin(), bins.values.end() - 1));
    if (!boundaries_.defined()) boundaries_ = at::empty({0}, at::kFloat);  // one bin
    summary_ = {};
  }

 protected:
  bool autocasts() const override { return false; }
  Tensor call(const Tensor& input, bool training) override {
    if (!boundaries_.defined())
      throw FailedPrecondition(
          cat(head(*this), "no bins yet, expected bin_boundaries or a call of adapt before"));
    const Tensor bins = at::bucketize(input.to(at::kFloat), boundaries_.to(input.device()),
                                      /*out_int32=*/true, /*right=*/true);
    return options_.output_mode == "int" ? bins
                                         : encode_categories(bins, options_.output_mode, depth(),
                                                             dtype_policy().compute_dtype());
  }

 private:
  int64_t depth() const {
    return boundaries_.defined() ? boundaries_.numel() + 1 : options_.num_bins.value_or(-1);
  }
  void set_boundaries(std::vector<double> boundaries) {
    if (!std::is_sorted(boundaries.begin(), boundaries.end()))
      throw InvalidArgument(cat(head(*this), "bin_boundaries that fall, expected rising ones"));
    options_.bin_boundaries = std::move(boundaries);
    boundaries_ = Tensor();
    if (!options_.bin_boundaries.empty())
      boundaries_ = at::tensor(options_.bin_boundaries, at::kDouble).to(at::kFloat);
  }

  DiscretizationOptions options_;
  bool given_;
  Tensor boundaries_;
  Summary summary_;
};

Layer normalization_from(const Json& json, const LayerBase& base) {
  NormalizationOptions options;
  if (json.contains("axis")) options.axis = integers(json, "axis");
  options.mean = flat_numbers(json, "mean");
  options.variance = flat_numbers(json, "variance");
  options.invert = member<bool>(json, "invert", false);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Normalization(options);
}
Layer category_from(const Json& json, const LayerBase& base) {
  return CategoryEncoding(
      member<int64_t>(json, "num_tokens", 0),
      {member<std::string>(json, "output_mode", "multi_hot"), base.name, base.input_shape});
}
Layer discretization_from(const Json& json, const LayerBase& base) {
  DiscretizationOptions options;
  options.bin_boundaries = flat_numbers(json, "bin_boundaries");
  options.num_bins = optional_member<int64_t>(json, "num_bins");
  options.epsilon = member<double>(json, "epsilon", 0.01);
  options.output_mode = member<std::string>(json, "output_mode", "int");
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Discretization(options);
}

constexpr LayerEntry kEncodingLayers[] = {{"Normalization", normalization_from},
                                          {"CategoryEncoding", category_from},
                                          {"Discretization", discretization_from}};

template <class Impl>
void adapt_to(Impl& impl, const Tensor& data) {
  if (!data.defined())
    throw InvalidArgument(cat("adapt [", impl.name(), "]: an undefined tensor, expected data"));
  impl.begin();
  impl.add(data);
  impl.finish();
}
template <class Impl>
void adapt_to(Impl& impl, const data::Dataset<Nest>& data, std::optional<int64_t> steps) {
  impl.begin();
  for_each_batch(impl, data, steps,
                 [&](const Nest& element) { impl.add(tensor_of(impl, element)); });
  impl.finish();
}

NormalizationImpl& normalization(const Layer& layer) {
  return impl_of<NormalizationImpl>(layer, "Normalization");
}
DiscretizationImpl& discretization(const Layer& layer) {
  return impl_of<DiscretizationImpl>(layer, "Discretization");
}

}  // namespace

Normalization::Normalization(const NormalizationOptions& options)
    : Layer(std::make_shared<NormalizationImpl>(options)) {}
Normalization::Normalization(const Layer& layer) : Layer(layer) { normalization(layer); }
void Normalization::adapt(const Tensor& data) const { adapt_to(normalization(*this), data); }
void Normalization::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  adapt_to(normalization(*this), data, steps);
}
CategoryEncoding::CategoryEncoding(int64_t num_tokens, const CategoryEncodingOptions& options)
    : Layer(std::make_shared<CategoryEncodingImpl>(num_tokens, options)) {}
Discretization::Discretization(const DiscretizationOptions& options)
    : Layer(std::make_shared<DiscretizationImpl>(options)) {}
Discretization::Discretization(const Layer& layer) : Layer(layer) { discretization(layer); }
void Discretization::adapt(const Tensor& data) const { adapt_to(discretization(*this), data); }
void Discretization::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  adapt_to(discretization(*this), data, steps);
}
std::vector<double> Discretization::bin_boundaries() const {
  return discretization(*this).boundaries();
}

LayerFamily encoding_layers() { return kEncodingLayers; }

}  // namespace tutti::keras::layers
