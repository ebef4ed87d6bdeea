#include "tutti/keras/losses.h"

#include <cmath>
#include <limits>

#include "support/expect.h"
#include "tutti/distribute/strategies.h"

namespace tutti::keras::losses {
namespace {

// The small example of the Keras pages: two rows, and three classes.
const auto kTargets = [] { return at::tensor({1.f, 2.f, 3.f, -1.f}).view({2, 2}); };
const auto kOutputs = [] { return at::tensor({1.5f, 2.f, 1.f, 0.f}).view({2, 2}); };
const auto kOneHot = [] { return at::tensor({0.f, 1.f, 0.f, 0.f, 0.f, 1.f}).view({2, 3}); };
const auto kProbabilities = [] {
  return at::tensor({.05f, .9f, .05f, .1f, .7f, .2f}).view({2, 3});
};
const auto kClasses = [] { return at::tensor({1, 2}, at::kLong); };
const auto kBits = [] { return at::tensor({0.f, 1.f, 1.f, 0.f}).view({4, 1}); };
const auto kBitOutputs = [] { return at::tensor({.1f, .8f, .4f, .6f}).view({4, 1}); };

double value(const Tensor& loss) { return loss.item<double>(); }

TEST(Losses, ErrorsAreMeansOverTheLastAxis) {
  EXPECT_NEAR(value(MeanSquaredError()(kTargets(), kOutputs())), 1.3125, 1e-6);
  EXPECT_NEAR(value(MeanAbsoluteError()(kTargets(), kOutputs())), 0.875, 1e-6);
  EXPECT_TENSOR_NEAR(MeanSquaredError().per_sample(kTargets(), kOutputs()),
                     at::tensor({.125f, 2.5f}), 1e-6);
  EXPECT_TENSOR_NEAR(MeanAbsoluteError().per_sample(kTargets(), kOutputs()),
                     at::tensor({.25f, 1.5f}), 1e-6);
}

TEST(Losses, BinaryCrossentropyHasKerasNumbers) {
  EXPECT_NEAR(value(BinaryCrossentropy()(kBits(), kBitOutputs())), .5402714, 1e-6);
  EXPECT_NEAR(value(BinaryCrossentropy({.from_logits = true})(kBits(), kBitOutputs())), .6665002,
              1e-6);
  EXPECT_NEAR(value(BinaryCrossentropy({.label_smoothing = 0.1})(kBits(), kBitOutputs())), .5749288,
              1e-6);
}

TEST(Losses, ProbabilitiesAreClipped) {
  EXPECT_NEAR(value(BinaryCrossentropy()(at::ones({1, 1}), at::zeros({1, 1}))), 16.118095, 1e-5);
  EXPECT_NEAR(value(CategoricalCrossentropy()(at::tensor({1.f, 0.f}).view({1, 2}),
                                              at::tensor({0.f, 1.f}).view({1, 2}))),
              16.118095, 1e-5);
}

TEST(Losses, CategoricalCrossentropyHasKerasNumbers) {
  EXPECT_TENSOR_NEAR(CategoricalCrossentropy().per_sample(kOneHot(), kProbabilities()),
                     at::tensor({.1053605f, 1.609438f}), 1e-5);
  EXPECT_NEAR(value(CategoricalCrossentropy({.from_logits = true})(kOneHot(), kProbabilities())),
              .9428713, 1e-6);
  EXPECT_NEAR(value(CategoricalCrossentropy({.label_smoothing = 0.1})(kOneHot(), kProbabilities())),
              .9444181, 1e-6);
}

TEST(Losses, CategoricalCrossentropyDividesByTheSumOfTheRow) {
  const Tensor row = at::tensor({2.f, 6.f, 2.f}).view({1, 3});
  EXPECT_NEAR(value(CategoricalCrossentropy()(at::tensor({0.f, 1.f, 0.f}).view({1, 3}), row)),
              .5108256, 1e-6);
}

TEST(Losses, SparseCategoricalCrossentropyEqualsTheOneHotForm) {
  EXPECT_NEAR(value(SparseCategoricalCrossentropy()(kClasses(), kProbabilities())), .8573992, 1e-6);
  EXPECT_TENSOR_NEAR(
      SparseCategoricalCrossentropy({.from_logits = true}).per_sample(kClasses(), kProbabilities()),
      CategoricalCrossentropy({.from_logits = true}).per_sample(kOneHot(), kProbabilities()), 1e-6);
}

TEST(Losses, SparseLabelsMayBeAColumnOrAnyNumberType) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const Tensor expected = loss.per_sample(kClasses(), kProbabilities());
  EXPECT_TENSOR_EQ(loss.per_sample(kClasses().view({2, 1}), kProbabilities()), expected);
  for (const at::ScalarType dtype : {at::kByte, at::kInt, at::kFloat}) {
    EXPECT_TENSOR_EQ(loss.per_sample(kClasses().to(dtype), kProbabilities()), expected);
  }
}

TEST(Losses, SparseLossOfSequencesHasOneValueAStep) {
  const Tensor logits = at::arange(24, at::kFloat).view({2, 3, 4}).sin();
  const Tensor labels = at::tensor({0, 2, 2, 0, 1, 3}, at::kLong).view({2, 3});
  const Tensor loss =
      SparseCategoricalCrossentropy({.from_logits = true}).per_sample(labels, logits);
  EXPECT_TENSOR_NEAR(loss, -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1),
                     1e-6);
}

