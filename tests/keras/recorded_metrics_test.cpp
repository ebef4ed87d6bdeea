// Results of the metrics as Keras 3.15 gives them for the same numbers, and the same state for any
// number of replicas.

#include <cmath>

#include "keras/json.h"
#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/metrics.h"

namespace tutti::keras::metrics {
namespace {

enum class Inputs {
  kBinary,
  kLabels,
  kLogits,
  kOneHot,
  kClasses,
  kIds,
  kSortedIds,
  kNumbers,
  kPositive
};

constexpr int64_t kRows = 7;
Tensor ramp(int64_t count) { return at::arange(count, at::kFloat); }
Tensor whole(int64_t count) { return at::arange(count, at::kLong); }
Tensor wave(int64_t count, double speed) { return (ramp(count) * speed).sin(); }

std::pair<Tensor, Tensor> labels_and_predictions(Inputs inputs) {
  const Tensor ids = (whole(kRows) * 2).remainder(3);
  const Tensor scores = wave(21, 1.7).abs().add(.1).view({kRows, 3});
  const Tensor many = (whole(21) * 7).remainder(5).lt(2).to(at::kFloat).view({kRows, 3});
  const Tensor numbers = wave(14, .9).view({kRows, 2});
  const Tensor near = numbers + .3 * (ramp(14) * 2.3).cos().view({kRows, 2});
  switch (inputs) {
    case Inputs::kBinary:
      return {(whole(kRows) * 5).remainder(3).eq(0).to(at::kFloat).view({kRows, 1}),
              wave(kRows, .9).mul(.5).add(.5).view({kRows, 1})};
    case Inputs::kLabels:
      return {many, wave(21, 1.7).mul(.5).add(.5).view({kRows, 3})};
    case Inputs::kLogits:
      return {many, wave(21, 1.7).mul(3).view({kRows, 3})};
    case Inputs::kOneHot:
      return {at::eye(3).index_select(0, ids), scores};
    case Inputs::kClasses:
      return {ids, scores};
    case Inputs::kIds:
      return {whole(kRows).remainder(3), (whole(kRows) * 3).remainder(4)};
    case Inputs::kSortedIds:
      return {ids, at::stack({whole(kRows).remainder(3), (whole(kRows) + 1).remainder(3),
                              (whole(kRows) + 2).remainder(3)},
                             1)};
    case Inputs::kNumbers:
      return {numbers, near};
    case Inputs::kPositive:
      return {numbers.abs() + .1, near.abs() + .1};
  }
  return {};
}
Tensor row_weights() { return whole(kRows).remainder(3).mul(.5).add(.5).to(at::kFloat); }

struct Recorded {
  const char* class_name;
  const char* arguments;
  Inputs inputs;
  /// After the batch without weights, then with row_weights().
  std::vector<float> result;
};
const std::vector<Recorded> kRecorded = {
    {"Accuracy", R"({})", Inputs::kIds, {0.2962963f}},
    {"BinaryAccuracy", R"({"threshold": 0.4})", Inputs::kLabels, {0.56790119f}},
    {"CategoricalAccuracy", R"({})", Inputs::kOneHot, {0.18518518f}},
    {"SparseCategoricalAccuracy", R"({})", Inputs::kClasses, {0.18518518f}},
    {"TopKCategoricalAccuracy", R"({"k": 2})", Inputs::kOneHot, {0.7037037f}},
    {"SparseTopKCategoricalAccuracy", R"({"k": 2})", Inputs::kClasses, {0.7037037f}},
    {"SparseTopKCategoricalAccuracy",
     R"({"k": 2, "from_sorted_ids": true})",
     Inputs::kSortedIds,
     {0.62962961f}},
    {"MeanSquaredError", R"({})", Inputs::kNumbers, {0.045872372f}},
    {"RootMeanSquaredError", R"({})", Inputs::kNumbers, {0.21417835f}},
    {"MeanAbsoluteError", R"({})", Inputs::kNumbers, {0.19208241f}},
    {"MeanAbsolutePercentageError", R"({})", Inputs::kPositive, {51.974247f}},
    {"MeanSquaredLogarithmicError", R"({})", Inputs::kPositive, {0.018531196f}},
    {"LogCoshError", R"({})", Inputs::kNumbers, {0.022675561f}},
    {"Poisson", R"({})", Inputs::kPositive, {0.92439383f}},
    {"KLDivergence", R"({})", Inputs::kPositive, {0.04914372f}},
    {"Hinge", R"({})", Inputs::kBinary, {1.2107587f}},
    {"SquaredHinge", R"({})", Inputs::kLabels, {1.5643072f}},
    {"CategoricalHinge", R"({})", Inputs::kOneHot, {1.1911893f}},
    {"BinaryCrossentropy",
     R"({"from_logits": true, "label_smoothing": 0.1})",
     Inputs::kLogits,
     {1.1524508f}},
    {"CategoricalCrossentropy", R"({"label_smoothing": 0.1})", Inputs::kOneHot, {1.2071291f}},
    {"SparseCategoricalCrossentropy", R"({"from_logits": true})", Inputs::kClasses, {1.1068128f}},
    {"CosineSimilarity", R"({})", Inputs::kNumbers, {0.95806974f}},
    {"PearsonCorrelation", R"({})", Inputs::kOneHot, {0.066638067f}},
    {"ConcordanceCorrelation", R"({})", Inputs::kNumbers, {0.44183823f}},
    {"TruePositives", R"({})", Inputs::kLabels, {8.5f}},
    {"TrueNegatives", R"({"thresholds": [0.7, 0.2]})", Inputs::kLabels, {14.f, 7.f}},
    {"FalsePositives", R"({"thresholds": [0.0, 0.5, 1.0]})", Inputs::kLabels, {23.5f, 11.f, 0.f}},
    {"FalseNegatives", R"({})", Inputs::kBinary, {3.f}},
    {"Precision", R"({})", Inputs::kLabels, {0.43589744f}},
    {"Precision", R"({"thresholds": [0.8, 0.3]})", Inputs::kLabels, {0.375f, 0.46153846f}},
    {"Precision", R"({"top_k": 2})", Inputs::kLabels, {0.44444445f}},
    {"Precision", R"({"top_k": 1, "class_id": 1})", Inputs::kOneHot, {0.35714287f}},
    {"Recall", R"({"class_id": 2})", Inputs::kLabels, {1.f}},
    {"Recall", R"({"top_k": 2})", Inputs::kOneHot, {0.7037037f}},
    {"SensitivityAtSpecificity", R"({"specificity": 0.5})", Inputs::kLabels, {0.70588237f}},
    {"SpecificityAtSensitivity",
     R"({"sensitivity": 0.7, "num_thresholds": 20})",
     Inputs::kLabels,
     {0.46808511f}},
    {"PrecisionAtRecall", R"({"recall": 0.4})", Inputs::kLabels, {0.52173913f}},
    {"RecallAtPrecision", R"({"precision": 0.4, "class_id": 1})", Inputs::kLabels, {0.f}},
    {"AUC", R"({})", Inputs::kLabels, {0.46996248f}},
    {"AUC", R"({"curve": "PR"})", Inputs::kLabels, {0.37899512f}},
    {"AUC", R"({"curve": "PR", "summation_method": "minoring"})", Inputs::kLabels, {0.32802564f}},
    {"AUC", R"({"curve": "PRGAIN", "num_thresholds": 30})", Inputs::kLabels, {0.0042112861f}},
    {"AUC", R"({"thresholds": [0.9, 0.35, 0.1]})", Inputs::kLabels, {0.47966209f}},
    {"AUC", R"({"multi_label": true})", Inputs::kLabels, {0.45502648f}},
    {"AUC",
     R"({"multi_label": true, "num_labels": 3, "label_weights": [1.0, 0.5, 2.0], "curve": "PR"})",
     Inputs::kLabels,
     {0.70934737f}},
    {"AUC", R"({"label_weights": [1.0, 0.5, 2.0]})", Inputs::kLabels, {0.67420816f}},
    {"AUC",
     R"({"from_logits": true, "summation_method": "majoring"})",
     Inputs::kLogits,
     {0.46996245f}},
    {"F1Score", R"({})", Inputs::kOneHot, {0.f, 0.41666663f, 0.f}},
    {"F1Score", R"({"average": "micro", "threshold": 0.6})", Inputs::kOneHot, {0.50602406f}},
    {"FBetaScore",
     R"({"beta": 2.0, "average": "weighted", "threshold": 0.5})",
     Inputs::kLabels,
     {0.50612748f}},
    {"FBetaScore", R"({"beta": 0.5, "average": "macro"})", Inputs::kOneHot, {0.12626261f}},
    {"R2Score", R"({})", Inputs::kNumbers, {0.90625685f}},
    {"R2Score", R"({"class_aggregation": null})", Inputs::kNumbers, {0.89650601f, 0.9160077f}},
    {"R2Score",
     R"({"class_aggregation": "variance_weighted_average", "num_regressors": 2})",
     Inputs::kNumbers,
     {0.89919513f}},
    {"IoU",
     R"({"num_classes": 3, "target_class_ids": [0, 2], "dtype": "float32"})",
     Inputs::kIds,
     {0.42788461f}},
    {"MeanIoU",
     R"({"num_classes": 3, "ignore_class": 1, "dtype": "float32"})",
     Inputs::kIds,
     {0.31944445f}},
    {"BinaryIoU", R"({"threshold": 0.4, "dtype": "float32"})", Inputs::kLabels, {0.39637226f}},
    {"OneHotIoU",
     R"({"num_classes": 3, "target_class_ids": [1], "dtype": "float32"})",
     Inputs::kOneHot,
     {0.26315787f}},
    {"OneHotMeanIoU", R"({"num_classes": 3})", Inputs::kOneHot, {0.095238097f}},
};

// Where the shares of 1, 2 and 4 replicas end: uneven, and of four one has no rows.
const std::vector<std::vector<int64_t>> kEnds{{0, 7}, {0, 5, 7}, {}, {0, 3, 3, 4, 7}};

Metric make(const Recorded& recorded) {
  return Metric::from_config(recorded.class_name, recorded.arguments);
}

/// What `replica` of `count` has of the rows.
Tensor share(const Tensor& rows, int replica, int count) {
  const auto& ends = kEnds[static_cast<std::size_t>(count - 1)];
  const auto at = static_cast<std::size_t>(replica);
  return rows.slice(0, ends[at], ends[at + 1]);
}

void update_twice(const Metric& metric, Inputs inputs, int replica, int count) {
  const auto [y_true, y_pred] = labels_and_predictions(inputs);
  const Tensor y = share(y_true, replica, count);
  const Tensor p = share(y_pred, replica, count);
  metric.update_state(y, p);
  metric.update_state(y, p, share(row_weights(), replica, count));
}

class RecordedMetric : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Recorded& recorded = kRecorded[GetParam()];

