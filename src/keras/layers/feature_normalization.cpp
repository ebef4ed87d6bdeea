#include <algorithm>

#include "keras/layers/encoding.h"
#include "tutti/keras/layers/preprocessing.h"

namespace tutti::keras::layers {
namespace {

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

NormalizationImpl& normalization(const Layer& layer) {
  return impl_of<NormalizationImpl>(layer, "Normalization");
}

constexpr LayerEntry kNormalization[] = {{"Normalization", normalization_from}};

}  // namespace

Normalization::Normalization(const NormalizationOptions& options)
    : Layer(std::make_shared<NormalizationImpl>(options)) {}
Normalization::Normalization(const Layer& layer) : Layer(layer) { normalization(layer); }
void Normalization::adapt(const Tensor& data) const { adapt_to(normalization(*this), data); }
void Normalization::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  adapt_to(normalization(*this), data, steps);
}

LayerFamily feature_normalization_layers() { return kNormalization; }

}  // namespace tutti::keras::layers
