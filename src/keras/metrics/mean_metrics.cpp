#include "tutti/keras/metrics/mean_metrics.h"

#include "keras/metrics/families.h"
#include "tutti/keras/losses.h"

namespace tutti::keras::metrics {
namespace {

using Values = std::function<Tensor(const Tensor&, const Tensor&)>;

Tensor as_float(const Tensor& values) {
  return values.scalar_type() == at::kFloat ? values : values.to(at::kFloat);
}

/// Entries reduced to the weights' rank, so that [B] weighs the samples of [B, steps], and what
/// weighs them.
struct Weighted {
  Tensor values;
  Tensor weights;
};
Weighted weighted(const Tensor& numbers, const Tensor& sample_weight, bool mean) {
  auto [values, weights] = losses::same_rank(numbers, as_float(sample_weight));
  if (weights.dim() < values.dim()) {
    const Tensor tails = values.flatten(weights.dim());
    values = mean ? tails.mean(-1) : tails.sum(-1);
  }
  return {losses::apply_weights(values, weights), weights};
}

class SumImpl : public ArgumentsImpl {
 public:
  explicit SumImpl(const std::string& name) : ArgumentsImpl("Sum", name, Direction::kUnknown) {
    total_ = add_variable("total", {});
  }
  bool takes_predictions() const override { return false; }
  void update_state(const Tensor& values, const Tensor&, const Tensor& sample_weight) override {
    const Tensor numbers = as_float(values);
    total_.assign_add(sample_weight.defined()
                          ? weighted(numbers, sample_weight, /*mean=*/false).values.sum()
                          : numbers.sum());
  }
  Tensor result() const override { return total_.read_value(); }

 private:
  Variable total_;
};

/// The mean of a function's values; without a function of the values given.
class MeanImpl : public ArgumentsImpl {
 public:
  MeanImpl(const char* class_name, const std::string& name, Direction direction, Values values,
           Json arguments = Json::object())
      : ArgumentsImpl(class_name, name, direction, std::move(arguments)),
        values_(std::move(values)) {
    total_ = add_variable("total", {});
    count_ = add_variable("count", {});
  }
  bool takes_predictions() const override { return values_ != nullptr; }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    add(values_ ? values_(y_true, y_pred) : y_true, sample_weight);
  }
  Tensor result() const override {
    const Tensor sum = total_.read_value();
    const Tensor number = count_.read_value();
    return number.item<float>() == 0 ? at::zeros_like(sum) : sum / number;
  }

 protected:
  /// A mean counts samples: of entries [B, …] it adds B means.
  void add(const Tensor& entries, const Tensor& sample_weight) {
    const Tensor numbers = as_float(entries);
    if (sample_weight.defined()) return add_weighted(weighted(numbers, sample_weight, true));
    const int64_t samples = numbers.dim() == 0 ? 1 : numbers.size(0);
    Tensor sum = numbers.sum();
    if (numbers.numel() != samples && numbers.numel() > 0)
      sum = sum * (static_cast<double>(samples) / static_cast<double>(numbers.numel()));
    // Also for an empty batch: where variables have one copy, replicas add together.
    total_.assign_add(sum);
    count_.assign_add(at::full({}, static_cast<double>(samples)));
  }

 private:
  void add_weighted(const Weighted& all) {
    const Tensor& values = all.values;
    const int64_t samples = values.dim() == 0 ? 1 : values.size(0);
    const double share = values.numel() == 0
                             ? 0
                             : static_cast<double>(samples) / static_cast<double>(values.numel());
    total_.assign_add(values.sum() * share);
    count_.assign_add(all.weights.expand_as(values).sum() * share);
  }

  Values values_;
  Variable total_;
  Variable count_;
};

class RootMeanImpl : public MeanImpl {
 public:
  using MeanImpl::MeanImpl;
  Tensor result() const override { return MeanImpl::result().sqrt(); }
};

/// Leaves out the samples of the ignored class, whatever else weighs them.
class IgnoringImpl : public MeanImpl {
 public:
  IgnoringImpl(const std::string& name, losses::SparseCategoricalCrossentropy loss, Json arguments)
      : MeanImpl(
            "SparseCategoricalCrossentropy", name, Direction::kDown,
            [loss](const Tensor& y_true, const Tensor& y_pred) {
              return loss.per_sample(y_true, y_pred);
            },
            std::move(arguments)),
        loss_(std::move(loss)) {}
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const Tensor valid = as_float(loss_.valid(y_true, y_pred));
    add(loss_.per_sample(y_true, y_pred),
        sample_weight.defined() ? valid * entry_weights(name(), sample_weight, valid.sizes())
                                : valid);
  }

 private:
  losses::SparseCategoricalCrossentropy loss_;
};

