#pragma once
// Metrics made of true and false positives and negatives, at one or more thresholds.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/metrics/metric.h"

namespace tutti::keras::metrics {

// An entry counts as predicted where its prediction is strictly above the threshold, and as true
// where its label is not 0. Labels and predictions are of one shape, but for a last axis of 1;
// sample weights are of their shape, or of its leading axes: one a row. State: float32 sums with
// one entry a threshold.

struct ConfusionCountOptions {
  /// From 0 to 1; empty: 0.5. With several the result is a vector.
  std::vector<double> thresholds = {};
  /// Empty: the class in snake_case.
  std::string name = "";
};
/// State `accumulator`. Direction: unknown.
class TruePositives : public Metric {
 public:
  explicit TruePositives(const ConfusionCountOptions& options = {});
};
class TrueNegatives : public Metric {
 public:
  explicit TrueNegatives(const ConfusionCountOptions& options = {});
};
class FalsePositives : public Metric {
 public:
  explicit FalsePositives(const ConfusionCountOptions& options = {});
};
class FalseNegatives : public Metric {
 public:
  explicit FalseNegatives(const ConfusionCountOptions& options = {});
};

struct PrecisionOptions {
  /// From 0 to 1; empty: 0.5, or none with top_k. With several the result is a vector.
  std::vector<double> thresholds = {};
  /// Only the k largest predictions of a row may count as predicted.
  std::optional<int64_t> top_k = std::nullopt;
  /// Only this class' entries count.
  std::optional<int64_t> class_id = std::nullopt;
  std::string name = "precision";
};
/// true positives / predicted ones. State `true_positives`, `false_positives`. Direction: up.
class Precision : public Metric {
 public:
  explicit Precision(const PrecisionOptions& options = {});
};
struct RecallOptions {
  std::vector<double> thresholds = {};
  std::optional<int64_t> top_k = std::nullopt;
  std::optional<int64_t> class_id = std::nullopt;
  std::string name = "recall";
};
/// true positives / true ones. State `true_positives`, `false_negatives`. Direction: up.
class Recall : public Metric {
 public:
  explicit Recall(const RecallOptions& options = {});
};

// The best of one rate at the thresholds where another rate is at least what is asked; 0 where it
// never is. State: `true_positives`, `false_positives`, `true_negatives`, `false_negatives` at
// num_thresholds evenly spaced thresholds. Direction: up.

struct AtRateOptions {
  int64_t num_thresholds = 200;
  std::optional<int64_t> class_id = std::nullopt;
  /// Empty: the class in snake_case.
  std::string name = "";
};
class SensitivityAtSpecificity : public Metric {
 public:
  explicit SensitivityAtSpecificity(double specificity, const AtRateOptions& options = {});
};
class SpecificityAtSensitivity : public Metric {
 public:
  explicit SpecificityAtSensitivity(double sensitivity, const AtRateOptions& options = {});
};
class PrecisionAtRecall : public Metric {
 public:
  explicit PrecisionAtRecall(double recall, const AtRateOptions& options = {});
};
class RecallAtPrecision : public Metric {
 public:
  explicit RecallAtPrecision(double precision, const AtRateOptions& options = {});
};

struct AUCOptions {
  int64_t num_thresholds = 200;
  /// "ROC", "PR", or "PRGAIN" (Flach and Kull 2015).
  std::string curve = "ROC";
  /// Heights of the steps: "interpolation" (trapezoids; for PR the formula of Davis and Goadrich
  /// 2006), "minoring", "majoring".
  std::string summation_method = "interpolation";
  std::string name = "auc";
  /// In place of num_thresholds; one below 0 and one above 1 are added.
  std::vector<double> thresholds = {};
  /// A curve for each column of [rows, labels], then the mean; else all entries make one curve.
  bool multi_label = false;
  /// With multi_label: makes the state at once, not at the first update.
  std::optional<int64_t> num_labels = std::nullopt;
  /// With multi_label of the mean over labels, else of the entries.
  std::vector<double> label_weights = {};
  bool from_logits = false;
};
/// Area under a curve through the thresholds' points. State as above, with a second axis of labels
/// where multi_label is set. Direction: up.
class AUC : public Metric {
 public:
  explicit AUC(const AUCOptions& options = {});
};

}  // namespace tutti::keras::metrics
