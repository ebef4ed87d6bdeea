#pragma once
// Scores: F-scores, the coefficient of determination, intersections over unions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/metrics/metric.h"

namespace tutti::keras::metrics {

struct FBetaScoreOptions {
  /// "" (one score a class), "micro" (of all entries), "macro" (mean over classes) or "weighted"
  /// (mean, weighted by the classes' true entries).
  std::string average = "";
  double beta = 1.0;
  /// Predicted is what lies above; unset: the largest of the row, unless it is 0.
  std::optional<double> threshold = std::nullopt;
  std::string name = "fbeta_score";
};
/// (1 + b^2) precision recall / (b^2 precision + recall) of labels and predictions [rows, classes].
/// State, made at the first update: `true_positives`, `false_positives`, `false_negatives`,
/// `intermediate_weights`, [classes] or, for "micro", scalars. Direction: up.
class FBetaScore : public Metric {
 public:
  explicit FBetaScore(const FBetaScoreOptions& options = {});
};
struct F1ScoreOptions {
  std::string average = "";
  std::optional<double> threshold = std::nullopt;
  std::string name = "f1_score";
};
/// FBetaScore with beta 1.
class F1Score : public Metric {
 public:
  explicit F1Score(const F1ScoreOptions& options = {});
};

struct R2ScoreOptions {
  /// "uniform_average", "variance_weighted_average", or "" (one score a column).
  std::string class_aggregation = "uniform_average";
  /// Independent regressors of the adjusted score; 0: not adjusted.
  int64_t num_regressors = 0;
  std::string name = "r2_score";
};
/// 1 - sum((y - p)^2) / sum((y - mean(y))^2) for each column of [rows, outputs]. State:
/// `num_samples` (entries), and from the first update on `squared_sum`, `sum`, `residual`, `count`.
/// Direction: up.
class R2Score : public Metric {
 public:
  explicit R2Score(const R2ScoreOptions& options = {});
};

// Intersection over union of labels and predictions of any shape, made of the matrix of their
// counts: true positives / (true + false positives + false negatives) a class, then the mean over
// the classes that occur. State: `total_confusion_matrix` [classes, classes], int64 as in Keras,
// which cuts weights to whole numbers (with a warning for float ones); at::kFloat keeps them.
// Entries outside [0, num_classes), and those with the label ignore_class, are left out.
// Direction: up.

struct IoUOptions {
  int64_t num_classes = 0;
  std::vector<int64_t> target_class_ids = {};
  std::string name = "io_u";
  at::ScalarType dtype = at::kLong;
  std::optional<int64_t> ignore_class = std::nullopt;
  /// False: one-hot or probabilities along `axis`.
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  int64_t axis = -1;
};
/// Of the target classes.
class IoU : public Metric {
 public:
  explicit IoU(const IoUOptions& options);
};
struct BinaryIoUOptions {
  std::vector<int64_t> target_class_ids = {0, 1};
  /// Predictions from here on are class 1.
  double threshold = 0.5;
  std::string name = "binary_io_u";
  at::ScalarType dtype = at::kLong;
};
class BinaryIoU : public Metric {
 public:
  explicit BinaryIoU(const BinaryIoUOptions& options = {});
};
struct MeanIoUOptions {
  int64_t num_classes = 0;
  std::string name = "mean_io_u";
  at::ScalarType dtype = at::kLong;
  std::optional<int64_t> ignore_class = std::nullopt;
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  int64_t axis = -1;
};
/// Of all classes.
class MeanIoU : public Metric {
 public:
  explicit MeanIoU(const MeanIoUOptions& options);
};
struct OneHotIoUOptions {
  int64_t num_classes = 0;
  std::vector<int64_t> target_class_ids = {};
  std::string name = "one_hot_io_u";
  at::ScalarType dtype = at::kLong;
  std::optional<int64_t> ignore_class = std::nullopt;
  bool sparse_y_pred = false;
  int64_t axis = -1;
};
/// Of one-hot labels.
class OneHotIoU : public Metric {
 public:
  explicit OneHotIoU(const OneHotIoUOptions& options);
};
struct OneHotMeanIoUOptions {
  int64_t num_classes = 0;
  std::string name = "one_hot_mean_io_u";
  at::ScalarType dtype = at::kLong;
  std::optional<int64_t> ignore_class = std::nullopt;
  bool sparse_y_pred = false;
  int64_t axis = -1;
};
class OneHotMeanIoU : public Metric {
 public:
  explicit OneHotMeanIoU(const OneHotMeanIoUOptions& options);
};

}  // namespace tutti::keras::metrics
