#include "tutti/keras/metrics.h"

#include <cmath>

#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/distribute/strategies.h"

namespace tutti::keras::metrics {
namespace {

double result(const Metric& metric) { return metric.result().item<double>(); }

const auto kLabels = [] { return at::tensor({1.f, 2.f, 3.f, 4.f}); };
const auto kGuesses = [] { return at::tensor({0.f, 2.f, 3.f, 4.f}); };

TEST(Metrics, MeanOfNothingIsZero) { EXPECT_EQ(result(Mean()), 0); }

TEST(Metrics, MeanAndSumWeighValues) {
  Mean mean;
  mean.update_state(at::tensor({1.f, 3.f}));
  mean.update_state(at::tensor({5.f, 7.f}));
  EXPECT_EQ(result(mean), 4);
  Mean weighted;
  weighted.update_state(at::tensor({1.f, 3.f, 5.f, 7.f}), at::tensor({1.f, 1.f, 0.f, 0.f}));
  EXPECT_EQ(result(weighted), 2);
  Sum sum;
  sum.update_state(at::tensor({1.f, 3.f}));
  EXPECT_EQ(result(sum), 4);
}

TEST(Metrics, ScalarsCountOnce) {
  Mean mean;
  mean.update_state(at::tensor(2.f));
  mean.update_state(at::tensor(4.f));
  EXPECT_EQ(result(mean), 3);
}

TEST(Metrics, WeightsOfZeroGiveZero) {
  Mean mean;
  mean.update_state(kLabels(), at::zeros({4}));
  EXPECT_EQ(result(mean), 0);
}

TEST(Metrics, AMeanCountsSamplesWhateverTheirSize) {
  Mean mean;
  mean.update_state(at::full({1, 4}, 1.f));
  mean.update_state(at::full({1, 2}, 3.f));
  EXPECT_EQ(result(mean), 2);
  EXPECT_EQ(mean.variables()[1].read_value().item<float>(), 2);
}

TEST(Metrics, RowWeightsWeighTheSamplesOfAMatrix) {
  Mean mean;
  mean.update_state(at::tensor({1.f, 3.f, 5.f, 7.f}).view({2, 2}), at::tensor({3.f, 1.f}));
  EXPECT_EQ(result(mean), 3);
  EXPECT_EQ(mean.variables()[1].read_value().item<float>(), 4);
}

TEST(Metrics, WeightsOfAnotherShapeAreRefused) {
  EXPECT_ERROR(Mean().update_state(kLabels(), at::ones({3})), InvalidArgument, "shape (3,)");
}

TEST(Metrics, AccuracyIsTheShareOfEqualEntries) {
  Accuracy accuracy;
  accuracy.update_state(kLabels(), kGuesses());
  EXPECT_EQ(result(accuracy), .75);
  Accuracy weighted;
  weighted.update_state(kLabels(), kGuesses(), at::tensor({1.f, 1.f, 0.f, 0.f}));
  EXPECT_EQ(result(weighted), .5);
}

TEST(Metrics, BinaryAccuracyWantsMoreThanTheThreshold) {
  BinaryAccuracy accuracy;
  accuracy.update_state(at::tensor({0.f, 1.f, 1.f, 0.f}).view({4, 1}),
                        at::tensor({.1f, .8f, .4f, .6f}).view({4, 1}));
  EXPECT_EQ(result(accuracy), .5);
  BinaryAccuracy edge;
  edge.update_state(at::ones({1, 1}), at::full({1, 1}, .5f));
  EXPECT_EQ(result(edge), 0);
  BinaryAccuracy low("low", 0.3);
  low.update_state(at::ones({1, 1}), at::full({1, 1}, .5f));
  EXPECT_EQ(result(low), 1);
}

TEST(Metrics, TheFirstOfEqualPredictionsCounts) {
  const Tensor ties = at::tensor({.4f, .4f, .2f}).view({1, 3});
  SparseCategoricalAccuracy first;
  first.update_state(at::tensor({0}, at::kLong), ties);
  EXPECT_EQ(result(first), 1);
  CategoricalAccuracy one_hot;
  one_hot.update_state(at::tensor({0.f, 1.f, 0.f}).view({1, 3}), ties);
  EXPECT_EQ(result(one_hot), 0);
}

TEST(Metrics, SparseLabelsMayBeAColumnOrAnyNumberType) {
  const Tensor outputs = at::tensor({.1f, .9f, .8f, .2f}).view({2, 2});
  SparseCategoricalAccuracy accuracy;
  accuracy.update_state(at::tensor({1, 1}, at::kLong).view({2, 1}), outputs);
  accuracy.update_state(at::tensor({1, 1}, at::kByte), outputs);
  accuracy.update_state(at::tensor({1.f, 1.f}), outputs);
  EXPECT_EQ(result(accuracy), .5);
}

TEST(Metrics, ErrorsAreMeansOverSamples) {
  const Tensor targets = at::tensor({1.f, 2.f, 3.f, -1.f}).view({2, 2});
  const Tensor outputs = at::tensor({1.5f, 2.f, 1.f, 0.f}).view({2, 2});
  MeanSquaredError squared;
  squared.update_state(targets, outputs);
  EXPECT_EQ(result(squared), 1.3125);
  MeanAbsoluteError absolute;
  absolute.update_state(targets, outputs);
  EXPECT_EQ(result(absolute), .875);
}

TEST(Metrics, AFunctionOfOnesOwnIsAveraged) {
  MeanMetricWrapper largest(
      [](const Tensor&, const Tensor& y_pred) { return std::get<0>(y_pred.max(-1)); }, "largest");
  largest.update_state(at::zeros({2}), at::tensor({1.f, 4.f, 2.f, 0.f}).view({2, 2}));
  EXPECT_EQ(result(largest), 3);
  EXPECT_EQ(largest.name(), "largest");
}

TEST(Metrics, WrongShapesAreNamed) {
  EXPECT_ERROR(SparseCategoricalAccuracy().update_state(at::zeros({2, 3}), at::zeros({2, 3})),
               InvalidArgument, "labels (2, 3) for predictions (2, 3)");
  EXPECT_ERROR(CategoricalAccuracy().update_state(at::zeros({2}), at::zeros({2, 3})),
               InvalidArgument, "labels (2,)");
  EXPECT_ERROR(BinaryAccuracy().update_state(at::zeros({2, 2}), at::zeros({2, 3})), InvalidArgument,
               "predictions (2, 3)");
  EXPECT_ERROR(Accuracy().update_state(Tensor(), at::zeros({2, 3})), InvalidArgument, "no labels");
  EXPECT_ERROR(Metric().result(), FailedPrecondition, "empty handle");
}

TEST(Metrics, CopiesShareTheState) {
  Mean mean("loss");
  const Metric copy = mean;
  mean.update_state(at::tensor({3.f}));
  EXPECT_EQ(result(copy), 3);
  copy.reset_state();
  EXPECT_EQ(result(mean), 0);
}

TEST(Metrics, UpdatesTakeNoGradient) {
  Mean mean;
  const Tensor values = at::ones({2}).requires_grad_();
  mean.update_state(values * 2);
  EXPECT_FALSE(mean.result().requires_grad());
}

TEST(Metrics, ReplicasAreSummedNotAveraged) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  SparseCategoricalAccuracy accuracy("train_accuracy");
  const Tensor outputs = at::tensor({.1f, .9f, .8f, .2f, .3f, .7f, .6f, .4f}).view({4, 2});
  const Tensor labels = at::tensor({1, 0, 1, 1}, at::kLong);
  strategy.run([&] {
    const bool first = distribute::get_replica_context()->replica_id_in_sync_group() == 0;
    accuracy.update_state(first ? labels.slice(0, 0, 3) : labels.slice(0, 3, 4),
                          first ? outputs.slice(0, 0, 3) : outputs.slice(0, 3, 4));
  });
  EXPECT_EQ(result(accuracy), .75);
  accuracy.reset_state();
  EXPECT_EQ(result(accuracy), 0);
}

TEST(Metrics, AnEmptyReplicaChangesNothing) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  BinaryAccuracy accuracy;
  strategy.run([&] {
    const int64_t rows = distribute::get_replica_context()->replica_id_in_sync_group() == 0 ? 3 : 0;
    accuracy.update_state(at::ones({rows, 1}), at::ones({rows, 1}));
    accuracy.update_state(at::ones({rows, 1}), at::ones({rows, 1}), at::ones({rows}));
  });
  EXPECT_EQ(result(accuracy), 1);
  EXPECT_EQ(accuracy.variables()[1].read_value().item<float>(), 6);
}

