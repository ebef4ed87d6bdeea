// Layers beside Keras': the numbers of keras_layers.json (written by keras_layers.py), and of the
// golden file for the layers whose gradients it has.

#include <filesystem>
#include <fstream>

#include "keras/json.h"
#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

namespace fs = std::filesystem;

Json read_cases(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file).at("cases");
}
fs::path beside(const char* file) { return fs::path(__FILE__).parent_path() / file; }

double number(const Json& value) { return value.is_string() ? NAN : value.get<double>(); }

Tensor tensor(const Json& json) {
  if (json.is_null()) return {};
  if (json.contains("wave")) return wave(json["wave"].get<Shape>(), json["from"].get<double>());
  std::vector<double> data;
  for (const Json& value : json.at("data")) data.push_back(number(value));
  const auto dtype = json.at("dtype").get<std::string>();
  const at::ScalarType type = dtype == "float32" ? at::kFloat
                              : dtype == "bool"  ? at::kBool
                              : dtype == "uint8" ? at::kByte
                              : dtype == "int32" ? at::kInt
                                                 : at::kLong;
  return at::tensor(data, at::kDouble).to(type).reshape(json.at("shape").get<Shape>());
}
StringTensor strings(const Json& json) {
  return {json.at("data").get<std::vector<std::string>>(), json.at("shape").get<Shape>()};
}
bool is_strings(const Json& json) { return json.contains("dtype") && json["dtype"] == "string"; }

std::vector<Tensor> tensors(const Json& list) {
  std::vector<Tensor> all;
  for (const Json& item : list) all.push_back(tensor(item));
  return all;
}

/// Numbers agree; "counts" of Keras are integers where Tutti's are floats.
void expect_outputs(const std::vector<Tensor>& found, const Json& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(testing::tensors_near(found[i], tensor(expected[i]), 1e-5, 2e-6)) << "output " << i;
}

void set_weights(const Layer& layer, const Json& entry) {
  std::vector<Variable> weights = layer->weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i].assign(entry.contains("weights")
                          ? tensor(entry["weights"][i])
                          : wave(weights[i].sizes().vec(), .3 + static_cast<double>(i)) * .5);
  }
}

data::Dataset<Nest> batches(const Json& list) {
  auto all = std::make_shared<std::vector<Tensor>>(tensors(list));
  return data::from_generator<Nest>([all] {
    return [all, next = std::size_t{0}]() mutable -> std::optional<Nest> {
      if (next == all->size()) return std::nullopt;
      return Nest((*all)[next++]);
    };
  });
}

/// Keras' adapt and vocabularies, then one call on strings or on integers.
void run_words(const Json& entry, const Layer& layer) {
  const Json& data = entry["adapt"];
  const Json& asked = entry["inputs"][0];
  const std::string kind = layer->class_name();
  std::vector<Tensor> outputs;
  if (kind == "StringLookup") {
    const StringLookup words(layer);
    if (!data.is_null()) words.adapt(strings(data[0]));
    EXPECT_EQ(words.get_vocabulary(), entry["vocabulary"].get<std::vector<std::string>>());
    if (!is_strings(asked)) {
      EXPECT_EQ(words(tensor(asked)), strings(entry["outputs"][0]));
      return;
    }
    outputs = {words(strings(asked))};
  } else if (kind == "TextVectorization") {
    const TextVectorization words(layer);
    if (!data.is_null()) words.adapt(strings(data[0]));
    EXPECT_EQ(words.get_vocabulary(), entry["vocabulary"].get<std::vector<std::string>>());
    outputs = {words(strings(asked))};
  } else if (kind == "IntegerLookup") {
    const IntegerLookup words(layer);
    if (!data.is_null()) words.adapt(tensor(data[0]));
    EXPECT_EQ(words.get_vocabulary(), entry["vocabulary"].get<std::vector<int64_t>>());
    outputs = {layer(tensor(asked))};
  } else if (kind == "HashedCrossing") {
    std::vector<Nest> features;
    for (const Json& input : entry["inputs"])
      features.push_back(is_strings(input) ? Nest(strings(input)) : Nest(tensor(input)));
    outputs = {HashedCrossing(layer)(Nest::tuple(features))};
  } else {
    const Hashing hashing(layer);
    outputs = {is_strings(asked) ? hashing(strings(asked)) : hashing(tensor(asked))};
  }
  expect_outputs(outputs, entry["outputs"]);
}

void run_numbers(const Json& entry, const Layer& layer) {
  const std::vector<Tensor> inputs = tensors(entry["inputs"]);
  if (entry.contains("adapt")) {
    if (layer->class_name() == "Normalization") {
      Normalization(layer).adapt(batches(entry["adapt"]));
    } else {
      const Discretization bins(layer);
      bins.adapt(batches(entry["adapt"]));
      const auto expected = entry["boundaries"].get<std::vector<double>>();
      const auto found = bins.bin_boundaries();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
    }
  } else {
    std::vector<Shape> shapes;
    for (const Tensor& input : inputs) shapes.push_back(input.sizes().vec());
    layer->build_for(shapes);
    set_weights(layer, entry);
  }
  CallArguments arguments;
  arguments.training = entry.contains("training");
  if (entry.contains("masks")) arguments.masks = tensors(entry["masks"]);
  expect_outputs((*layer)(inputs, arguments), entry["outputs"]);
  if (!entry.contains("after")) return;
  const std::vector<Variable> weights = layer->weights();
  std::vector<Tensor> after;
  for (const Variable& weight : weights) after.push_back(weight.read_value());
  expect_outputs(after, entry["after"]);
}

