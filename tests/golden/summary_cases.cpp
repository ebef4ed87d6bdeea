// formats.json, summary/*: the table of a Sequential, letter by letter.

#include <sstream>

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

namespace layers = keras::layers;

/// The models that were printed; the case lists their layers by name and class.
std::vector<layers::Layer> layers_of(const std::string& model) {
  if (model == "mlp") {
    return {layers::Input({4}), layers::Dense(8, {.activation = "relu"}), layers::Dense(3)};
  }
  if (model == "cnn") {
    return {layers::Input({28, 28, 1}),
            layers::Conv2D(32, 3, {.activation = "relu"}),
            layers::BatchNormalization(),
            layers::MaxPooling2D(),
            layers::Dropout(.25),
            layers::Flatten(),
            layers::Dense(64),
            layers::Dense(10)};
  }
  throw Unknown{cat("model ", model)};
}

}  // namespace

void run_summary_case(const GoldenFile&, const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  keras::clear_session();
  keras::Sequential model(layers_of(inputs.at("model")));
  std::size_t at = 0;
  for (const layers::Layer& layer : model.layers()) {
    if (layer->class_name() == "InputLayer") continue;
    const Json& listed = inputs.at("layers").at(at++);
    if (layer->name() != listed.at("name") || layer->class_name() != listed.at("class"))
      verdict.fail(cat("layer ", layer->name(), " (", layer->class_name(), ")"));
  }
  verdict.equal("layers", static_cast<int64_t>(at),
                static_cast<int64_t>(inputs.at("layers").size()));
  std::ostringstream text;
  model.summary(text);
  if (text.str() != entry.at("expected").at("text").get<std::string>())
    verdict.fail(cat("text:\n", text.str()));
  verdict.equal("parameters", model.count_params(), entry.at("expected").at("count_params"));
}

}  // namespace tutti::golden