TEST(Metrics, InsideAReplicaTheResultIsItsOwn) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  Mean mean;
  auto results = strategy.run([&] {
    mean.update_state(at::full(
        {2},
        1.f + static_cast<float>(distribute::get_replica_context()->replica_id_in_sync_group())));
    return mean.result();
  });
  EXPECT_EQ(results[0].item<float>(), 1);
  EXPECT_EQ(results[1].item<float>(), 2);
  EXPECT_EQ(result(mean), 1.5);
}

TEST(Metrics, AccuracyByNameIsChosenByTheShapes) {
  EXPECT_EQ(from_string("accuracy", {8, 1}, {8, 1}).class_name(), "BinaryAccuracy");
  EXPECT_EQ(from_string("acc", {8}, {8, 10}).class_name(), "SparseCategoricalAccuracy");
  EXPECT_EQ(from_string("accuracy", {8, 1}, {8, 10}).class_name(), "SparseCategoricalAccuracy");
  EXPECT_EQ(from_string("accuracy", {8, 10}, {8, 10}).class_name(), "CategoricalAccuracy");
  EXPECT_EQ(from_string("crossentropy", {8, 1}, {8, 1}).class_name(), "BinaryCrossentropy");
  EXPECT_EQ(from_string("ce", {8}, {8, 10}).class_name(), "SparseCategoricalCrossentropy");
}

