// Models of several inputs and outputs in the training loop. Numbers are those of Keras 3.15.

#include "keras/graph_layers.h"
#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/tutti.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using testing::column;
using testing::fill_weights;
using testing::join_layer;
using testing::replicas;

/// Two inputs, two outputs, every weight known.
std::unique_ptr<Functional> two() {
  Input a({2}, "a"), b({3}, "b");
  const KerasTensor h =
      join_layer()({Dense(2, {.name = "left"})(a), Dense(2, {.name = "right"})(b)});
  auto model = std::make_unique<Functional>(
      SymbolicNest{a, b}, SymbolicNest{Dense(1, {.name = "u"})(h),
                                       Dense(3, {.activation = "softmax", .name = "v"})(h)});
  fill_weights(*model);
  return model;
}
const Tensor& input_a() {
  static const Tensor kA = at::arange(10, at::kFloat).view({5, 2}) / 10;
  return kA;
}
const Tensor& input_b() {
  static const Tensor kB = at::arange(15, at::kFloat).view({5, 3}) / 20;
  return kB;
}
const Tensor& target_u() {
  static const Tensor kU = at::arange(5, at::kFloat).view({5, 1}) / 5;
  return kU;
}
const Tensor& target_v() {
  static const Tensor kV = at::tensor({0, 1, 2, 1, 0}, at::kLong);
  return kV;
}
optimizers::Optimizer sgd() { return optimizers::SGD({.learning_rate = .1}); }
FitOptions two_epochs() {
  FitOptions options;
  options.batch_size = 2;
  options.epochs = 2;
  options.verbose = 0;
  options.shuffle = false;
  return options;
}
void expect_history(const History& found,
                    const std::map<std::string, std::vector<double>>& expected) {
  ASSERT_EQ(found.history.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(found.history.count(name), 1u) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(found.history.at(name)[i], values[i], 2e-5) << name << " " << i;
  }
}
const std::map<std::string, std::vector<double>> kHistory{
    {"loss", {0.7296053171157837, 0.594210684299469}},
    {"u_loss", {0.16892936825752258, 0.040873657912015915}},
    {"u_mae", {0.38181179761886597, 0.18692289292812347}},
    {"v_accuracy", {0.4, 0.4}},
    {"v_loss", {1.121351957321167, 1.1066739559173584}}};

TEST(SeveralOutputs, TrainToKerasNumbersOnAnyNumberOfReplicas) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = two();
    model->compile({.optimizer = sgd(),
                    .loss = {"mse", "sparse_categorical_crossentropy"},
                    .loss_weights = {1, .5},
                    .metrics = {{"u", {"mae"}}, {"v", "accuracy"}}});
    expect_history(model->fit({input_a(), input_b()}, {target_u(), target_v()}, two_epochs()),
                   kHistory);
    const Logs logs = model->evaluate({input_a(), input_b()}, {target_u(), target_v()},
                                      {.batch_size = 2, .verbose = 0});
    EXPECT_NEAR(logs["loss"], 0.5862227082252502, 2e-5);
    EXPECT_NEAR(logs["u_loss"], 0.04234737902879715, 2e-5);
    EXPECT_NEAR(logs["u_mae"], 0.16780123114585876, 2e-5);
    EXPECT_NEAR(logs["v_loss"], 1.0877506732940674, 2e-5);
    EXPECT_NEAR(model->get_weights()[5].item<double>(), -0.01825258880853653, 1e-5);
    EXPECT_EQ(model->metrics_names(),
              (std::vector<std::string>{"loss", "u_loss", "v_loss", "u_mae", "v_accuracy"}));
  }
}

TEST(SeveralOutputs, EqualNamesOfMetricsAreNumberedForEachOutput) {
  auto model = two();
  model->compile({.optimizer = sgd(),
                  .loss = {"mse", "sparse_categorical_crossentropy"},
                  .metrics = {{"u", {"mae", "mae"}}, {"v", {"accuracy"}}},
                  .weighted_metrics = {{"u", {"mae"}}, {"v", {"accuracy", "accuracy"}}}});
  model->test_on_batch({input_a(), input_b()}, {target_u(), target_v()});
  EXPECT_EQ(
      model->metrics_names(),
      (std::vector<std::string>{"loss", "u_loss", "v_loss", "u_mae", "u_mae_1", "v_accuracy",
                                "u_weighted_mae", "v_weighted_accuracy", "v_weighted_accuracy_1"}));
}

