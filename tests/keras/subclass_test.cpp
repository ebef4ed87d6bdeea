// Models of a class of the user's own.

#include "keras/graph_layers.h"
#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/tutti.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using layers::Layer;
using testing::column;
using testing::replicas;
using testing::summary_of;

struct TinyNet : Model {
  TinyNet() = default;
  explicit TinyNet(const std::string& name) : Model(name) {}
  Tensor call(const Tensor& x, bool training) override { return scale * out(hidden(x), training); }
  Dense hidden = track(Dense(3, {.activation = "relu"}));
  Dense out = track(Dense(1));
  Variable scale = track(Variable(at::full({}, 2.f), {.name = "scale"}));
};

TEST(OwnModel, TrainsEvaluatesAndPredictsOnAnyNumberOfReplicas) {
  std::vector<std::vector<Tensor>> weights;
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    TinyNet model;
    model.build({-1, 1});
    testing::fill_weights(model);
    model.compile({.optimizer = optimizers::SGD({.learning_rate = .01}), .loss = "mse"});
    const Tensor x = column({1, 2, 3, 4, 5});
    model.fit(x, 2 * x, {.batch_size = 2, .epochs = 3, .verbose = 0, .shuffle = false});
    EXPECT_EQ(model.predict(x, {.verbose = 0}).sizes().vec(), (layers::Shape{5, 1}));
    weights.push_back(model.get_weights());
  }
  for (std::size_t i = 0; i < weights[0].size(); ++i)
    EXPECT_TENSOR_NEAR(weights[1][i], weights[0][i], 1e-5);
}

TEST(OwnModel, IsBuiltByItsFirstCall) {
  TinyNet model("net");
  EXPECT_FALSE(model.built());
  EXPECT_ERROR(model.weights(), FailedPrecondition, "weights [net]: the model is not built");
  model(at::ones({2, 4}));
  EXPECT_TRUE(model.built());
  std::vector<std::string> names;
  for (const auto& [name, variable] : model.named_variables())
    names.push_back(name.substr(name.find('/') + 1));
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "kernel", "bias", "kernel", "bias"}))
      << "its own variables first, as in Keras";
  EXPECT_EQ(model.count_params(), 1 + 15 + 4);
}

TEST(OwnModel, ReplicasBuildItTogether) {
  auto strategy = replicas(3);
  auto scope = strategy->scope();
  TinyNet model;
  const auto outputs = strategy->run([&] { return model(at::ones({1, 2})); });
  EXPECT_TENSOR_EQ(outputs[0], outputs[2]);
  EXPECT_EQ(model.weights().size(), 5u);
}

TEST(OwnModel, BearsTheNameOfItsClass) {
  clear_session();
  TinyNet first, second, third("third");
  EXPECT_EQ(first.name(), "tiny_net");
  EXPECT_EQ(second.name(), "tiny_net_1");
  EXPECT_EQ(third.name(), "third");
  third.set_name("other");
  EXPECT_EQ(third.name(), "other");
  Sequential stack({Dense(1)});
  stack.set_name("stack");
  EXPECT_EQ(stack.layer()->name(), "stack");
}

TEST(OwnModel, SetTrainableReachesEverything) {
  TinyNet model;
  model(at::ones({1, 2}));
  testing::fill_weights(model);  // of all random ones, some leave no unit of `hidden` alive
  EXPECT_EQ(model.trainable_variables().size(), 5u);
  model.set_trainable(false);
  EXPECT_EQ(model.trainable_variables().size(), 0u);
  EXPECT_EQ(model.non_trainable_variables().size(), 5u);
  EXPECT_FALSE(model.hidden->trainable());
  model.compile({.loss = "mse"});
  const auto before = model.get_weights();
  ::testing::internal::CaptureStderr();
  model.fit(at::ones({2, 2}), at::zeros({2, 1}), {.verbose = 0});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("does not have any trainable weights"),
            std::string::npos);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TENSOR_EQ(model.get_weights()[i], before[i]);
  model.set_trainable(true);
  model.compile({.loss = "mse"});
  model.fit(at::ones({2, 2}), at::zeros({2, 1}), {.verbose = 0});
  EXPECT_FALSE(at::equal(model.get_weights()[0], before[0]));
}