  void expect_same_state(distribute::Strategy& strategy, int count) {
    const Metric alone = make(recorded);
    update_twice(alone, recorded.inputs, 0, 1);
    auto scope = strategy.scope();
    const Metric metric = make(recorded);
    strategy.run([&] {
      update_twice(metric, recorded.inputs,
                   distribute::get_replica_context()->replica_id_in_sync_group(), count);
    });
    const auto expected = alone.variables();
    const auto found = metric.variables();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name(), expected[i].name());
      EXPECT_TENSOR_NEAR(found[i].read_value(), expected[i].read_value(), 2e-6);
    }
    EXPECT_TENSOR_NEAR(metric.result(), alone.result(), 2e-6);
    metric.reset_state();
    for (const Variable& variable : found)
      EXPECT_TENSOR_EQ(variable.read_value(), at::zeros(variable.sizes(), variable.dtype()));
  }
};

TEST_P(RecordedMetric, HasKerasNumbers) {
  const Metric metric = make(recorded);
  EXPECT_EQ(metric.class_name(), recorded.class_name);
  update_twice(metric, recorded.inputs, 0, 1);
  EXPECT_TRUE(testing::tensors_near(metric.result().reshape({-1}), at::tensor(recorded.result),
                                    1e-5, 2e-6));
}