std::shared_ptr<Metric::Impl> mean_of(const char* class_name, const std::string& name,
                                      Direction direction, Values values,
                                      Json arguments = Json::object()) {
  return std::make_shared<MeanImpl>(class_name, name, direction, std::move(values),
                                    std::move(arguments));
}

Tensor equal_entries(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = losses::same_rank(y_true, y_pred);
  if (labels.sizes() != predictions.sizes()) wrong_shapes("accuracy", y_true, y_pred);
  return labels.to(predictions.scalar_type()).eq(predictions);
}

Tensor squared_entries(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = losses::same_rank(y_true, as_float(y_pred));
  if (labels.sizes() != predictions.sizes())
    wrong_shapes("root_mean_squared_error", y_true, y_pred);
  return (predictions - as_float(labels)).square();
}

/// Class numbers [rows…] for predictions [rows…, classes]; a last axis of 1 is dropped.
Tensor class_labels(const char* metric, const Tensor& y_true, const Tensor& y_pred) {
  Tensor labels = y_true;
  if (labels.dim() == y_pred.dim() && labels.dim() > 0 && labels.size(-1) == 1)
    labels = labels.squeeze(-1);
  if (y_pred.dim() == 0 ||
      labels.sizes() != y_pred.sizes().slice(0, static_cast<std::size_t>(y_pred.dim() - 1))) {
    wrong_shapes(metric, y_true, y_pred);
  }
  return labels.scalar_type() == at::kLong ? labels : labels.to(at::kLong);
}

Tensor in_top_k(const Tensor& labels, const Tensor& predictions, int64_t k) {
  const int64_t classes = predictions.size(-1);
  const Tensor known = labels.ge(0).logical_and_(labels.lt(classes));
  const Tensor own = predictions.gather(-1, labels.clamp(0, classes - 1).unsqueeze(-1));
  const Tensor better = predictions.gt(own).sum(-1);
  return better.lt(k).logical_and_(own.squeeze(-1).isfinite()).logical_and_(known);
}

void check_k(const std::string& name, int64_t k) {
  if (k < 1) throw InvalidArgument(cat("metric [", name, "]: k ", k, ", expected at least 1"));
}

std::pair<Tensor, Tensor> correlated(const char* metric, const Tensor& y_true, const Tensor& y_pred,
                                     int64_t axis) {
  const auto [labels, predictions] = losses::same_rank(y_true, as_float(y_pred));
  if (labels.sizes() != predictions.sizes() || axis < -labels.dim() || axis >= labels.dim())
    wrong_shapes(metric, y_true, y_pred);
  return {as_float(labels), predictions};
}

// ---- What the metrics with arguments are means of.

Values checked(const std::string& name, Values function) {
  if (function) return function;
  throw InvalidArgument(cat("metric [", name, "]: no function, expected one"));
}

Values values_of(losses::Loss loss) {
  return [loss = std::move(loss)](const Tensor& y_true, const Tensor& y_pred) {
    return loss.per_sample(y_true, y_pred);
  };
}

Values along(int64_t axis, Tensor (*function)(const Tensor&, const Tensor&, int64_t)) {
  return [=](const Tensor& y_true, const Tensor& y_pred) { return function(y_true, y_pred, axis); };
}

Tensor positive_cosine(const Tensor& y_true, const Tensor& y_pred, int64_t axis) {
  return -losses::cosine_similarity(y_true, y_pred, axis);
}

Values with_threshold(double threshold) {
  return [=](const Tensor& y_true, const Tensor& y_pred) {
    return binary_accuracy(y_true, y_pred, threshold);
  };
}

Values top_k(const std::string& name, int64_t k) {
  check_k(name, k);
  return [=](const Tensor& y_true, const Tensor& y_pred) {
    return top_k_categorical_accuracy(y_true, y_pred, k);
  };
}

Values sparse_top_k(const std::string& name, int64_t k, bool from_sorted_ids) {
  check_k(name, k);
  return [=](const Tensor& y_true, const Tensor& y_pred) {
    return sparse_top_k_categorical_accuracy(y_true, y_pred, k, from_sorted_ids);
  };
}

std::shared_ptr<Metric::Impl> sparse_entropy(const SparseCategoricalCrossentropyOptions& options) {
  const losses::SparseCategoricalCrossentropy loss({.from_logits = options.from_logits,
                                                    .ignore_class = options.ignore_class,
                                                    .axis = options.axis});
  Json arguments{{"from_logits", options.from_logits},
                 {"ignore_class", to_json(options.ignore_class)},
                 {"axis", options.axis}};
  if (options.ignore_class)
    return std::make_shared<IgnoringImpl>(options.name, loss, std::move(arguments));
  return mean_of("SparseCategoricalCrossentropy", options.name, Direction::kDown, values_of(loss),
                 std::move(arguments));
}

}  // namespace

