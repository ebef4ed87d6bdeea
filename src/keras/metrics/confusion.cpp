#include "keras/metrics/confusion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "keras/metrics/families.h"
#include "tutti/keras/losses.h"

namespace tutti::keras::metrics {
namespace {

/// What lies below every threshold, and stands for "not among the top k".
constexpr double kNegativeInfinity = -1e10;

Tensor only_top_k(const std::string& metric, const Tensor& predictions, int64_t k) {
  if (predictions.dim() < 1 || predictions.size(-1) < k) {
    throw InvalidArgument(cat("metric [", metric, "]: predictions ",
                              shape_text(predictions.sizes()), ", expected at least top_k = ", k,
                              " classes in the last axis"));
  }
  const auto [values, indices] = predictions.topk(k, -1);
  return at::full_like(predictions, kNegativeInfinity).scatter_(-1, indices, values);
}

void check_class_id(const std::string& metric, const Tensor& predictions, int64_t class_id) {
  if (predictions.dim() >= 2 && class_id >= 0 && class_id < predictions.size(-1)) return;
  throw InvalidArgument(cat("metric [", metric, "]: predictions ", shape_text(predictions.sizes()),
                            ", expected (rows, classes) with class_id ", class_id,
                            " among the classes"));
}

}  // namespace

Thresholds::Thresholds(std::vector<double> values) : values_(std::move(values)) {
  std::vector<int64_t> order(values_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values_[static_cast<std::size_t>(a)] < values_[static_cast<std::size_t>(b)];
  });
  const Tensor given = at::tensor(values_, at::kFloat);
  const Tensor sorted_to_given = at::tensor(order, at::kLong);
  sorted_ = given.index_select(0, sorted_to_given);
  if (!std::is_sorted(order.begin(), order.end())) place_ = sorted_to_given.argsort();
}

Thresholds::Thresholds(const std::string& metric, const std::vector<double>& values,
                       double fallback)
    : Thresholds(values.empty() ? std::vector<double>{fallback} : values) {
  for (const double value : values) {
    if (value >= 0 && value <= 1) continue;
    throw InvalidArgument(
        cat("metric [", metric, "]: threshold ", value, ", expected from 0 to 1"));
  }
}

Thresholds Thresholds::evenly(const std::string& metric, int64_t number) {
  if (number < 1) {
    throw InvalidArgument(
        cat("metric [", metric, "]: num_thresholds ", number, ", expected at least 1"));
  }
  if (number == 1) return Thresholds({0.5});
  std::vector<double> values;
  for (int64_t i = 0; i < number; ++i)
    values.push_back(static_cast<double>(i) / static_cast<double>(number - 1));
  return Thresholds(std::move(values));
}

Tensor Thresholds::number_below(const Tensor& predictions) const {
  if (size() == 1) return predictions.gt(static_cast<float>(values_[0])).to(at::kLong);
  const Tensor numbers = predictions.nan_to_num(/*nan=*/-std::numeric_limits<double>::infinity());
  return at::bucketize(numbers, sorted_.to(predictions.device()));
}

Tensor Thresholds::in_given_order(const Tensor& sorted) const {
  return place_.defined() ? sorted.index_select(0, place_.to(sorted.device())) : sorted;
}

ConfusionInput confusion_input(const std::string& metric, const Tensor& y_true,
                               const Tensor& y_pred, const Tensor& sample_weight,
                               const ConfusionSelection& selection) {
  auto [labels, predictions] = losses::same_rank(y_true, y_pred);
  if (labels.sizes() != predictions.sizes()) wrong_shapes(metric.c_str(), y_true, y_pred);
  predictions = predictions.to(at::kFloat);
  Tensor weights;
  if (sample_weight.defined()) weights = entry_weights(metric, sample_weight, predictions.sizes());
  if (selection.top_k) predictions = only_top_k(metric, predictions, *selection.top_k);
  if (selection.class_id) {
    check_class_id(metric, predictions, *selection.class_id);
    labels = labels.select(-1, *selection.class_id);
    predictions = predictions.select(-1, *selection.class_id);
    if (weights.defined()) weights = weights.select(-1, *selection.class_id);
  }
  return {labels.scalar_type() == at::kBool ? labels : labels.ne(0), predictions, weights};
}

ConfusionCounts count_confusion(const Thresholds& thresholds, const ConfusionInput& input,
                                bool by_label) {
  const int64_t labels = by_label ? input.predictions.size(-1) : 1;
  const int64_t bins = thresholds.size() + 1;
  // A bin for each number of thresholds below the prediction, each label column, and each label.
  Tensor index = thresholds.number_below(input.predictions);
  if (labels > 1) index = index * labels + at::arange(labels, index.options());
  index = (index * 2 + input.labels).reshape({-1});
  const Tensor weights = input.weights.defined()
                             ? input.weights.reshape({-1})
                             : at::ones({index.numel()}, input.predictions.options());
  const Tensor histogram =
      at::zeros({bins * labels * 2}, weights.options()).index_add_(0, index, weights);
  // From the top: what lies above the threshold of each bin's lower end; at 0 all there is.
  const Tensor above = histogram.view({bins, labels, 2}).flip(0).cumsum(0).flip(0);
  const Tensor all = above.slice(0, 0, 1);
  Tensor positives = thresholds.in_given_order(above.slice(0, 1));
  Tensor negatives = all - positives;
  if (!by_label) {
    positives = positives.squeeze(1);
    negatives = negatives.squeeze(1);
  }
  return {positives.select(-1, 1), positives.select(-1, 0), negatives.select(-1, 0),
          negatives.select(-1, 1)};
}

}  // namespace tutti::keras::metrics
