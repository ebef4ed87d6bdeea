// layers.json: what every layer gives out, and the gradients of sum(output * upstream).

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using keras::layers::CallArguments;
using keras::layers::Layer;
using keras::layers::Shape;

/// The layer of a case; arguments of the call stand beside those of the class.
Layer layer_of(const Json& inputs) {
  Json config = inputs.at("args");
  if (inputs.contains("call")) config.update(inputs.at("call"));
  try {
    return keras::layers::layer_from_config(inputs.at("class"), config.dump());
  } catch (const Unimplemented&) {
    throw Unknown{cat("layer ", inputs.at("class").get<std::string>())};
  }
}

/// The weight that the file calls `key` ("kernel", "lstm_cell/kernel"): by its whole path below the
/// layer, else by its last word where that is one weight's alone.
std::optional<Variable> weight_of(const std::vector<Variable>& weights, const std::string& key) {
  auto ends_with = [&](const std::string& tail) {
    std::vector<Variable> found;
    for (const Variable& weight : weights) {
      const std::string name = "/" + weight.name();
      if (name.size() > tail.size() &&
          name.compare(name.size() - tail.size() - 1, std::string::npos, "/" + tail) == 0)
        found.push_back(weight);
    }
    return found;
  };
  for (const std::string& tail : {key, key.substr(key.rfind('/') + 1)}) {
    const std::vector<Variable> found = ends_with(tail);
    if (found.size() == 1) return found[0];
  }
  return std::nullopt;
}

void build(const Layer& layer, const std::vector<at::Tensor>& x) {
  std::vector<Shape> shapes;
  for (const at::Tensor& input : x) {
    shapes.push_back(input.sizes().vec());
    shapes.back()[0] = -1;
  }
  layer->build_for(shapes);
}

void set_weights(const GoldenFile& file, const Layer& layer, const Json& weights,
                 Verdict& verdict) {
  const std::vector<Variable> own = layer->weights();
  if (own.size() != weights.size())
    verdict.fail(cat(own.size(), " weights, expected ", weights.size()));
  for (const auto& [key, value] : weights.items()) {
    std::optional<Variable> weight = weight_of(own, key);
    if (!weight) {
      verdict.fail(cat("no weight ", key));
    } else {
      weight->assign(file.tensor(value));
    }
  }
}

struct Gradients {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> x;        ///< undefined for inputs that are no floats
  std::vector<at::Tensor> weights;  ///< of trainable_weights()
};

Gradients run(const Layer& layer, std::vector<at::Tensor> x,
              const std::vector<at::Tensor>& upstream, bool training) {
  GradientTape tape({.persistent = true});
  std::vector<at::Tensor> watched;
  for (at::Tensor& input : x) {
    if (!input.is_floating_point()) continue;
    tape.watch(input);
    watched.push_back(input);
  }
  Gradients found;
  found.outputs = (*layer)(x, CallArguments{training});
  at::Tensor target;
  for (std::size_t i = 0; i < found.outputs.size() && i < upstream.size(); ++i) {
    const at::Tensor part = (found.outputs[i] * upstream[i]).sum();
    target = target.defined() ? target + part : part;
  }
  const std::vector<Variable> weights = layer->trainable_weights();
  if (!weights.empty()) found.weights = tape.gradient(target, weights);
  if (!watched.empty()) found.x = tape.gradient(target, watched);
  return found;
}

void compare(const GoldenFile& file, const std::string& what, const at::Tensor& found,
             const Json& expected, Verdict& verdict) {
  if (expected.is_null()) {
    if (found.defined() && at::any(found != 0).item<bool>())
      verdict.fail(cat(what, ": a gradient, expected none"));
  } else if (!found.defined()) {
    verdict.fail(cat(what, ": none, expected a tensor"));
  } else {
    verdict.close(what, found.is_sparse() ? found.to_dense() : found, file.tensor(expected));
  }
}

void compare_weights(const GoldenFile& file, const Layer& layer, const Gradients& found,
                     const Json& expected, Verdict& verdict) {
  const std::vector<Variable> weights = layer->trainable_weights();
  for (const auto& [key, value] : expected.items()) {
    const std::optional<Variable> weight = weight_of(weights, key);
    bool seen = false;
    for (std::size_t i = 0; weight && i < weights.size(); ++i) {
      if (!weights[i].is_same(*weight)) continue;
      seen = true;
      compare(file, cat("gradient of ", key), found.weights[i], value, verdict);
    }
    if (!seen) verdict.fail(cat("no trainable weight ", key));
  }
}

/// BatchNormalization: two steps of training, then inference of the first input.
void run_statistics_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json &inputs = entry.at("inputs"), &expected = entry.at("expected");
  const std::vector<at::Tensor> steps = file.tensors(inputs.at("x_steps"));
  const at::Tensor upstream = file.tensor(inputs.at("upstream"));
  const Layer layer = layer_of(inputs);
  build(layer, {steps[0]});
  set_weights(file, layer, inputs.at("weights"), verdict);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Json& wanted = expected.at("training_steps").at(i);
    const Gradients found = run(layer, {steps[i]}, {upstream}, /*training=*/true);
    const std::string step = cat("step ", i, " ");
    compare(file, step + "output", found.outputs[0], wanted.at("output"), verdict);
    compare(file, step + "gradient of x", found.x[0], wanted.at("grad_x"), verdict);
    compare_weights(file, layer, found, wanted.at("grad_weights"), verdict);
    for (const char* name : {"moving_mean", "moving_variance"}) {
      compare(file, step + name, weight_of(layer->weights(), name)->read_value(), wanted.at(name),
              verdict);
    }
  }
  compare(file, "inference", layer(steps[0]), expected.at("inference_of_first_x"), verdict);
}

}  // namespace

void run_layer_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json &inputs = entry.at("inputs"), &expected = entry.at("expected");
  if (inputs.contains("x_steps")) return run_statistics_case(file, entry, verdict);
  const std::vector<at::Tensor> x = file.tensors(inputs.at("x"));
  const Layer layer = layer_of(inputs);
  build(layer, x);
  set_weights(file, layer, inputs.at("weights"), verdict);
  const Gradients found = run(layer, x, file.tensors(inputs.at("upstream")), /*training=*/false);
  const Json& outputs = expected.at("output");
  if (found.outputs.size() != outputs.size())
    return verdict.fail(cat(found.outputs.size(), " outputs, expected ", outputs.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    compare(file, cat("output ", i), found.outputs[i], outputs[i], verdict);
  const Json& grad_x = expected.at("grad_x");
  for (std::size_t i = 0; i < grad_x.size(); ++i)
    compare(file, cat("gradient of x ", i), i < found.x.size() ? found.x[i] : at::Tensor(),
            grad_x[i], verdict);
  compare_weights(file, layer, found, expected.at("grad_weights"), verdict);
}

}  // namespace tutti::golden
