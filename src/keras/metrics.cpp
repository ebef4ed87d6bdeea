#include "tutti/keras/metrics.h"

#include "keras/json.h"
#include "tutti/keras/losses.h"

namespace tutti::keras::metrics {

/// Two float32 scalars a replica. `values` says what a batch adds; the rest is the same for all.
class Metric::Impl {
 public:
  using Values = std::function<Tensor(const Tensor&, const Tensor&)>;
  Impl(std::string class_name, std::string name, Direction direction, Values values,
       bool mean = true, double threshold = 0)
      : class_name(std::move(class_name)),
        name(std::move(name)),
        direction(direction),
        values(std::move(values)),
        mean(mean),
        threshold(threshold) {
    total = state("total");
    if (mean) count = state("count");
  }

  bool takes_predictions() const { return class_name != "Mean" && class_name != "Sum"; }

  /// A mean counts samples: of entries [B, …] it adds B means.
  void add(const Tensor& entries, const Tensor& sample_weight) {
    at::NoGradGuard no_grad;
    const Tensor numbers = entries.scalar_type() == at::kFloat ? entries : entries.to(at::kFloat);
    if (sample_weight.defined()) return add_weighted(numbers, sample_weight.to(at::kFloat));
    if (!mean) return static_cast<void>(total.assign_add(numbers.sum()));
    const int64_t samples = numbers.dim() == 0 ? 1 : numbers.size(0);
    Tensor sum = numbers.sum();
    if (numbers.numel() != samples && numbers.numel() > 0)
      sum = sum * (static_cast<double>(samples) / static_cast<double>(numbers.numel()));
    // Also for an empty batch: where variables have one copy, replicas add together.
    total.assign_add(sum);
    count.assign_add(at::full({}, static_cast<double>(samples)));
  }

  Tensor result() const {
    at::NoGradGuard no_grad;
    const Tensor sum = total.read_value();
    if (!mean) return sum;
    const Tensor number = count.read_value();
    return number.item<float>() == 0 ? at::zeros_like(sum) : sum / number;
  }

  std::string class_name;
  std::string name;
  Direction direction;
  Values values;
  bool mean;
  double threshold;
  Variable total;
  Variable count;

