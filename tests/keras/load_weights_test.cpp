// Weights of other programs, and of models that are not quite the same.

#include <torch/torch.h>

#include "keras/line_model.h"
#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "tutti/io/tensor_file.h"
#include "tutti/keras/torch_model.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using testing::replicas;
using Tensors = std::map<std::string, Tensor>;

struct Net : torch::nn::Module {
  Net()
      : fc1(register_module("fc1", torch::nn::Linear(3, 4))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        fc2(register_module("fc2", torch::nn::Linear(4, 2))) {}
  Tensor forward(const Tensor& x) { return fc2(norm(torch::relu(fc1(x)))); }
  torch::nn::Linear fc1;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear fc2;
};

Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}

/// A state_dict of Net.
Tensors state_dict() {
  return {{"fc1.weight", rows(4, 3)},
          {"fc1.bias", rows(1, 4)[0]},
          {"norm.weight", rows(2, 4)[1]},
          {"norm.bias", rows(3, 4)[2]},
          {"norm.running_mean", rows(4, 4)[3]},
          {"norm.running_var", rows(5, 4)[4].abs() + .1},
          {"norm.num_batches_tracked", at::scalar_tensor(7, at::kLong)},
          {"fc2.weight", rows(2, 4)},
          {"fc2.bias", rows(1, 2)[0]}};
}

/// What Net computes with these, by its formula.
Tensor expected(const Tensors& state, const Tensor& x) {
  const Tensor hidden = at::relu(at::linear(x, state.at("fc1.weight"), state.at("fc1.bias")));
  const Tensor normed = at::batch_norm(hidden, state.at("norm.weight"), state.at("norm.bias"),
                                       state.at("norm.running_mean"), state.at("norm.running_var"),
                                       false, .1, 1e-5, false);
  return at::linear(normed, state.at("fc2.weight"), state.at("fc2.bias"));
}

class LoadingWeights : public tutti::testing::TemporaryFolder {
 protected:
  std::string file(const Tensors& tensors) const {
    io::save_safetensors(path("net.safetensors"), tensors);
    return path("net.safetensors");
  }
};

TEST_F(LoadingWeights, PyTorchsGoIntoATorchModelOnEveryReplica) {
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    TorchModel<Net> model;
    model.load_weights(file(state_dict()));
    for (const auto& [name, variable] : model.named_variables()) {
      for (const Tensor& component : variable.components())
        EXPECT_TENSOR_EQ(component, state_dict().at(name));
    }
    EXPECT_TENSOR_NEAR(model.predict(rows(6, 3), {.batch_size = 6, .verbose = 0}),
                       expected(state_dict(), rows(6, 3)), 1e-6);
  }
}

TEST_F(LoadingWeights, PyTorchsGoIntoAModuleAndBack) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  nn::Module<Net> module;
  load_weights(module, file(state_dict()));
  module.eval();
  EXPECT_TENSOR_NEAR(module(rows(6, 3)), expected(state_dict(), rows(6, 3)), 1e-6);
  save_weights(module, path("back.safetensors"));
  const Tensors back = io::load_safetensors(path("back.safetensors"));
  ASSERT_EQ(back.size(), state_dict().size());
  for (const auto& [name, value] : state_dict()) EXPECT_TENSOR_EQ(back.at(name), value);
}

TEST_F(LoadingWeights, ATorchModelsOwnFileGoesIntoAModule) {
  TorchModel<Net> model;
  model.load_weights(file(state_dict()));
  model.save_weights(path("model.weights.tutti"));
  nn::Module<Net> module;
  load_weights(module, path("model.weights.tutti"), {.by_name = true});
  EXPECT_TENSOR_EQ(module->fc2->weight, rows(2, 4));
}

TEST_F(LoadingWeights, HalfPrecisionBecomesTheModelsDtype) {
  Tensors half = state_dict();
  for (auto& [name, value] : half) {
    if (value.is_floating_point()) value = value.to(at::kBFloat16);
  }
  TorchModel<Net> model;
  model.load_weights(file(half));
  EXPECT_EQ(model->fc1->weight.scalar_type(), at::kFloat);
  EXPECT_TENSOR_EQ(model->fc1->weight, rows(4, 3).to(at::kBFloat16).to(at::kFloat));
}