TEST(Metrics, AMetricGivenByNameBearsThatName) {
  EXPECT_EQ(from_string("acc", {8}, {8, 10}).name(), "acc");
  EXPECT_EQ(from_string("mae", {8, 1}, {8, 1}).name(), "mae");
  EXPECT_EQ(MeanAbsoluteError().name(), "mean_absolute_error");
  EXPECT_ERROR(from_string("f2", {8}, {8}), InvalidArgument, "sparse_categorical_accuracy");
  EXPECT_ERROR(check_name("f2"), InvalidArgument, "\"f2\"");
}

TEST(Metrics, EveryNameOfKerasGivesItsClass) {
  const std::vector<std::pair<const char*, const char*>> names = {
      {"accuracy", "Accuracy"},
      {"auc", "AUC"},
      {"AUC", "AUC"},
      {"precision", "Precision"},
      {"recall", "Recall"},
      {"true_positives", "TruePositives"},
      {"f1_score", "F1Score"},
      {"fbeta_score", "FBetaScore"},
      {"f_beta_score", "FBetaScore"},
      {"r2_score", "R2Score"},
      {"binary_io_u", "BinaryIoU"},
      {"mse", "MeanSquaredError"},
      {"MAPE", "MeanAbsolutePercentageError"},
      {"msle", "MeanSquaredLogarithmicError"},
      {"bce", "BinaryCrossentropy"},
      {"kld", "KLDivergence"},
      {"log_cosh_error", "LogCoshError"},
      {"logcosh", "LogCoshError"},
      {"root_mean_squared_error", "RootMeanSquaredError"},
      {"cosine_similarity", "CosineSimilarity"},
      {"top_k_categorical_accuracy", "TopKCategoricalAccuracy"},
      {"sparse_top_k_categorical_accuracy", "SparseTopKCategoricalAccuracy"},
      {"pearson_correlation", "PearsonCorrelation"},
      {"categorical_hinge", "CategoricalHinge"}};
  for (const auto& [name, class_name] : names) {
    EXPECT_NO_THROW(check_name(name)) << name;
    EXPECT_EQ(get(name).class_name(), class_name);
  }
  EXPECT_EQ(get("mse").name(), "mean_squared_error");
  EXPECT_EQ(from_string("auc", {8, 1}, {8, 1}).name(), "auc");
}