TEST_P(RecordedMetric, TwoReplicasHaveTheStateOfOne) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  expect_same_state(strategy, 2);
}

TEST_P(RecordedMetric, FourReplicasHaveTheStateOfOne) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}});
  expect_same_state(strategy, 4);
}

TEST_P(RecordedMetric, OneCopyForAllReplicasHasTheStateOfOne) {
  distribute::CentralStorageStrategy strategy({.compute_devices = {"cpu:0", "cpu:1"}});
  expect_same_state(strategy, 2);
}

TEST_P(RecordedMetric, ConfigMakesItAgain) {
  const Metric metric = make(recorded);
  const Metric again = Metric::from_config(metric.class_name(), metric.config());
  EXPECT_EQ(again.config(), metric.config());
  EXPECT_EQ(again.name(), metric.name());
  EXPECT_EQ(again.direction(), metric.direction());
  update_twice(metric, recorded.inputs, 0, 1);
  update_twice(again, recorded.inputs, 0, 1);
  EXPECT_TENSOR_EQ(again.result(), metric.result());
}

TEST_P(RecordedMetric, NothingAddedIsZero) {
  const Metric metric = make(recorded);
  EXPECT_EQ(metric.log_value(), 0);
  const auto [y_true, y_pred] = labels_and_predictions(recorded.inputs);
  metric.update_state(y_true.slice(0, 0, 0), y_pred.slice(0, 0, 0));
  EXPECT_EQ(metric.log_value(), 0);
}

INSTANTIATE_TEST_SUITE_P(Metrics, RecordedMetric,
                         ::testing::Range<std::size_t>(0, kRecorded.size()));

}  // namespace
}  // namespace tutti::keras::metrics