 private:
  /// Entries are first reduced to the weights' rank, so that [B] weighs the samples of [B, steps].
  void add_weighted(const Tensor& numbers, const Tensor& sample_weight) {
    auto [values, weights] = losses::same_rank(numbers, sample_weight);
    if (weights.dim() < values.dim()) {
      const Tensor tails = values.flatten(weights.dim());
      values = mean ? tails.mean(-1) : tails.sum(-1);
    }
    const Tensor weighted = losses::apply_weights(values, weights);
    if (!mean) return static_cast<void>(total.assign_add(weighted.sum()));
    const int64_t samples = weighted.dim() == 0 ? 1 : weighted.size(0);
    const double share = weighted.numel() == 0
                             ? 0
                             : static_cast<double>(samples) / static_cast<double>(weighted.numel());
    total.assign_add(weighted.sum() * share);
    count.assign_add(weights.expand_as(weighted).sum() * share);
  }
  Variable state(const char* suffix) const {
    VariableOptions options;
    options.trainable = false;
    options.name = cat(name, "/", suffix);
    options.synchronization = VariableSynchronization::kOnRead;
    options.aggregation = VariableAggregation::kSum;
    return Variable(at::zeros({}), options);
  }
};

namespace {

[[noreturn]] void wrong_shapes(const char* name, const Tensor& y_true, const Tensor& y_pred) {
  throw InvalidArgument(
      cat("metric [", name, "]: labels ", shape_text(y_true.sizes()), " for predictions ",
          shape_text(y_pred.sizes()),
          ", expected matching shapes; check the labels, the last layer and the choice of metric"));
}

Tensor equal_entries(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = losses::same_rank(y_true, y_pred);
  if (labels.sizes() != predictions.sizes()) wrong_shapes("accuracy", y_true, y_pred);
  return labels.to(predictions.scalar_type()).eq(predictions);
}

Tensor binary_matches(const Tensor& y_true, const Tensor& y_pred, double threshold) {
  const auto [labels, predictions] = losses::same_rank(y_true, y_pred);
  if (labels.sizes() != predictions.sizes()) wrong_shapes("binary_accuracy", y_true, y_pred);
  const Tensor matches = labels.to(predictions.scalar_type())
                             .eq(predictions.gt(threshold).to(predictions.scalar_type()));
  return matches.dim() < 2 ? matches.to(at::kFloat) : matches.to(at::kFloat).mean(-1);
}

Tensor categorical_matches(const Tensor& y_true, const Tensor& y_pred) {
  if (y_true.sizes() != y_pred.sizes() || y_pred.dim() == 0)
    wrong_shapes("categorical_accuracy", y_true, y_pred);
  return y_true.argmax(-1).eq(y_pred.argmax(-1));
}

Tensor sparse_matches(const Tensor& y_true, const Tensor& y_pred) {
  Tensor labels = y_true;
  if (labels.dim() == y_pred.dim() && labels.dim() > 0 && labels.size(-1) == 1)
    labels = labels.squeeze(-1);
  if (y_pred.dim() == 0 ||
      labels.sizes() != y_pred.sizes().slice(0, static_cast<std::size_t>(y_pred.dim() - 1))) {
    wrong_shapes("sparse_categorical_accuracy", y_true, y_pred);
  }
  return y_pred.argmax(-1).eq(labels.scalar_type() == at::kLong ? labels : labels.to(at::kLong));
}

std::shared_ptr<Metric::Impl> of_loss(const char* class_name, const std::string& name,
                                      losses::Loss loss) {
  return std::make_shared<Metric::Impl>(class_name, name, Direction::kDown,
                                        [loss](const Tensor& y_true, const Tensor& y_pred) {
                                          return loss.per_sample(y_true, y_pred);
                                        });
}

Tensor labels_only(const Tensor& values, const Tensor&) { return values; }

}  // namespace

Metric::Impl& Metric::impl() const {
  if (impl_ == nullptr)
    throw FailedPrecondition(
        "metric: an empty handle, expected a metric; construct one, e.g. Mean()");
  return *impl_;
}

void Metric::update_state(const Tensor& y_true, const Tensor& y_pred,
                          const Tensor& sample_weight) const {
  if (!y_true.defined() || (impl().takes_predictions() && !y_pred.defined())) {
    throw InvalidArgument(cat("metric [", name(), "]: no ",
                              y_true.defined() ? "predictions" : "labels",
                              ", expected both; does the dataset give (x, y)?"));
  }
  at::NoGradGuard no_grad;
  impl_->add(impl_->values(y_true, y_pred.defined() ? y_pred.detach() : y_pred), sample_weight);
}

Tensor Metric::result() const { return impl().result(); }
void Metric::reset_state() const {
  impl().total.assign(0.0);
  if (impl_->mean) impl_->count.assign(0.0);
}
const std::string& Metric::name() const { return impl().name; }
std::vector<Variable> Metric::variables() const {
  return impl().mean ? std::vector<Variable>{impl_->total, impl_->count}
                     : std::vector<Variable>{impl_->total};
}
Direction Metric::direction() const { return impl().direction; }
std::string Metric::class_name() const { return impl().class_name; }
std::string Metric::config() const {
  Json json{{"name", impl().name}};
  if (impl_->class_name == "BinaryAccuracy") json["threshold"] = impl_->threshold;
  return json.dump();
}

Mean::Mean(const std::string& name)
    : Metric(std::make_shared<Impl>("Mean", name, Direction::kUnknown, labels_only)) {}
void Mean::update_values(const Tensor& values, const Tensor& sample_weight) const {
  impl_->add(values.detach(), sample_weight);
}
Sum::Sum(const std::string& name)
    : Metric(
          std::make_shared<Impl>("Sum", name, Direction::kUnknown, labels_only, /*mean=*/false)) {}
void Sum::update_values(const Tensor& values, const Tensor& sample_weight) const {
  impl_->add(values.detach(), sample_weight);
}
MeanMetricWrapper::MeanMetricWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                                     const std::string& name)
    : Metric(std::make_shared<Impl>("MeanMetricWrapper", name, Direction::kUnknown,
                                    std::move(function))) {}
Accuracy::Accuracy(const std::string& name)
    : Metric(std::make_shared<Impl>("Accuracy", name, Direction::kUp, equal_entries)) {}
BinaryAccuracy::BinaryAccuracy(const std::string& name, double threshold)
    : Metric(std::make_shared<Impl>(
          "BinaryAccuracy", name, Direction::kUp,
          [threshold](const Tensor& y_true, const Tensor& y_pred) {
            return binary_matches(y_true, y_pred, threshold);
          },
          true, threshold)) {}
CategoricalAccuracy::CategoricalAccuracy(const std::string& name)
    : Metric(std::make_shared<Impl>("CategoricalAccuracy", name, Direction::kUp,
                                    categorical_matches)) {}
SparseCategoricalAccuracy::SparseCategoricalAccuracy(const std::string& name)
    : Metric(std::make_shared<Impl>("SparseCategoricalAccuracy", name, Direction::kUp,
                                    sparse_matches)) {}