TEST(OwnModel, SummaryShowsItsLayersAsASequence) {
  clear_session();
  TinyNet model("net");
  model(at::ones({1, 2}));
  const std::string text = summary_of(model);
  EXPECT_NE(text.find("│ dense (Dense)                   │ (None, 3)              │             9 "
                      "│\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" Total params: 14 (56.00 B)\n"), std::string::npos) << text;
}

TEST(OwnModel, ALayerThatIsNeverCalledIsUnbuiltInTheSummary) {
  struct Idle : Model {
    Tensor call(const Tensor& x, bool) override { return used(x); }
    Dense used = track(Dense(1)), idle = track(Dense(1));
  } model;
  model(at::ones({1, 2}));
  EXPECT_ERROR(model.weights(), FailedPrecondition, "the layer is not built");
}

TEST(OwnModel, StandsInOtherModels) {
  auto net = std::make_shared<TinyNet>("net");
  Input x({2});
  Functional graph(x, Dense(1)(as_layer(net)(x)));
  EXPECT_EQ(graph.weights().size(), 7u);
  EXPECT_EQ(graph.layers()[1]->class_name(), "TinyNet");
  graph.compile({.loss = "mse"});
  graph.fit(at::rand({4, 2}), at::rand({4, 1}), {.verbose = 0});
  Sequential stack({as_layer(net), Dense(2)});
  EXPECT_EQ(stack(at::ones({1, 2})).size(1), 2);
  net->set_trainable(false);
  EXPECT_EQ(graph.trainable_variables().size(), 2u);
  EXPECT_ERROR((*net)(x), InvalidArgument, "pass a std::shared_ptr of it to as_layer");
  EXPECT_ERROR(as_layer(nullptr), InvalidArgument, "an empty pointer");
}

TEST(OwnModel, OfSeveralInputsTakesThemByName) {
  struct Mixed : Model {
    Nest call_all(const Nest& inputs, bool) override {
      return head(inputs["a"].leaf() + inputs["b"].leaf());
    }
    Dense head = track(Dense(1, {.kernel_initializer = "ones"}));
  } model;
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
  const Tensor x = column({1, 2, 3});
  EXPECT_NEAR(model.evaluate({{"a", x}, {"b", x}}, 2 * x, {.verbose = 0})["loss"], 0, 1e-6);
  EXPECT_ERROR(TinyNet()(Nest::tuple({x, x})), InvalidArgument,
               "a model of several inputs overrides call_all");
}

TEST(OwnModel, PredictStepMayBeOverridden) {
  struct Labels : Sequential {
    using Sequential::Sequential;
    Nest predict_step(const Batch& batch) override { return (*this)(batch.x).argmax(-1); }
  };
  Labels model({Dense(3, {.input_shape = {2}})});
  const Tensor labels = model.predict(at::rand({5, 2}), {.batch_size = 2, .verbose = 0});
  EXPECT_EQ(labels.sizes().vec(), (layers::Shape{5}));
  EXPECT_EQ(labels.scalar_type(), at::kLong);
}

TEST(OwnModel, ATrainStepOfItsOwnNeedsNoCompiledLoss) {
  struct Own : Model {
    Tensor call(const Tensor& x, bool) override { return head(x); }
    void train_step(const Batch& batch) override {
      GradientTape tape;
      const Tensor loss = nn::compute_average_loss((*this)(batch.x, true).square().mean(1));
      optimizer().apply_gradients(tape.gradient(loss, trainable_variables()),
                                  trainable_variables());
      update_metrics(batch, (*this)(batch.x));
    }
    Dense head = track(Dense(1));
  };
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Own model;
    model.compile({.optimizer = optimizers::SGD({.learning_rate = .1}), .metrics = {"mae"}});
    const History history =
        model.fit(column({1, 2, 3, 4}), at::zeros({4, 1}), {.epochs = 2, .verbose = 0});
    EXPECT_EQ(history.history.size(), 1u);
    EXPECT_LT(history.history.at("mae")[1], history.history.at("mae")[0]);
  }
}

TEST(OwnModel, GetLayerFindsByName) {
  Sequential model({Dense(2, {.name = "a"}), Dense(1, {.name = "b"})});
  EXPECT_EQ(model.get_layer("b").impl(), model.layers()[1].impl());
  EXPECT_ERROR(model.get_layer("c"), NotFound, "\"c\", expected one of a, b");
}

TEST(Sequential, PopTakesTheLastLayerOff) {
  Sequential model({Dense(3, {.input_shape = {2}}), Dense(1)});
  model.pop();
  EXPECT_EQ(model(at::ones({1, 2})).size(1), 3);
  model.pop();
  EXPECT_FALSE(model.built());
  EXPECT_ERROR(model.pop(), FailedPrecondition, "a model without layers");
  model.add(Dense(4));
  EXPECT_EQ(model(at::ones({1, 5})).size(1), 4);
}

}  // namespace
}  // namespace tutti::keras
