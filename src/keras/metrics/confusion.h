#pragma once
// Counts of true and false positives and negatives at thresholds.

#include <optional>
#include <string>
#include <vector>

#include "keras/json.h"
#include "tutti/tensor/tensor.h"

namespace tutti::keras::metrics {

/// An entry is predicted at a threshold when it lies strictly above. NaN never does.
class Thresholds {
 public:
  Thresholds() = default;
  /// In any order.
  explicit Thresholds(std::vector<double> values);
  /// `values` or, where there are none, `fallback`; InvalidArgument for one outside [0, 1].
  Thresholds(const std::string& metric, const std::vector<double>& values, double fallback);
  /// 0, 1 and what divides the space between evenly; 0.5 for one; InvalidArgument below 1.
  static Thresholds evenly(const std::string& metric, int64_t number);

  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  const std::vector<double>& values() const { return values_; }
  /// How many thresholds lie below each prediction, int64.
  Tensor number_below(const Tensor& predictions) const;
  /// What stands in the order of sorted thresholds along axis 0, in the given one.
  Tensor in_given_order(const Tensor& sorted) const;

 private:
  std::vector<double> values_;
  Tensor sorted_;  ///< float32
  Tensor place_;   ///< of each given threshold among the sorted ones; undefined: the same order
};

struct ConfusionInput {
  Tensor labels;       ///< bool
  Tensor predictions;  ///< float32, of the labels' shape
  Tensor weights;      ///< of the same shape, or undefined
};
struct ConfusionSelection {
  std::optional<int64_t> top_k = std::nullopt;
  std::optional<int64_t> class_id = std::nullopt;
};
/// Checked and of one shape; InvalidArgument otherwise.
ConfusionInput confusion_input(const std::string& metric, const Tensor& y_true,
                               const Tensor& y_pred, const Tensor& sample_weight,
                               const ConfusionSelection& selection = {});

/// [thresholds], or [thresholds, labels].
struct ConfusionCounts {
  Tensor true_positives;
  Tensor false_positives;
  Tensor true_negatives;
  Tensor false_negatives;
};
/// One pass over the entries, whatever the number of thresholds. `by_label`: entries [rows, labels]
/// are counted for each label.
ConfusionCounts count_confusion(const Thresholds& thresholds, const ConfusionInput& input,
                                bool by_label = false);

}  // namespace tutti::keras::metrics