Tensor binary_accuracy(const Tensor& y_true, const Tensor& y_pred, double threshold) {
  const auto [labels, predictions] = losses::same_rank(y_true, y_pred);
  if (labels.sizes() != predictions.sizes()) wrong_shapes("binary_accuracy", y_true, y_pred);
  return labels.to(predictions.scalar_type())
      .eq(predictions.gt(threshold).to(predictions.scalar_type()))
      .to(at::kFloat);
}

Tensor categorical_accuracy(const Tensor& y_true, const Tensor& y_pred) {
  if (y_true.sizes() != y_pred.sizes() || y_pred.dim() == 0)
    wrong_shapes("categorical_accuracy", y_true, y_pred);
  return y_true.argmax(-1).eq(y_pred.argmax(-1)).to(at::kFloat);
}

Tensor sparse_categorical_accuracy(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor labels = class_labels("sparse_categorical_accuracy", y_true, y_pred);
  return y_pred.argmax(-1).eq(labels).to(at::kFloat);
}

Tensor top_k_categorical_accuracy(const Tensor& y_true, const Tensor& y_pred, int64_t k) {
  if (y_true.sizes() != y_pred.sizes() || y_pred.dim() == 0)
    wrong_shapes("top_k_categorical_accuracy", y_true, y_pred);
  return in_top_k(y_true.argmax(-1), y_pred, k).to(at::kFloat);
}

Tensor sparse_top_k_categorical_accuracy(const Tensor& y_true, const Tensor& y_pred, int64_t k,
                                         bool from_sorted_ids) {
  const Tensor labels = class_labels("sparse_top_k_categorical_accuracy", y_true, y_pred);
  if (!from_sorted_ids) return in_top_k(labels, y_pred, k).to(at::kFloat);
  const Tensor best = y_pred.slice(-1, 0, k);
  return best.eq(labels.unsqueeze(-1)).any(-1).to(at::kFloat);
}

Tensor pearson_correlation(const Tensor& y_true, const Tensor& y_pred, int64_t axis) {
  const auto [labels, predictions] = correlated("pearson_correlation", y_true, y_pred, axis);
  const auto standard = [&](const Tensor& values) {
    const Tensor centred = values - values.mean(axis, /*keepdim=*/true);
    return centred / centred.square().mean(axis, /*keepdim=*/true).sqrt();
  };
  return (standard(labels) * standard(predictions)).mean(axis);
}

Tensor concordance_correlation(const Tensor& y_true, const Tensor& y_pred, int64_t axis) {
  const auto [labels, predictions] = correlated("concordance_correlation", y_true, y_pred, axis);
  const Tensor y_mean = labels.mean(axis, /*keepdim=*/true);
  const Tensor p_mean = predictions.mean(axis, /*keepdim=*/true);
  const Tensor y = labels - y_mean;
  const Tensor p = predictions - p_mean;
  const Tensor norm =
      y.square().mean(axis) + p.square().mean(axis) + (y_mean - p_mean).square().squeeze(axis);
  return 2 * (y * p).mean(axis) / (norm + kEpsilon);
}

Mean::Mean(const std::string& name)
    : Metric(std::make_shared<MeanImpl>("Mean", name, Direction::kUnknown, nullptr)) {}
void Mean::update_state(const Tensor& values, const Tensor& sample_weight) const {
  Metric::update_state(values.defined() ? values.detach() : values, {}, sample_weight);
}
Sum::Sum(const std::string& name) : Metric(std::make_shared<SumImpl>(name)) {}
void Sum::update_state(const Tensor& values, const Tensor& sample_weight) const {
  Metric::update_state(values.defined() ? values.detach() : values, {}, sample_weight);
}
MeanMetricWrapper::MeanMetricWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                                     const std::string& name)
    : Metric(mean_of("MeanMetricWrapper", name, Direction::kUnknown,
                     checked(name, std::move(function)))) {}

Accuracy::Accuracy(const std::string& name)
    : Metric(mean_of("Accuracy", name, Direction::kUp, equal_entries)) {}
BinaryAccuracy::BinaryAccuracy(const std::string& name, double threshold)
    : Metric(mean_of("BinaryAccuracy", name, Direction::kUp, with_threshold(threshold),
                     Json{{"threshold", threshold}})) {}
CategoricalAccuracy::CategoricalAccuracy(const std::string& name)
    : Metric(mean_of("CategoricalAccuracy", name, Direction::kUp, categorical_accuracy)) {}