TEST(Metrics, ANameThatNeedsAnArgumentSaysWhich) {
  EXPECT_ERROR(check_name("mean_io_u"), InvalidArgument, "needs num_classes");
  EXPECT_ERROR(get("precision_at_recall"), InvalidArgument, "needs recall");
  EXPECT_ERROR(MeanIoU({}), InvalidArgument, "num_classes 0");
}

TEST(Metrics, SecondArgumentsOfMeansAreWeights) {
  Mean mean;
  mean.update_state(at::tensor({1.f, 5.f}), at::tensor({3.f, 1.f}));
  EXPECT_EQ(result(mean), 2);
  EXPECT_ERROR(Mean().update_state(Tensor()), InvalidArgument, "no values");
}

TEST(Metrics, OneReplicaMayUpdateAlone) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const Precision precision;
  const AUC area;
  strategy.run([&] {
    if (distribute::get_replica_context()->replica_id_in_sync_group() == 0) return;
    precision.update_state(at::ones({2, 1}), at::ones({2, 1}));
    area.update_state(at::tensor({0.f, 1.f}), at::tensor({.2f, .8f}));
  });
  EXPECT_EQ(result(precision), 1);
  EXPECT_NEAR(result(area), 1, 1e-6);
}

TEST(Metrics, StateOfTheDatasSizeIsMadeByTheFirstUpdateForAllReplicas) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const F1Score score;
  EXPECT_TRUE(score.variables().empty());
  EXPECT_EQ(result(score), 0);
  strategy.run([&] { score.update_state(at::eye(3), at::eye(3)); });
  ASSERT_EQ(score.variables().size(), 4u);
  EXPECT_EQ(score.variables()[0].sizes(), at::IntArrayRef({3}));
  EXPECT_TENSOR_NEAR(score.variables()[0].read_value(), at::full({3}, 2.f), 1e-6);
  EXPECT_TENSOR_NEAR(score.result(), at::ones({3}), 1e-6);
  EXPECT_NEAR(score.log_value(), 1, 1e-6);
}

TEST(Metrics, NanIsNeverPredicted) {
  const Tensor outputs = at::tensor({.9f, std::nanf("")}).view({2, 1});
  for (const Metric& metric :
       {Metric(TruePositives()), Metric(TruePositives({.thresholds = {.2, .5}})),
        Metric(PrecisionAtRecall(.5))}) {
    metric.update_state(at::ones({2, 1}), outputs);
    EXPECT_EQ(metric.log_value(), 1) << metric.name();
  }
}

TEST(Metrics, AucEndsTakeAllAndNothing) {
  const AUC area({.num_thresholds = 3});
  area.update_state(at::tensor({0.f, 0.f, 1.f, 1.f}), at::tensor({0.f, .5f, .3f, .9f}));
  EXPECT_NEAR(result(area), .75, 1e-6);
  const AUC pr({.num_thresholds = 3, .curve = "PR"});
  pr.update_state(at::tensor({0.f, 0.f, 1.f, 1.f}), at::tensor({0.f, .5f, .3f, .9f}));
  EXPECT_NEAR(result(pr), .8206994, 1e-6);
  EXPECT_EQ(area.variables()[0].read_value()[0].item<float>(), 2);
  EXPECT_EQ(area.variables()[1].read_value()[2].item<float>(), 0);
}