TEST_F(LoadingWeights, AKerasModelTakesThoseOfItsNames) {
  Sequential model({Dense(4, {.name = "fc1", .input_shape = {3}}), Dense(2, {.name = "fc2"})});
  const Tensors tensors{{"fc1.kernel", rows(3, 4)},
                        {"fc2/kernel", rows(4, 2)},
                        {"fc1.bias", rows(1, 4)[0]},
                        {"fc2.bias", rows(1, 2)[0]}};
  model.load_weights(file(tensors));
  EXPECT_TENSOR_EQ(model.get_weights()[0], rows(3, 4));
  EXPECT_TENSOR_EQ(model.get_weights()[2], rows(4, 2));
}

TEST_F(LoadingWeights, WhatDoesNotFitIsNamedAndChangesNothing) {
  Tensors other = state_dict();
  other.erase("fc1.bias");
  other.erase("norm.num_batches_tracked");
  other.emplace("fc3.bias", at::ones({1}));
  other["fc2.weight"] = rows(3, 4);
  TorchModel<Net> model;
  const auto before = model.get_weights();
  EXPECT_TRUE(tutti::testing::throws_saying<InvalidArgument>(
      [&] { model.load_weights(file(other)); },
      {"missing in the file: fc1.bias, norm.num_batches_tracked", "in the file only: fc3.bias",
       "of other shapes: fc2.weight (3, 4) for (2, 4)", "nothing was changed"}));
  const auto after = model.get_weights();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TENSOR_EQ(after[i], before[i]);
}

TEST_F(LoadingWeights, LongListsAreShortened) {
  Tensors many;
  for (int i = 0; i < 40; ++i) many.emplace(cat("layer", i), at::ones({1}));
  TorchModel<Net> model;
  EXPECT_ERROR(model.load_weights(file(many)), InvalidArgument, "and 35 more");
}

TEST_F(LoadingWeights, SkipMismatchTakesWhatFits) {
  Tensors other = state_dict();
  other.erase("fc1.bias");
  other["fc2.weight"] = rows(3, 4);
  other.emplace("head.weight", at::ones({1}));
  TorchModel<Net> model;
  const Tensor bias = model->fc1->bias.clone(), weight = model->fc2->weight.clone();
  model.load_weights(file(other), {.skip_mismatch = true});
  EXPECT_TENSOR_EQ(model->fc1->weight, rows(4, 3));
  EXPECT_TENSOR_EQ(model->fc1->bias, bias);
  EXPECT_TENSOR_EQ(model->fc2->weight, weight);
}

std::unique_ptr<Sequential> classifier(int64_t classes, const std::string& head) {
  return std::make_unique<Sequential>(std::vector<layers::Layer>{
      Dense(4, {.name = "body", .input_shape = {3}}), Dense(classes, {.name = head})});
}

TEST_F(LoadingWeights, SkipMismatchLeavesANewHeadAlone) {
  const auto old = classifier(5, "head");
  old->save_weights(path("old.weights.tutti"));
  const auto other = classifier(7, "head");
  const Tensor head = other->get_weights()[2];
  EXPECT_ERROR(other->load_weights(path("old.weights.tutti")), InvalidArgument,
               "head/kernel (4, 5) for (4, 7)");
  other->load_weights(path("old.weights.tutti"), {.skip_mismatch = true});
  EXPECT_TENSOR_EQ(other->get_weights()[0], old->get_weights()[0]);
  EXPECT_TENSOR_EQ(other->get_weights()[2], head);

  Sequential longer({Dense(4, {.name = "body", .input_shape = {3}})});
  longer.load_weights(path("old.weights.tutti"), {.skip_mismatch = true});
  EXPECT_TENSOR_EQ(longer.get_weights()[0], old->get_weights()[0]);
}

TEST_F(LoadingWeights, ByNameTheOrderOfLayersDoesNotMatter) {
  const auto make = [](const std::string& first, const std::string& second) {
    return std::make_unique<Sequential>(std::vector<layers::Layer>{
        Dense(3, {.name = first, .input_shape = {3}}), Dense(3, {.name = second})});
  };
  const auto saved = make("a", "b");
  saved->save_weights(path("ab.weights.tutti"));
  auto turned = make("b", "a");
  turned->load_weights(path("ab.weights.tutti"), {.by_name = true});
  EXPECT_TENSOR_EQ(turned->get_weights()[0], saved->get_weights()[2]);
  turned->load_weights(path("ab.weights.tutti"));
  EXPECT_TENSOR_EQ(turned->get_weights()[0], saved->get_weights()[0]);
}

}  // namespace
}  // namespace tutti::keras