SparseCategoricalAccuracy::SparseCategoricalAccuracy(const std::string& name)
    : Metric(mean_of("SparseCategoricalAccuracy", name, Direction::kUp,
                     sparse_categorical_accuracy)) {}
TopKCategoricalAccuracy::TopKCategoricalAccuracy(int64_t k, const std::string& name)
    : Metric(mean_of("TopKCategoricalAccuracy", name, Direction::kUp, top_k(name, k),
                     Json{{"k", k}})) {}
SparseTopKCategoricalAccuracy::SparseTopKCategoricalAccuracy(int64_t k, const std::string& name,
                                                             bool from_sorted_ids)
    : Metric(mean_of("SparseTopKCategoricalAccuracy", name, Direction::kUp,
                     sparse_top_k(name, k, from_sorted_ids),
                     Json{{"k", k}, {"from_sorted_ids", from_sorted_ids}})) {}

MeanSquaredError::MeanSquaredError(const std::string& name)
    : Metric(mean_of("MeanSquaredError", name, Direction::kDown, losses::mean_squared_error)) {}
RootMeanSquaredError::RootMeanSquaredError(const std::string& name)
    : Metric(std::make_shared<RootMeanImpl>("RootMeanSquaredError", name, Direction::kDown,
                                            squared_entries)) {}
MeanAbsoluteError::MeanAbsoluteError(const std::string& name)
    : Metric(mean_of("MeanAbsoluteError", name, Direction::kDown, losses::mean_absolute_error)) {}
MeanAbsolutePercentageError::MeanAbsolutePercentageError(const std::string& name)
    : Metric(mean_of("MeanAbsolutePercentageError", name, Direction::kDown,
                     losses::mean_absolute_percentage_error)) {}
MeanSquaredLogarithmicError::MeanSquaredLogarithmicError(const std::string& name)
    : Metric(mean_of("MeanSquaredLogarithmicError", name, Direction::kDown,
                     losses::mean_squared_logarithmic_error)) {}
LogCoshError::LogCoshError(const std::string& name)
    : Metric(mean_of("LogCoshError", name, Direction::kDown, losses::log_cosh)) {}
Poisson::Poisson(const std::string& name)
    : Metric(mean_of("Poisson", name, Direction::kDown, losses::poisson)) {}
KLDivergence::KLDivergence(const std::string& name)
    : Metric(mean_of("KLDivergence", name, Direction::kDown, losses::kl_divergence)) {}
Hinge::Hinge(const std::string& name)
    : Metric(mean_of("Hinge", name, Direction::kDown, losses::hinge)) {}
SquaredHinge::SquaredHinge(const std::string& name)
    : Metric(mean_of("SquaredHinge", name, Direction::kDown, losses::squared_hinge)) {}
CategoricalHinge::CategoricalHinge(const std::string& name)
    : Metric(mean_of("CategoricalHinge", name, Direction::kDown, losses::categorical_hinge)) {}

BinaryCrossentropy::BinaryCrossentropy(const BinaryCrossentropyOptions& options)
    : Metric(mean_of(
          "BinaryCrossentropy", options.name, Direction::kDown,
          values_of(losses::BinaryCrossentropy(
              {.from_logits = options.from_logits, .label_smoothing = options.label_smoothing})),
          Json{{"from_logits", options.from_logits},
               {"label_smoothing", options.label_smoothing}})) {}
CategoricalCrossentropy::CategoricalCrossentropy(const CategoricalCrossentropyOptions& options)
    : Metric(mean_of(
          "CategoricalCrossentropy", options.name, Direction::kDown,
          values_of(losses::CategoricalCrossentropy({.from_logits = options.from_logits,
                                                     .label_smoothing = options.label_smoothing,
                                                     .axis = options.axis})),
          Json{{"from_logits", options.from_logits},
               {"label_smoothing", options.label_smoothing},
               {"axis", options.axis}})) {}
SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(
    const SparseCategoricalCrossentropyOptions& options)
    : Metric(sparse_entropy(options)) {}

CosineSimilarity::CosineSimilarity(const std::string& name, int64_t axis)
    : Metric(mean_of("CosineSimilarity", name, Direction::kUp, along(axis, positive_cosine),
                     Json{{"axis", axis}})) {}
PearsonCorrelation::PearsonCorrelation(const std::string& name, int64_t axis)
    : Metric(mean_of("PearsonCorrelation", name, Direction::kUp, along(axis, pearson_correlation),
                     Json{{"axis", axis}})) {}
ConcordanceCorrelation::ConcordanceCorrelation(const std::string& name, int64_t axis)
    : Metric(mean_of("ConcordanceCorrelation", name, Direction::kUp,
                     along(axis, concordance_correlation), Json{{"axis", axis}})) {}

}  // namespace tutti::keras::metrics
