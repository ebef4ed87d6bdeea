#include "tutti/keras/metrics.h"

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

TEST(Metrics, DirectionsAreKnownWhereTheyAre) {
  EXPECT_EQ(SparseCategoricalAccuracy().direction(), Direction::kUp);
  EXPECT_EQ(MeanSquaredError().direction(), Direction::kDown);
  EXPECT_EQ(Mean().direction(), Direction::kUnknown);
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