TEST(Losses, SparseGradientIsSoftmaxLessOneHotOverTheBatch) {
  const Tensor logits = kProbabilities().requires_grad_();
  SparseCategoricalCrossentropy({.from_logits = true})(kClasses(), logits).backward();
  EXPECT_TENSOR_NEAR(logits.grad(), (logits.detach().softmax(-1) - kOneHot()) / 2, 1e-6);
}

TEST(Losses, LargeLogitsStayFinite) {
  const Tensor logits = at::tensor({1000.f, -1000.f}).view({1, 2});
  EXPECT_NEAR(value(SparseCategoricalCrossentropy({.from_logits = true})(at::tensor({1}, at::kLong),
                                                                         logits)),
              2000, 1e-3);
  EXPECT_NEAR(
      value(BinaryCrossentropy({.from_logits = true})(at::tensor({0.f, 0.f}).view({1, 2}), logits)),
      500, 1e-3);
}

TEST(Losses, IgnoredClassesAreNeitherAddedNorCounted) {
  const SparseCategoricalCrossentropy loss({.ignore_class = 1});
  EXPECT_NEAR(value(loss(kClasses(), kProbabilities())), 1.609438, 1e-5);
  EXPECT_TENSOR_NEAR(loss.per_sample(kClasses(), kProbabilities()), at::tensor({0.f, 1.609438f}),
                     1e-5);
  EXPECT_TENSOR_EQ(loss.valid(kClasses(), kProbabilities()),
                   at::tensor({0, 1}, at::kLong).to(at::kBool));
  EXPECT_NEAR(value(SparseCategoricalCrossentropy({.ignore_class = -1})(
                  at::tensor({-1, 2}, at::kLong), kProbabilities())),
              1.609438, 1e-5);
}

TEST(Losses, MeansDivideByTheCountUnlessTheWeightsAreAskedFor) {
  const Tensor weights = at::tensor({.3f, .7f});
  auto reduced = [&](Reduction reduction) {
    return SparseCategoricalCrossentropy({.reduction = reduction})(kClasses(), kProbabilities(),
                                                                   weights);
  };
  EXPECT_NEAR(value(reduced(Reduction::kSumOverBatchSize)), .5791074, 1e-6);
  EXPECT_NEAR(value(reduced(Reduction::kMean)), .5791074, 1e-6);
  EXPECT_NEAR(value(reduced(Reduction::kSum)), 1.1582148, 1e-6);
  EXPECT_NEAR(value(reduced(Reduction::kMeanWithSampleWeight)), 1.1582148, 1e-6);
  EXPECT_TENSOR_NEAR(reduced(Reduction::kNone), at::tensor({.3f * .1053605f, .7f * 1.609438f}),
                     1e-5);
}

