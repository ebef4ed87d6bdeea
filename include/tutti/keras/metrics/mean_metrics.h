#pragma once
// Metrics that are means of a value a sample, and the sum.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tutti/keras/metrics/metric.h"

namespace tutti::keras::metrics {

// State: `total`, the weighted sum of the samples' values, and `count`, the number of samples or
// the sum of their weights. An entry [B, …] counts as one sample with the mean of its values.

/// Weighted mean of all values added.
class Mean : public Metric {
 public:
  explicit Mean(const std::string& name = "mean");
  void update_state(const Tensor& values, const Tensor& sample_weight = {}) const;
};
/// Weighted sum of all values added; state `total`.
class Sum : public Metric {
 public:
  explicit Sum(const std::string& name = "sum");
  void update_state(const Tensor& values, const Tensor& sample_weight = {}) const;
};
/// Mean of `function(y_true, y_pred)`, one value a sample. Any replica thread may call the
/// function.
class MeanMetricWrapper : public Metric {
 public:
  MeanMetricWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                    const std::string& name);
};

// ---- Accuracies. Direction: up.

/// Share of entries with y_true == y_pred.
class Accuracy : public Metric {
 public:
  explicit Accuracy(const std::string& name = "accuracy");
};
/// Share of entries whose prediction lies on the label's side of the threshold (strictly above is
/// 1).
class BinaryAccuracy : public Metric {
 public:
  explicit BinaryAccuracy(const std::string& name = "binary_accuracy", double threshold = 0.5);
};
/// One-hot labels; the first of equal predictions counts.
class CategoricalAccuracy : public Metric {
 public:
  explicit CategoricalAccuracy(const std::string& name = "categorical_accuracy");
};
/// Class numbers as labels.
class SparseCategoricalAccuracy : public Metric {
 public:
  explicit SparseCategoricalAccuracy(const std::string& name = "sparse_categorical_accuracy");
};
/// One-hot labels: share of samples with fewer than k predictions above the label's. Predictions
/// equal to the label's do not count against it; a label's prediction that is not finite is a miss.
class TopKCategoricalAccuracy : public Metric {
 public:
  explicit TopKCategoricalAccuracy(int64_t k = 5,
                                   const std::string& name = "top_k_categorical_accuracy");
};
/// The same for class numbers. `from_sorted_ids`: predictions are class numbers, the best first,
/// and the first k are looked at.
class SparseTopKCategoricalAccuracy : public Metric {
 public:
  explicit SparseTopKCategoricalAccuracy(
      int64_t k = 5, const std::string& name = "sparse_top_k_categorical_accuracy",
      bool from_sorted_ids = false);
};

// ---- Errors: the losses of the same names as means. Direction: down.

class MeanSquaredError : public Metric {
 public:
  explicit MeanSquaredError(const std::string& name = "mean_squared_error");
};
/// The root of the mean over all values, not a mean of roots.
class RootMeanSquaredError : public Metric {
 public:
  explicit RootMeanSquaredError(const std::string& name = "root_mean_squared_error");
};
class MeanAbsoluteError : public Metric {
 public:
  explicit MeanAbsoluteError(const std::string& name = "mean_absolute_error");
};
class MeanAbsolutePercentageError : public Metric {
 public:
  explicit MeanAbsolutePercentageError(const std::string& name = "mean_absolute_percentage_error");
};
class MeanSquaredLogarithmicError : public Metric {
 public:
  explicit MeanSquaredLogarithmicError(const std::string& name = "mean_squared_logarithmic_error");
};
class LogCoshError : public Metric {
 public:
  explicit LogCoshError(const std::string& name = "logcosh");
};
class Poisson : public Metric {
 public:
  explicit Poisson(const std::string& name = "poisson");
};
class KLDivergence : public Metric {
 public:
  explicit KLDivergence(const std::string& name = "kl_divergence");
};
class Hinge : public Metric {
 public:
  explicit Hinge(const std::string& name = "hinge");
};
class SquaredHinge : public Metric {
 public:
  explicit SquaredHinge(const std::string& name = "squared_hinge");
};
class CategoricalHinge : public Metric {
 public:
  explicit CategoricalHinge(const std::string& name = "categorical_hinge");
};

struct BinaryCrossentropyOptions {
  std::string name = "binary_crossentropy";
  bool from_logits = false;
  double label_smoothing = 0;
};
class BinaryCrossentropy : public Metric {
 public:
  explicit BinaryCrossentropy(const BinaryCrossentropyOptions& options = {});
};
struct CategoricalCrossentropyOptions {
  std::string name = "categorical_crossentropy";
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
};
class CategoricalCrossentropy : public Metric {
 public:
  explicit CategoricalCrossentropy(const CategoricalCrossentropyOptions& options = {});
};
struct SparseCategoricalCrossentropyOptions {
  std::string name = "sparse_categorical_crossentropy";
  bool from_logits = false;
  /// Samples of this class do not count.
  std::optional<int64_t> ignore_class = std::nullopt;
  int64_t axis = -1;
};
class SparseCategoricalCrossentropy : public Metric {
 public:
  explicit SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});
};

// ---- Similarities. Direction: up.

/// sum(y / |y| * p / |p|) over an axis: 1 where both point the same way (the loss of this name is
/// its negative).
class CosineSimilarity : public Metric {
 public:
  explicit CosineSimilarity(const std::string& name = "cosine_similarity", int64_t axis = -1);
};
/// Mean over the samples of the correlation along an axis; NaN for a sample without variance.
class PearsonCorrelation : public Metric {
 public:
  explicit PearsonCorrelation(const std::string& name = "pearson_correlation", int64_t axis = -1);
};
/// 2 cov(y, p) / (var(y) + var(p) + (mean(y) - mean(p))^2 + 1e-7) along an axis.
class ConcordanceCorrelation : public Metric {
 public:
  explicit ConcordanceCorrelation(const std::string& name = "concordance_correlation",
                                  int64_t axis = -1);
};

// ---- The accuracies' and correlations' values, one a sample or an entry, unweighted. (The errors'
// are the functions of tutti::keras::losses.)

Tensor binary_accuracy(const Tensor& y_true, const Tensor& y_pred, double threshold = 0.5);
Tensor categorical_accuracy(const Tensor& y_true, const Tensor& y_pred);
Tensor sparse_categorical_accuracy(const Tensor& y_true, const Tensor& y_pred);
Tensor top_k_categorical_accuracy(const Tensor& y_true, const Tensor& y_pred, int64_t k = 5);
Tensor sparse_top_k_categorical_accuracy(const Tensor& y_true, const Tensor& y_pred, int64_t k = 5,
                                         bool from_sorted_ids = false);
Tensor pearson_correlation(const Tensor& y_true, const Tensor& y_pred, int64_t axis = -1);
Tensor concordance_correlation(const Tensor& y_true, const Tensor& y_pred, int64_t axis = -1);

}  // namespace tutti::keras::metrics