struct Case {
  Json entry;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.entry["name"]; }
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name;
  for (char c : info.param.entry["name"].get<std::string>()) name += std::isalnum(c) ? c : '_';
  return cat(info.index, "_", name);
}
std::vector<Case> cases_of(const Json& entries) {
  std::vector<Case> cases;
  for (const Json& entry : entries) cases.push_back({entry});
  return cases;
}

// ---- keras_layers.json

class KerasLayers : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, KerasLayers,
                         ::testing::ValuesIn(cases_of(read_cases(beside("keras_layers.json")))),
                         name_of);

TEST_P(KerasLayers, GiveItsNumbers) {
  const Json& entry = GetParam().entry;
  const Layer layer = layer_from_config(entry["class"].get<std::string>(), entry["config"].dump());
  const std::string kind = layer->class_name();
  const bool words = kind == "StringLookup" || kind == "IntegerLookup" || kind == "Hashing" ||
                     kind == "HashedCrossing" || kind == "TextVectorization";
  words ? run_words(entry, layer) : run_numbers(entry, layer);
}

TEST_P(KerasLayers, AreMadeAgainFromTheirConfig) {
  const Json& entry = GetParam().entry;
  const Layer layer = layer_from_config(entry["class"].get<std::string>(), entry["config"].dump());
  layer->set_trainable(false);
  const Layer again = layer_from_config(layer->class_name(), layer->config());
  EXPECT_EQ(again->class_name(), layer->class_name());
  EXPECT_EQ(again->config(), layer->config());
  EXPECT_FALSE(again->trainable());
}

/// Inputs of no rows give outputs of no rows.
TEST_P(KerasLayers, TakeEmptyBatches) {
  const Json& entry = GetParam().entry;
  const Json& all = entry["inputs"];
  if (std::any_of(all.begin(), all.end(), is_strings) || entry.contains("vocabulary") ||
      entry.contains("adapt"))
    return;
  const Layer layer = layer_from_config(entry["class"].get<std::string>(), entry["config"].dump());
  std::vector<Tensor> inputs;
  for (const Tensor& input : tensors(entry["inputs"])) {
    if (input.dim() < 2) return;
    inputs.push_back(input.narrow(0, 0, 0));
  }
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.sizes().vec());
  CallArguments arguments;
  arguments.training = true;
  const std::vector<Tensor> outputs = (*layer)(inputs, arguments);
  const std::vector<Shape> expected = layer->compute_output_shapes(shapes);
  ASSERT_EQ(outputs.size(), expected.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i].sizes().vec(), expected[i]);
}

// ---- the golden file

std::vector<Case> golden_cases() {
  std::vector<Case> cases;
  for (const Json& entry : read_cases(beside("../golden/data/layers.json"))) {
    const auto kind = entry["inputs"]["class"].get<std::string>();
    for (const char* known : {"Embedding", "SimpleRNN", "LSTM", "GRU", "MultiHeadAttention"}) {
      if (kind == known) cases.push_back({entry});
    }
  }
  return cases;
}

class GoldenLayers : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, GoldenLayers, ::testing::ValuesIn(golden_cases()), name_of);

TEST_P(GoldenLayers, GiveKerasOutputsAndGradients) {
  const Json& given = GetParam().entry["inputs"];
  const Json& expected = GetParam().entry["expected"];
  Json config = given["args"];
  if (given.contains("call")) config.update(given["call"]);
  const Layer layer = layer_from_config(given["class"].get<std::string>(), config.dump());
  std::vector<Tensor> inputs = tensors(given["x"]);
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.sizes().vec());
  layer->build_for(shapes);
  std::vector<Variable> weights = layer->weights();
  const auto json_name = [&](const Variable& weight) {
    return weight.name().substr(layer->name().size() + 1);
  };
  ASSERT_EQ(weights.size(), given["weights"].size());
  for (Variable& weight : weights) weight.assign(tensor(given["weights"].at(json_name(weight))));
  GradientTape tape({.persistent = true});
  for (Tensor& input : inputs) {
    if (input.is_floating_point()) tape.watch(input);
  }
  const std::vector<Tensor> outputs = (*layer)(inputs, {});
  expect_outputs(outputs, expected["output"]);
  const Tensor target = (outputs[0] * tensor(given["upstream"][0])).sum();
  for (const Variable& weight : weights) {
    Tensor gradient = tape.gradient(target, weight);
    if (gradient.is_sparse()) gradient = gradient.to_dense();
    EXPECT_TRUE(testing::tensors_near(
        gradient, tensor(expected["grad_weights"].at(json_name(weight))), 1e-5, 1e-6))
        << weight.name();
  }
  for (std::size_t i = 0; i < expected["grad_x"].size(); ++i) {
    EXPECT_TRUE(testing::tensors_near(tape.gradient(target, inputs[i]),
                                      tensor(expected["grad_x"][i]), 1e-5, 1e-6))
        << "input " << i;
  }
}

}  // namespace
}  // namespace tutti::keras::layers