TEST(Losses, WeightsThatSumToZeroGiveZero) {
  MeanSquaredError loss({.reduction = Reduction::kMeanWithSampleWeight});
  EXPECT_EQ(value(loss(kTargets(), kOutputs(), at::zeros({2}))), 0);
}

TEST(Losses, AColumnOfWeightsMakesAColumnOfLosses) {
  const Tensor loss = MeanSquaredError({.reduction = Reduction::kNone})(
      kTargets(), kOutputs(), at::tensor({2.f, 0.f}).view({2, 1}));
  EXPECT_TENSOR_NEAR(loss, at::tensor({.25f, 0.f}).view({2, 1}), 1e-6);
}

TEST(Losses, WeightsOfAnotherShapeAreRefused) {
  EXPECT_ERROR(MeanSquaredError()(kTargets(), kOutputs(), at::ones({3})), InvalidArgument,
               "shape (3,) for losses of shape (2,)");
  const Tensor steps = at::zeros({2, 3, 4});
  EXPECT_ERROR(MeanSquaredError()(steps, steps, at::ones({2})), InvalidArgument,
               "shape (2,) for losses of shape (2, 3)");
}

TEST(Losses, AnEmptyBatchGivesZeroWithAGradient) {
  const Tensor outputs = at::zeros({0, 3}).requires_grad_();
  const Tensor loss =
      SparseCategoricalCrossentropy({.from_logits = true})(at::zeros({0}, at::kLong), outputs);
  EXPECT_EQ(value(loss), 0);
  loss.backward();
  EXPECT_TENSOR_EQ(outputs.grad(), at::zeros({0, 3}));
}

TEST(Losses, WrongLabelShapesAreNamedWithBothShapes) {
  EXPECT_ERROR(MeanSquaredError()(at::zeros({2}), at::zeros({2, 3})), InvalidArgument,
               "labels (2,) for predictions (2, 3)");
  EXPECT_ERROR(MeanSquaredError()(at::zeros({2, 1}), at::zeros({2, 3})), InvalidArgument,
               "labels (2, 1) for predictions (2, 3)");
  EXPECT_ERROR(SparseCategoricalCrossentropy()(kOneHot(), kProbabilities()), InvalidArgument,
               "CategoricalCrossentropy");
  EXPECT_ERROR(SparseCategoricalCrossentropy()(at::zeros({3}, at::kLong), kProbabilities()),
               InvalidArgument, "labels (3,) for predictions (2, 3)");
  EXPECT_ERROR(CategoricalCrossentropy()(kClasses(), kProbabilities()), InvalidArgument,
               "labels (2,) for predictions (2, 3)");
}

TEST(Losses, ALabelOutOfRangeIsAnErrorThatShowsTheRange) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  EXPECT_ERROR(loss(at::tensor({1, 3}, at::kLong), kProbabilities()), InvalidArgument,
               "labels from 1 to 3 for 3 classes, expected from 0 to 2");
  EXPECT_ERROR(loss(at::tensor({-1, 2}, at::kLong), kProbabilities()), InvalidArgument,
               "expected from 0 to 2");
  EXPECT_ERROR(loss(at::tensor({-100, 2}, at::kLong), kProbabilities()), InvalidArgument,
               "expected from 0 to 2");
}

TEST(Losses, MissingLabelsAndEmptyHandlesAreErrors) {
  EXPECT_ERROR(MeanSquaredError()(Tensor(), kOutputs()), InvalidArgument, "no labels");
  EXPECT_ERROR(Loss()(kTargets(), kOutputs()), FailedPrecondition, "empty handle");
}

TEST(Losses, AMeanInsideReplicasIsRefusedAndTheStrategyStaysUsable) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  EXPECT_ERROR(strategy.run([] { return MeanSquaredError()(kTargets(), kOutputs()); }),
               InvalidArgument, "SUM or NONE");
  auto sums = strategy.run(
      [] { return MeanSquaredError({.reduction = Reduction::kSum})(kTargets(), kOutputs()); });
  EXPECT_NEAR(value(sums[1]), 2.625, 1e-6);
  auto rows = strategy.run(
      [] { return MeanSquaredError({.reduction = Reduction::kNone})(kTargets(), kOutputs()); });
  EXPECT_TENSOR_NEAR(rows[0], at::tensor({.125f, 2.5f}), 1e-6);
}

