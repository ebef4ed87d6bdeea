// Masks from layers to layers and to the loss. Numbers are those of Keras 3.15.

#include "keras/graph_layers.h"
#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/tutti.h"

namespace tutti::keras {
namespace {

using layers::Layer;
using losses::Reduction;
using testing::MeanOverStepsImpl;
using testing::replicas;
using testing::skip_zeros;
using testing::TwiceImpl;

Tensor steps() { return at::tensor({1.f, 2.f, 0.f, 3.f, 0.f, 0.f, 1.f, 1.f, 1.f}).view({3, 3, 1}); }
Tensor step_weights() {
  return at::tensor({1.f, 2.f, 3.f, 1.f, 1.f, 1.f, 0.f, 1.f, 0.f}).view({3, 3});
}
Layer twice(bool hands_on = true) { return std::make_shared<TwiceImpl>(hands_on); }
Layer mean_over_steps() { return std::make_shared<MeanOverStepsImpl>(); }

void expect_masked_losses(Model& model) {
  const Tensor zeros = at::zeros({3, 3, 1});
  struct Case {
    Reduction reduction;
    double loss;
    double weighted_loss;
  };
  for (const Case& one :
       {Case{Reduction::kSumOverBatchSize, 68 / 6., 76 / 6.}, Case{Reduction::kSum, 68, 76},
        Case{Reduction::kMeanWithSampleWeight, 68 / 6., 76 / 5.}}) {
    model.compile({.loss = losses::MeanSquaredError({.reduction = one.reduction}),
                   .metrics = {"mae"},
                   .weighted_metrics = {metrics::MeanSquaredError("wm")}});
    const Logs logs = model.evaluate(steps(), zeros, {.batch_size = 3, .verbose = 0});
    EXPECT_NEAR(logs["loss"], one.loss, 1e-4);
    EXPECT_NEAR(logs["mae"], 3, 1e-5) << "steps that are masked do not count";
    EXPECT_NEAR(logs["wm"], 68 / 6., 1e-4);
    EvaluateOptions weighted{.batch_size = 3, .verbose = 0};
    weighted.sample_weight = step_weights();
    const Logs with_weights = model.evaluate(steps(), zeros, weighted);
    EXPECT_NEAR(with_weights["loss"], one.weighted_loss, 1e-4);
    EXPECT_NEAR(with_weights["wm"], 76 / 5., 1e-4);
  }
}

TEST(Masks, WeighTheLossOfASequentialOnAnyNumberOfReplicas) {
  for (int count : {1, 2, 4}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Sequential model({Input({3, 1}), skip_zeros(), twice()});
    expect_masked_losses(model);
  }
}

TEST(Masks, WeighTheLossOfAFunctional) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Input x({3, 1});
    Functional model(x, twice()(skip_zeros()(x)));
    expect_masked_losses(model);
  }
}

TEST(Masks, PassThroughModelsInModels) {
  Sequential inner({Input({3, 1}), skip_zeros()});
  Sequential outer({inner, twice()});
  expect_masked_losses(outer);
  Input x({3, 1});
  Functional graph(x, Sequential({Input({3, 1}), twice()})(skip_zeros()(x)));
  expect_masked_losses(graph);
}

TEST(Masks, ReachTheLayersThatLookAtThem) {
  Sequential model({Input({3, 1}), skip_zeros(), twice(), mean_over_steps()});
  EXPECT_TENSOR_NEAR(model(steps()), at::tensor({3.f, 6.f, 2.f}).view({3, 1}), 1e-6);
  Input x({3, 1});
  Functional graph(x, mean_over_steps()(twice()(skip_zeros()(x))));
  EXPECT_TENSOR_NEAR(graph(steps()), model(steps()), 1e-6);
  graph.compile({.loss = "mse"});  // and end there
  EXPECT_NEAR(graph.test_on_batch(steps(), at::zeros({3, 1}))["loss"], (9 + 36 + 4) / 3., 1e-5);
}

TEST(Masks, ThatALayerDoesNotSupportEndWithOneWarning) {
  Sequential model({Input({3, 1}), skip_zeros(), twice(/*hands_on=*/false), mean_over_steps()},
                   {.name = "m"});
  ::testing::internal::CaptureStderr();
  const Tensor result = model(steps());
  model(steps());
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto first = log.find("Twice was given a mask, which it does not support");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("was given a mask", first + 30), std::string::npos);
  EXPECT_TENSOR_NEAR(result, at::tensor({2.f, 2.f, 2.f}).view({3, 1}), 1e-6);
}

TEST(Masks, OfAModelAsALayerCalledAloneAreLookedAtToo) {
  Sequential model({Input({3, 1}), skip_zeros(), mean_over_steps()});
  EXPECT_TENSOR_NEAR(model.layer()(steps()), model(steps()), 0);
}

TEST(Masks, ThatDoNotFitTheLossAreRefused) {
  struct Short : testing::SkipZerosImpl {
    Tensor compute_mask(const std::vector<Tensor>& inputs,
                        const layers::CallArguments&) const override {
      return inputs[0].ne(0).any(-1).narrow(1, 0, 2);
    }
  };
  Sequential model({Input({3, 1}), Layer(std::make_shared<Short>())});
  model.compile({.loss = "mse"});
  EXPECT_ERROR(model.test_on_batch(steps(), at::zeros({3, 3, 1})), InvalidArgument,
               "a mask of shape (3, 2) for values of shape (3, 3)");
}

}  // namespace
}  // namespace tutti::keras