TEST(SeveralOutputs, LossesWeightsMetricsAndDataGoByNameToo) {
  auto model = two();
  model->compile({.optimizer = sgd(),
                  .loss = {{"v", "sparse_categorical_crossentropy"}, {"u", "mse"}},
                  .loss_weights = {{"v", .5}},
                  .metrics = std::vector<MetricList>{{"mae"}, {"accuracy"}}});
  expect_history(model->fit({{"b", input_b()}, {"a", input_a()}},
                            {{"v", target_v()}, {"u", target_u()}}, two_epochs()),
                 kHistory);
}

TEST(SeveralOutputs, ADatasetOfTuplesOrMapsGivesThem) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    FitOptions options = two_epochs();
    options.batch_size.reset();
    const CompileOptions compile{.optimizer = sgd(),
                                 .loss = {"mse", "sparse_categorical_crossentropy"},
                                 .loss_weights = {1, .5},
                                 .metrics = {"mae", "accuracy"}};
    auto model = two();
    model->compile(compile);
    const auto tuples = data::from_tensor_slices(std::tuple(input_a(), input_b()),
                                                 std::tuple(target_u(), target_v()));
    expect_history(model->fit(tuples.batch(2), options), kHistory);
    auto other = two();
    other->compile({.optimizer = sgd(),
                    .loss = {"mse", "sparse_categorical_crossentropy"},
                    .loss_weights = {1, .5},
                    .metrics = {"mae", "accuracy"}});
    using Named = std::map<std::string, Tensor>;
    const auto maps = data::from_tensor_slices(Named{{"a", input_a()}, {"b", input_b()}},
                                               Named{{"u", target_u()}, {"v", target_v()}});
    options.validation_data = maps.batch(5);
    const History history = other->fit(maps.batch(2), options);
    EXPECT_NEAR(history.history.at("loss")[1], kHistory.at("loss")[1], 2e-5);
    EXPECT_EQ(history.history.count("val_v_accuracy"), 1u);
  }
}

TEST(SeveralOutputs, SampleWeightsAreOneForAllOrOneForEach) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = two();
    model->compile({.optimizer = sgd(),
                    .loss = {"mse", "sparse_categorical_crossentropy"},
                    .weighted_metrics = {"mae", "accuracy"}});
    FitOptions options = two_epochs();
    options.epochs = 1;
    options.sample_weight = {at::arange(5, at::kFloat), at::tensor({1.f, 0.f, 2.f, 1.f, 1.f})};
    expect_history(model->fit({input_a(), input_b()}, {target_u(), target_v()}, options),
                   {{"loss", {1.460388422012329}},
                    {"u_loss", {0.31839698553085327}},
                    {"u_mae", {0.3653950095176697}},
                    {"v_accuracy", {0.2}},
                    {"v_loss", {1.141991376876831}}});
    options.sample_weight = at::zeros({5});
    const History all = model->fit({input_a(), input_b()}, {target_u(), target_v()}, options);
    EXPECT_NEAR(all.history.at("loss")[0], 0, 1e-6);
  }
}

TEST(SeveralOutputs, OneLossServesAllAndAnEmptyOneNone) {
  auto model = two();
  model->compile({.optimizer = sgd(), .loss = "mse"});
  const Tensor three = at::zeros({5, 3});
  const Logs both = model->test_on_batch({input_a(), input_b()}, {target_u(), three});
  EXPECT_EQ(both.size(), 3u);
  EXPECT_NEAR(both["loss"], both["u_loss"] + both["v_loss"], 1e-6);
  model->compile({.optimizer = sgd(), .loss = {losses::Loss("mse"), losses::Loss()}});
  const Logs first = model->test_on_batch({input_a(), input_b()}, {target_u(), three});
  EXPECT_EQ(first.size(), 1u) << "a single loss is the loss";
  EXPECT_NEAR(first["loss"], both["u_loss"], 1e-6);
}