TEST(Metrics, RowWeightsWeighAllEntriesOfTheRow) {
  const TruePositives hits;
  hits.update_state(at::ones({2, 3, 2}), at::ones({2, 3, 2}), at::tensor({1.f, .5f}));
  EXPECT_EQ(result(hits), 9);
  EXPECT_ERROR(hits.update_state(at::ones({2, 3}), at::ones({2, 3}), at::ones({3})),
               InvalidArgument, "sample_weight of shape (3,) for entries of shape (2, 3)");
}

TEST(Metrics, ConfusionArgumentsOutOfRangeAreErrors) {
  EXPECT_ERROR(Precision({.thresholds = {1.5}}), InvalidArgument, "threshold 1.5");
  EXPECT_ERROR(Recall({.top_k = 0}), InvalidArgument, "top_k 0");
  EXPECT_ERROR(Recall({.class_id = 2}).update_state(at::ones({2, 2}), at::ones({2, 2})),
               InvalidArgument, "class_id 2");
  EXPECT_ERROR(AUC({.num_thresholds = 1}), InvalidArgument, "num_thresholds 1");
  EXPECT_ERROR(AUC({.curve = "RCO"}), InvalidArgument, "ROC, PR or PRGAIN");
  EXPECT_ERROR(AUC({.num_labels = 2}), InvalidArgument, "without multi_label");
  EXPECT_ERROR(SensitivityAtSpecificity(2), InvalidArgument, "specificity 2");
  EXPECT_ERROR(F1Score({.average = "mean"}), InvalidArgument, "micro, macro or weighted");
  EXPECT_ERROR(R2Score({.class_aggregation = "mean"}), InvalidArgument, "uniform_average");
  EXPECT_ERROR(IoU({.num_classes = 2, .target_class_ids = {2}}), InvalidArgument, "target class 2");
  EXPECT_ERROR(TopKCategoricalAccuracy(0), InvalidArgument, "k 0");
}

TEST(Metrics, PredictionsEqualToTheLabelsDoNotCountAgainstIt) {
  const SparseTopKCategoricalAccuracy accuracy(1);
  accuracy.update_state(at::tensor({1}, at::kLong), at::tensor({.5f, .5f, .1f}).view({1, 3}));
  EXPECT_EQ(result(accuracy), 1);
  accuracy.update_state(at::tensor({5}, at::kLong), at::tensor({.5f, .5f, .1f}).view({1, 3}));
  EXPECT_EQ(result(accuracy), .5);
}

TEST(Metrics, IgnoredClassesDoNotCount) {
  const Tensor labels = at::tensor({0, 1}, at::kLong);
  const Tensor outputs = at::tensor({.5f, .5f, .2f, .8f}).view({2, 2});
  const SparseCategoricalCrossentropy entropy({.ignore_class = 1});
  entropy.update_state(labels, outputs);
  EXPECT_NEAR(result(entropy), std::log(2.), 1e-6);
  entropy.update_state(labels, outputs, at::tensor({2.f, 7.f}));
  EXPECT_NEAR(result(entropy), std::log(2.), 1e-6);
  EXPECT_EQ(entropy.variables()[1].read_value().item<float>(), 3);
}

TEST(Metrics, IouKeepsFloatWeightsWhenItsDtypeIsFloat) {
  const Tensor labels = at::tensor({0, 1}, at::kLong), outputs = at::tensor({0, 0}, at::kLong);
  const MeanIoU whole({.num_classes = 2}), fine({.num_classes = 2, .dtype = at::kFloat});
  for (const Metric& metric : {Metric(whole), Metric(fine)})
    metric.update_state(labels, outputs, at::tensor({1.f, .5f}));
  EXPECT_NEAR(result(whole), 1, 1e-6);
  EXPECT_NEAR(result(fine), 1 / 1.5 / 2, 1e-6);
}