MeanSquaredError::MeanSquaredError(const std::string& name)
    : Metric(of_loss("MeanSquaredError", name, losses::MeanSquaredError())) {}
MeanAbsoluteError::MeanAbsoluteError(const std::string& name)
    : Metric(of_loss("MeanAbsoluteError", name, losses::MeanAbsoluteError())) {}

namespace {

/// Class of a Keras name, "" for one that depends on shapes, nothing for an unknown one.
std::optional<std::string> class_of(const std::string& name) {
  static const std::map<std::string, std::string> kNames = {
      {"accuracy", ""},
      {"acc", ""},
      {"crossentropy", "-"},
      {"ce", "-"},
      {"mse", "MeanSquaredError"},
      {"mean_squared_error", "MeanSquaredError"},
      {"mae", "MeanAbsoluteError"},
      {"mean_absolute_error", "MeanAbsoluteError"},
      {"binary_accuracy", "BinaryAccuracy"},
      {"categorical_accuracy", "CategoricalAccuracy"},
      {"sparse_categorical_accuracy", "SparseCategoricalAccuracy"},
      {"binary_crossentropy", "BinaryCrossentropy"},
      {"bce", "BinaryCrossentropy"},
      {"categorical_crossentropy", "CategoricalCrossentropy"},
      {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"}};
  const auto found = kNames.find(name);
  if (found == kNames.end()) return std::nullopt;
  return found->second;
}

}  // namespace

void check_name(const std::string& name) {
  if (class_of(name)) return;
  throw InvalidArgument(cat("metric: \"", name,
                            "\", expected accuracy (acc), crossentropy (ce), mse, mae, "
                            "mean_squared_error, mean_absolute_error, "
                            "binary_accuracy, categorical_accuracy, sparse_categorical_accuracy, "
                            "binary_crossentropy, categorical_crossentropy or "
                            "sparse_categorical_crossentropy"));
}

Metric from_string(const std::string& name, at::IntArrayRef y_true_sizes,
                   at::IntArrayRef y_pred_sizes) {
  check_name(name);
  std::string class_name = *class_of(name);
  if (class_name.empty() || class_name == "-") {
    const bool binary = y_pred_sizes.empty() || y_pred_sizes.back() == 1;
    const bool sparse = y_true_sizes.size() < y_pred_sizes.size() ||
                        (!y_true_sizes.empty() && y_true_sizes.back() == 1);
    const std::string kind = binary ? "Binary" : sparse ? "SparseCategorical" : "Categorical";
    class_name = kind + (class_name.empty() ? "Accuracy" : "Crossentropy");
  }
  return Metric::from_config(class_name, Json{{"name", name}}.dump());
}

Metric Metric::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("metric ", class_name), config);
  const std::string name = member<std::string>(json, "name", "");
  auto named = [&](const char* fallback) { return name.empty() ? std::string(fallback) : name; };
  if (class_name == "Mean") return Mean(named("mean"));
  if (class_name == "Sum") return Sum(named("sum"));
  if (class_name == "Accuracy") return Accuracy(named("accuracy"));
  if (class_name == "BinaryAccuracy")
    return BinaryAccuracy(named("binary_accuracy"), member<double>(json, "threshold", 0.5));
  if (class_name == "CategoricalAccuracy")
    return CategoricalAccuracy(named("categorical_accuracy"));
  if (class_name == "SparseCategoricalAccuracy")
    return SparseCategoricalAccuracy(named("sparse_categorical_accuracy"));
  if (class_name == "MeanSquaredError") return MeanSquaredError(named("mean_squared_error"));
  if (class_name == "MeanAbsoluteError") return MeanAbsoluteError(named("mean_absolute_error"));
  if (class_name == "BinaryCrossentropy") {
    return Metric(
        of_loss("BinaryCrossentropy", named("binary_crossentropy"), losses::BinaryCrossentropy()));
  }
  if (class_name == "CategoricalCrossentropy") {
    return Metric(of_loss("CategoricalCrossentropy", named("categorical_crossentropy"),
                          losses::CategoricalCrossentropy()));
  }
  if (class_name == "SparseCategoricalCrossentropy") {
    return Metric(of_loss("SparseCategoricalCrossentropy", named("sparse_categorical_crossentropy"),
                          losses::SparseCategoricalCrossentropy()));
  }
  throw InvalidArgument(
      cat("metric: class \"", class_name,
          "\" cannot be made from a file, expected one of Tutti's metrics; compile anew"));
}

}  // namespace tutti::keras::metrics