TEST(Losses, NamesGiveLossesAndUnknownOnesListThem) {
  for (const char* name :
       {"mse", "mean_squared_error", "mae", "binary_crossentropy", "categorical_crossentropy",
        "sparse_categorical_crossentropy", "MeanSquaredError"}) {
    EXPECT_TRUE(Loss(name).defined()) << name;
  }
  EXPECT_EQ(Loss("mae").class_name(), "MeanAbsoluteError");
  EXPECT_ERROR(Loss("l3"), InvalidArgument, "sparse_categorical_crossentropy");
  EXPECT_ERROR(reduction_from_name("avg"), InvalidArgument, "sum_over_batch_size, sum, none");
}

TEST(Losses, ConfigMakesTheSameLossAgain) {
  const SparseCategoricalCrossentropy loss(
      {.from_logits = true, .ignore_class = 4, .reduction = Reduction::kSum, .name = "x"});
  const Loss again = Loss::from_config(loss.class_name(), loss.config());
  EXPECT_EQ(again.config(), loss.config());
  EXPECT_EQ(again.name(), "x");
  EXPECT_EQ(again.reduction(), Reduction::kSum);
  const CategoricalCrossentropy smooth({.label_smoothing = .25});
  EXPECT_EQ(Loss::from_config(smooth.class_name(), smooth.config()).config(), smooth.config());
  EXPECT_ERROR(Loss::from_config("MeanSquaredError", "[1"), DataLoss, "damaged");
}

TEST(Losses, EveryNameOfKerasGivesItsClass) {
  const std::vector<std::pair<const char*, const char*>> names = {
      {"mse", "MeanSquaredError"},
      {"MSE", "MeanSquaredError"},
      {"mae", "MeanAbsoluteError"},
      {"mape", "MeanAbsolutePercentageError"},
      {"msle", "MeanSquaredLogarithmicError"},
      {"bce", "BinaryCrossentropy"},
      {"kld", "KLDivergence"},
      {"KLDivergence", "KLDivergence"},
      {"kl_divergence", "KLDivergence"},
      {"cosine_similarity", "CosineSimilarity"},
      {"huber", "Huber"},
      {"log_cosh", "LogCosh"},
      {"poisson", "Poisson"},
      {"hinge", "Hinge"},
      {"squared_hinge", "SquaredHinge"},
      {"categorical_hinge", "CategoricalHinge"},
      {"binary_focal_crossentropy", "BinaryFocalCrossentropy"},
      {"categorical_focal_crossentropy", "CategoricalFocalCrossentropy"},
      {"categorical_generalized_cross_entropy", "CategoricalGeneralizedCrossEntropy"},
      {"dice", "Dice"},
      {"tversky", "Tversky"},
      {"circle", "Circle"},
      {"ctc", "CTC"},
      {"CTC", "CTC"}};
  for (const auto& [name, class_name] : names) EXPECT_EQ(Loss(name).class_name(), class_name);
  EXPECT_EQ(Huber().name(), "huber_loss");
  EXPECT_EQ(LogCosh().name(), "log_cosh");
}

TEST(Losses, FunctionsAreTheUnreducedLosses) {
  EXPECT_TENSOR_EQ(mean_squared_error(kTargets(), kOutputs()),
                   MeanSquaredError().per_sample(kTargets(), kOutputs()));
  EXPECT_TENSOR_EQ(huber(kTargets(), kOutputs(), .5),
                   Huber({.delta = .5}).per_sample(kTargets(), kOutputs()));
  EXPECT_TENSOR_EQ(binary_crossentropy(kBits(), kBitOutputs(), {.from_logits = true}),
                   BinaryCrossentropy({.from_logits = true}).per_sample(kBits(), kBitOutputs()));
  EXPECT_TENSOR_EQ(sparse_categorical_crossentropy(kClasses(), kProbabilities()),
                   SparseCategoricalCrossentropy().per_sample(kClasses(), kProbabilities()));
}