TEST(SeveralOutputs, PredictGivesTheirStructure) {
  for (int count : {1, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = two();
    const Nest outputs =
        model->predict_all({input_a(), input_b()}, {.batch_size = 2, .verbose = 0});
    EXPECT_EQ(outputs.structure(), "[*, *]");
    at::NoGradGuard no_grad;
    const Nest expected = (*model)({input_a(), input_b()});
    EXPECT_TENSOR_NEAR(outputs[0].leaf(), expected[0].leaf(), 1e-6);
    EXPECT_TENSOR_NEAR(outputs[1].leaf(), expected[1].leaf(), 1e-6);
    EXPECT_ERROR(model->predict({input_a(), input_b()}, {.verbose = 0}), InvalidArgument,
                 "call predict_all");
    EXPECT_EQ(model->predict_on_batch({input_a(), input_b()})[1].leaf().size(0), 5);
  }
}

TEST(SeveralOutputs, WhatDoesNotFitThemIsNamed) {
  auto fails = [](const CompileOptions& options, const std::string& part) {
    auto model = two();
    model->compile(options);
    EXPECT_ERROR(model->test_on_batch({input_a(), input_b()}, {target_u(), target_u()}),
                 InvalidArgument, part);
  };
  fails({.loss = {"mse"}}, "losses in a list of 1, expected for the outputs u, v");
  fails({.loss = {{"u", "mse"}, {"w", "mse"}}}, "losses for \"w\", expected for the outputs u, v");
  fails({.loss = "mse", .loss_weights = {1}}, "loss_weights in a list of 1");
  fails({.loss = {"mse", "mae"}, .metrics = {"mae"}}, "metrics in a list of 1");
  fails({.loss = {"mse", losses::Loss()}, .metrics = {{"w", {"mae"}}}}, "metrics for \"w\"");
  auto model = two();
  model->compile({.loss = "mse"});
  EXPECT_ERROR(model->test_on_batch({input_a(), input_b()}, {{"u", target_u()}}), InvalidArgument,
               "data without labels for the output \"v\"");
  EXPECT_ERROR(model->test_on_batch({input_a(), input_b()}, {target_u(), target_u(), target_u()}),
               InvalidArgument, "expected one part each");
  EXPECT_ERROR(model->test_on_batch({input_a(), column({1})}, {target_u(), target_u()}),
               InvalidArgument, "x of shape (5, 2) with x of shape (1, 1)");
  EXPECT_ERROR(
      model->train_on_batch({input_a(), input_b()}, {target_u(), target_u()}, {}, {{0, 2.}}),
      InvalidArgument, "expected one output");
}

TEST(SeveralOutputs, OfAClassOfOnesOwnAreNumberedOrNamed) {
  struct Pair : Model {
    explicit Pair(bool named) : named(named) {}
    Nest call_all(const Nest& x, bool) override {
      if (named) return Nest::map({{"p", u(x.leaf())}, {"q", v(x.leaf())}});
      return Nest::tuple({u(x.leaf()), v(x.leaf())});
    }
    bool named;
    Dense u = track(Dense(1)), v = track(Dense(1));
  };
  for (bool named : {false, true}) {
    Pair model(named);
    model.compile({.loss = "mse", .metrics = {"mae", "mae"}});
    const Tensor x = column({1, 2});
    const Logs logs =
        named ? model.test_on_batch(x, {{"p", x}, {"q", x}}) : model.test_on_batch(x, {x, x});
    EXPECT_EQ(logs.count(named ? "p_loss" : "output_1_loss"), 1u);
    EXPECT_EQ(logs.count(named ? "q_mae" : "output_2_mae"), 1u);
  }
}

TEST(SeveralOutputs, AStepOfOnesOwnSeesTheNests) {
  struct Checked : Functional {
    using Functional::Functional;
    void train_step(const Batch& batch) override {
      EXPECT_FALSE(batch.x.defined());
      EXPECT_EQ(batch.x_nest.structure(), "[*, *]");
      EXPECT_TRUE(batch.y.defined());
      EXPECT_EQ(batch.rows(), batch.y.size(0));
      Functional::train_step(batch);
    }
  };
  Input a({2}), b({3});
  Checked model({a, b}, Dense(1)(join_layer()({a, b})));
  model.compile({.loss = "mse"});
  model.fit({input_a(), input_b()}, target_u(), two_epochs());
}

}  // namespace
}  // namespace tutti::keras
