// A torch::nn::Module of the user's own in the training loop.

#include "tutti/keras/torch_model.h"

#include <torch/torch.h>

#include <filesystem>
#include <sstream>

#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/tutti.h"

namespace tutti::keras {
namespace {

using testing::replicas;

struct Net : torch::nn::Module {
  explicit Net(int64_t width = 4)
      : hidden(register_module("hidden", torch::nn::Linear(2, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        out(register_module("out", torch::nn::Linear(width, 1))) {}
  Tensor forward(Tensor x) { return out(torch::tanh(norm(hidden(x)))); }
  torch::nn::Linear hidden;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear out;
};
struct Plain : torch::nn::Module {
  Plain() : line(register_module("line", torch::nn::Linear(2, 1))) {}
  Tensor forward(const Tensor& x) { return line(x); }
  torch::nn::Linear line;
};

std::pair<Tensor, Tensor> products() {
  const Tensor x = at::linspace(-1, 1, 32, at::kFloat).view({16, 2});
  return {x, x.prod(1, /*keepdim=*/true)};
}

TEST(TorchModel, TrainsTheSameOnAnyNumberOfReplicas) {
  std::vector<std::vector<Tensor>> weights;
  const auto [x, y] = products();
  for (int count : {1, 2, 3}) {
    torch::manual_seed(3);
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    TorchModel<Plain> model;
    model.compile({.optimizer = optimizers::SGD({.learning_rate = .1, .momentum = .9}),
                   .loss = "mse",
                   .metrics = {"mae"}});
    const History history =
        model.fit(x, y, {.batch_size = 5, .epochs = 4, .verbose = 0, .shuffle = false});
    EXPECT_LT(history.history.at("loss")[3], history.history.at("loss")[0]);
    weights.push_back(model.get_weights());
    for (std::size_t i = 0; i < weights[0].size(); ++i)
      EXPECT_TENSOR_NEAR(weights.back()[i], weights[0][i], 1e-5);
  }
}

TEST(TorchModel, KnowsItsWeightsByPyTorchsNames) {
  TorchModel<Net> model(int64_t{3});
  std::vector<std::string> names;
  for (const auto& [name, variable] : model.named_variables()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"hidden.weight", "hidden.bias", "norm.weight", "norm.bias",
                                      "out.weight", "out.bias", "norm.running_mean",
                                      "norm.running_var", "norm.num_batches_tracked"}));
  EXPECT_EQ(model.trainable_variables().size(), 6u);
  model.named_variables()[0].second.assign(at::full({3, 2}, .5f));
  EXPECT_TENSOR_EQ(model->hidden->weight, at::full({3, 2}, .5f));
}

TEST(TorchModel, SwitchesBetweenTrainingAndEvaluation) {
  TorchModel<Net> model;
  const auto [x, y] = products();
  model(x, /*training=*/true);
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(at::equal(model->norm->running_mean, at::zeros({4})));
  const Tensor once = model(x);
  EXPECT_FALSE(model->is_training());
  EXPECT_TENSOR_EQ(model(x), once);
}

TEST(TorchModel, SavesAndLoadsParametersAndBuffers) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    TorchModel<Net> model, other;
    const auto [x, y] = products();
    model.compile({.optimizer = "adam", .loss = "mse"});
    model.fit(x, y, {.batch_size = 8, .verbose = 0});
    const std::string path = cat(::testing::TempDir(), "/torch_model_", count, ".weights.tutti");
    model.save_weights(path);
    other.load_weights(path);
    EXPECT_TENSOR_EQ(other->norm->running_var, model->norm->running_var);
    EXPECT_TENSOR_EQ(other->norm->num_batches_tracked, model->norm->num_batches_tracked);
    EXPECT_TENSOR_EQ(other.predict(x, {.verbose = 0}), other.predict(x, {.verbose = 0}));
    at::NoGradGuard no_grad;
    EXPECT_TENSOR_EQ(other(x), model(x));
    std::filesystem::remove(path);
  }
}

TEST(TorchModel, CallbacksKeepItsBestWeights) {
  TorchModel<Plain> model;
  const auto [x, y] = products();
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 100}), .loss = "mse"});
  std::vector<Tensor> first;
  FitOptions options{.batch_size = 16, .epochs = 4, .verbose = 0, .validation_data = {x, y}};
  options.callbacks = {callbacks::LambdaCallback({.on_epoch_end =
                                                      [&](int64_t epoch, const Logs&) {
                                                        if (epoch == 0) first = model.get_weights();
                                                      }}),
                       callbacks::EarlyStopping({.patience = 10, .restore_best_weights = true})};
  model.fit(x, y, options);  // diverges: the first epoch was the best
  EXPECT_TENSOR_EQ(model.get_weights()[0], first[0]);
}

TEST(TorchModel, MayWrapAModuleThatIsThereAlready) {
  nn::Module<Plain> module;
  TorchModel<Plain> model(module);
  module->line->weight.data().fill_(2);
  EXPECT_TENSOR_EQ(model.get_weights()[0], at::full({1, 2}, 2.f));
}

TEST(TorchModel, SeveralInputsAndOutputsGoThroughForward) {
  struct Two : torch::nn::Module {
    Two() : line(register_module("line", torch::nn::Linear(2, 1))) {}
    std::tuple<Tensor, Tensor> forward(const Tensor& a, const Tensor& b) {
      return {line(a + b), line(a - b)};
    }
    torch::nn::Linear line;
  };
  TorchModel<Two> model;
  model.compile({.loss = "mse"});
  const auto [x, y] = products();
  const Logs logs = model.test_on_batch({x, x}, {y, y});
  EXPECT_NEAR(logs["loss"], logs["output_1_loss"] + logs["output_2_loss"], 1e-5);
  EXPECT_ERROR(model.test_on_batch({x, x, x}, {y, y}), InvalidArgument,
               "3 inputs, expected as many as the module's forward takes");
}

TEST(TorchModel, SummaryListsTheModulesChildren) {
  TorchModel<Net> model;
  model.set_name("net");
  std::ostringstream out;
  model.summary(out);
  EXPECT_NE(out.str().find("Model: \"net\""), std::string::npos);
  EXPECT_NE(
      out.str().find("│ hidden (torch::nn::LinearImpl)  │ ?                      │            12 "
                     "│\n"),
      std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find(" Trainable params: 25 (100.00 B)\n"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace tutti::keras