TEST(Losses, FunctionsTakeLabelsOfAnyNumberType) {
  EXPECT_TENSOR_EQ(categorical_crossentropy(kOneHot().to(at::kLong), kProbabilities()),
                   categorical_crossentropy(kOneHot(), kProbabilities()));
  EXPECT_TENSOR_EQ(hinge(kOneHot().to(at::kBool), kProbabilities()),
                   hinge(kOneHot(), kProbabilities()));
}

TEST(Losses, SparseClassesMayLieOnAnyAxis) {
  const Tensor logits = at::arange(24, at::kFloat).view({2, 4, 3}).sin();
  const Tensor labels = at::tensor({0, 2, 3, 0, 1, 3}, at::kLong).view({2, 3});
  EXPECT_TENSOR_NEAR(
      sparse_categorical_crossentropy(labels, logits, {.from_logits = true, .axis = 1}),
      sparse_categorical_crossentropy(labels, logits.transpose(1, 2), {.from_logits = true}), 1e-6);
  EXPECT_ERROR(sparse_categorical_crossentropy(labels, logits, {.axis = 3}), InvalidArgument,
               "axis 3 for predictions (2, 4, 3)");
}

TEST(Losses, LogCoshAndFocalLossesStayFiniteFarOut) {
  const Tensor far = at::tensor({1000.f, -1000.f}).view({1, 2});
  EXPECT_NEAR(value(LogCosh()(at::zeros({1, 2}), far)), 1000 - std::log(2.), 1e-3);
  EXPECT_TRUE(std::isfinite(value(BinaryFocalCrossentropy()(at::tensor({0.f, 1.f}).view({1, 2}),
                                                            at::tensor({1.f, 0.f}).view({1, 2})))));
}

TEST(Losses, CosineSimilarityOfAZeroRowIsZero) {
  EXPECT_TENSOR_EQ(losses::cosine_similarity(at::ones({1, 3}), at::zeros({1, 3})), at::zeros({1}));
}

TEST(Losses, ACircleRowWithoutAPartnerNeitherCountsNorHasAGradient) {
  const Tensor angles = at::tensor({0.f, .4f, 2.f});
  const Tensor embeddings = at::stack({angles.cos(), angles.sin()}, 1).requires_grad_();
  const Tensor labels = at::tensor({0, 0, 1}, at::kLong);
  const Circle loss({.gamma = 2});
  EXPECT_TENSOR_EQ(loss.valid(labels, embeddings), at::tensor({1, 1, 0}, at::kLong).to(at::kBool));
  const Tensor each = loss.per_sample(labels, embeddings);
  EXPECT_EQ(each[2].item<float>(), 0);
  const Tensor mean = loss(labels, embeddings);
  EXPECT_NEAR(value(mean), value(each.sum()) / 2, 1e-6);
  mean.backward();
  EXPECT_TRUE(embeddings.grad().isfinite().all().item<bool>());
}

TEST(Losses, CircleMayPairTheBatchWithOtherEmbeddings) {
  const Tensor angles = at::tensor({0.f, .4f, 2.f});
  const Tensor embeddings = at::stack({angles.cos(), angles.sin()}, 1);
  const Tensor labels = at::tensor({0, 0, 1}, at::kLong);
  EXPECT_TENSOR_EQ(circle(labels, embeddings, {}, labels, embeddings), circle(labels, embeddings));
  EXPECT_ERROR(circle(labels, at::zeros({2, 2})), InvalidArgument, "labels (3,)");
}

TEST(Losses, CtcRefusesWhatIsNoSequence) {
  EXPECT_ERROR(CTC()(at::ones({2, 2}), at::zeros({2, 3})), InvalidArgument,
               "(batch, steps, classes)");
  EXPECT_ERROR(CTC()(at::full({2, 2}, 3), at::zeros({2, 4, 3})), InvalidArgument,
               "labels from 3 to 3 for 3 classes");
}