TEST(Metrics, AVectorIsLoggedAsItsMean) {
  auto strategy = testing::replicas(2);
  auto scope = strategy->scope();
  auto model = testing::still(
      {.loss = "mse", .metrics = {Metric(Precision({.thresholds = {.2, .8}})), "auc"}});
  const Logs logs = model->evaluate(testing::column({.1f, .5f, .9f}), testing::column({0, 0, 1}),
                                    {.batch_size = 2, .verbose = 0});
  EXPECT_NEAR(logs["precision"], .75, 1e-6);
  EXPECT_NEAR(logs["auc"], 1, 1e-6);
}

// A metric of one's own: the mean and the variance of the errors, over any number of replicas.
class ErrorVariance : public Metric::Impl {
 public:
  ErrorVariance() : Impl("error_variance", Direction::kDown) {
    count_ = add_variable("count", {});
    sum_ = add_variable("sum", {});
    squares_ = add_variable("squares", {});
  }
  std::string class_name() const override { return "ErrorVariance"; }
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor&) override {
    const Tensor error = (y_pred - y_true).to(at::kFloat);
    count_.assign_add(at::full({}, static_cast<double>(error.numel())));
    sum_.assign_add(error.sum());
    squares_.assign_add(error.square().sum());
  }
  Tensor result() const override {
    const Tensor count = count_.read_value().clamp_min(1);
    return squares_.read_value() / count - (sum_.read_value() / count).square();
  }

 private:
  Variable count_, sum_, squares_;
};

TEST(Metrics, AMetricOfOnesOwnIsExactOverReplicas) {
  for (int count : {1, 2, 3}) {
    auto strategy = testing::replicas(count);
    auto scope = strategy->scope();
    auto model =
        testing::still({.loss = "mse", .metrics = {Metric(std::make_shared<ErrorVariance>())}});
    const auto logs = model->evaluate(testing::column({1, 2, 3, 4, 10}), at::zeros({5, 1}),
                                      {.batch_size = 3, .verbose = 0});
    EXPECT_NEAR(logs["error_variance"], 10, 1e-5) << count;
  }
  const Metric own(std::make_shared<ErrorVariance>());
  EXPECT_EQ(own.config(), R"({"name":"error_variance"})");
  EXPECT_ERROR(Metric::from_config(own.class_name(), own.config()), InvalidArgument,
               "compile anew");
}

TEST(Metrics, AScalarLossIsWeighedByItsReplicasRows) {
  for (int count : {1, 2}) {
    auto strategy = testing::replicas(count);
    auto scope = strategy->scope();
    auto model = testing::still({.loss = losses::from_function(
                                     [](const Tensor& y_true, const Tensor& y_pred) {
                                       return (y_true - y_pred).square().mean();
                                     },
                                     "scalar")});
    const auto logs = model->evaluate(testing::column({1, 2, 3}), at::zeros({3, 1}),
                                      {.batch_size = 3, .verbose = 0});
    EXPECT_NEAR(logs["loss"], 14 / 3., 1e-5) << count;
  }
}

TEST(Metrics, DirectionsAreKnownWhereTheyAre) {
  EXPECT_EQ(SparseCategoricalAccuracy().direction(), Direction::kUp);
  EXPECT_EQ(MeanSquaredError().direction(), Direction::kDown);
  EXPECT_EQ(Mean().direction(), Direction::kUnknown);
  EXPECT_EQ(AUC().direction(), Direction::kUp);
  EXPECT_EQ(KLDivergence().direction(), Direction::kDown);
  EXPECT_EQ(FalsePositives().direction(), Direction::kUnknown);
}

TEST(Metrics, ConfigMakesTheSameMetricAgain) {
  const BinaryAccuracy accuracy("b", 0.25);
  const Metric again = Metric::from_config(accuracy.class_name(), accuracy.config());
  EXPECT_EQ(again.config(), accuracy.config());
  EXPECT_EQ(again.name(), "b");
  EXPECT_ERROR(Metric::from_config("MeanMetricWrapper", "{}"), InvalidArgument,
               "cannot be made from a file");
}

}  // namespace
}  // namespace tutti::keras::metrics
