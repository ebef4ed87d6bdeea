#pragma once
// What reads and writes the private parts of models.

#include <memory>
#include <string>

#include "keras/json.h"
#include "keras/layers/config.h"
#include "keras/model/model_body.h"
#include "tutti/io/tensor_file.h"
#include "tutti/keras/model.h"

namespace tutti::keras {

/// {"class_name", "config"}. InvalidArgument when a class of the user's own gives a configuration
/// that is no JSON object.
template <class Part>
Json described(const Part& part) {
  Json config = Json::parse(part.config(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    throw InvalidArgument(cat("save [", part.class_name(), "]: a configuration ", part.config(),
                              ", expected the text of a JSON object"));
  return {{"class_name", part.class_name()}, {"config", std::move(config)}};
}

struct ModelFile {
  /// What compile was given, and what the optimizer knows besides its configuration.
  static Json compiled_part(const Model& model);
  static void restore_compiled(Model& model, const Json& json, const io::TensorFile& file,
                               const std::string& path, const CustomObjects& custom_objects);
  static Json optimizer_part(const Model& model);
  static void put_slots(const Model& model, io::TensorFile& file);
  static void restore_optimizer(Model& model, const Json& json, const io::TensorFile& file,
                                const std::string& path);

  /// The architecture. Unimplemented for a model of a class of the user's own.
  static Json architecture(const Model& model);
  /// Built, with new weights.
  static std::unique_ptr<Model> model_from(const Json& json, const std::string& path,
                                           const layers::LayerLimits& limits);

 private:
  static std::unique_ptr<Model> sequential_from(const Json& json, const std::string& path,
                                                const layers::LayerLimits& limits);
  static std::unique_ptr<Model> functional_from(const Json& json, const std::string& path,
                                                const layers::LayerLimits& limits);
};

}  // namespace tutti::keras