TEST(Losses, CtcOfLabelsThatDoNotFitIsInfinite) {
  const Tensor loss = ctc(at::tensor({1, 1, 1}, at::kLong).view({1, 3}), at::zeros({1, 4, 3}));
  EXPECT_EQ(loss.item<float>(), std::numeric_limits<float>::infinity());
}

TEST(Losses, ArgumentsOutOfRangeAreErrors) {
  EXPECT_ERROR(Huber({.delta = 0}), InvalidArgument, "delta 0");
  EXPECT_ERROR(CategoricalGeneralizedCrossEntropy({.q = 1}), InvalidArgument, "q 1");
  EXPECT_ERROR(BinaryFocalCrossentropy({.label_smoothing = -1}), InvalidArgument, "from 0 to 1");
  EXPECT_ERROR(CosineSimilarity({.axis = 2})(kTargets(), kOutputs()), InvalidArgument, "axis 2");
  EXPECT_ERROR(
      CategoricalGeneralizedCrossEntropy()(at::tensor({0, 3}, at::kLong), kProbabilities()),
      InvalidArgument, "labels from 0 to 3 for 3 classes");
}

TEST(Losses, AMaskMakesTheMeanThatOfTheValidOnes) {
  const Tensor mask = at::tensor({1, 1, 0, 1}, at::kLong).to(at::kBool);
  const Tensor values = at::tensor({1.f, 2.f, 30.f, 6.f});
  EXPECT_NEAR(value(reduce_weighted(values, {}, Reduction::kMean, mask)), 3, 1e-6);
  EXPECT_NEAR(value(reduce_weighted(values, {}, Reduction::kSum, mask)), 9, 1e-6);
  EXPECT_TENSOR_NEAR(apply_mask({}, mask, at::kFloat, Reduction::kSumOverBatchSize),
                     at::tensor({4 / 3.f, 4 / 3.f, 0.f, 4 / 3.f}), 1e-6);
  EXPECT_TENSOR_EQ(apply_mask(at::tensor({2.f, 0.f, 5.f, 1.f}), mask, at::kFloat, Reduction::kSum),
                   at::tensor({2.f, 0.f, 0.f, 1.f}));
  EXPECT_FALSE(apply_mask({}, {}, at::kFloat, Reduction::kMean).defined());
}

TEST(Losses, AMaskThatLeavesNothingGivesZero) {
  const Tensor none = at::zeros({3}, at::kBool);
  for (auto reduction : {Reduction::kMean, Reduction::kSum, Reduction::kMeanWithSampleWeight})
    EXPECT_EQ(value(reduce_weighted(at::ones({3}), {}, reduction, none)), 0);
}

TEST(Losses, AFunctionOfOnesOwnIsReducedLikeTheOthers) {
  const Loss cubes =
      from_function([](const Tensor& y_true,
                       const Tensor& y_pred) { return (y_true - y_pred).abs().pow(3).mean(-1); },
                    "cubes");
  EXPECT_EQ(cubes.name(), "cubes");
  const Tensor y_true = at::zeros({2, 1}), y_pred = at::tensor({1.f, 2.f}).view({2, 1});
  EXPECT_NEAR(value(cubes(y_true, y_pred)), 4.5, 1e-6);
  EXPECT_NEAR(value(cubes(y_true, y_pred, at::tensor({0.f, 1.f}))), 4, 1e-6);
  EXPECT_ERROR(Loss::from_config(cubes.class_name(), cubes.config()), InvalidArgument,
               "compile anew");
  EXPECT_ERROR(from_function({}, "none"), InvalidArgument, "no function");
}

TEST(Losses, AScalarOfAFunctionIsTakenAsItIs) {
  const LossFunctionWrapper largest(
      [](const Tensor& y_true, const Tensor& y_pred) { return (y_true - y_pred).abs().max(); },
      {.name = "largest"});
  EXPECT_NEAR(value(largest(kTargets(), kOutputs())), 2, 1e-6);
}

TEST(Losses, LabelSmoothingIsAShare) {
  EXPECT_ERROR(CategoricalCrossentropy({.label_smoothing = 1.5}), InvalidArgument, "from 0 to 1");
}

}  // namespace
}  // namespace tutti::keras::losses
