#pragma once
// Models: layers together, with the training loop of Keras.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tutti/keras/custom_objects.h"
#include "tutti/keras/functional.h"
#include "tutti/keras/model_base.h"
#include "tutti/keras/sequential.h"

namespace tutti::keras {

struct LoadModelOptions {
  CustomObjects custom_objects = {};
  /// False: architecture and weights only, for a model whose loss or metrics are the user's own.
  bool compile = true;
  /// Larger files are InvalidArgument before anything of them is read.
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};
/// The model that Model::save wrote, under the current strategy, built, compiled if it was: fit
/// goes on as if there had been no interruption. A Sequential comes back as one, any other as a
/// Functional. Nothing of the file is executed, and no weight is larger than the largest in it.
/// NotFound, InvalidArgument or DataLoss says what is wrong with the file; Unimplemented names a
/// layer class that is neither Tutti's nor among the custom_objects.
std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options = {});

/// The model that Model::to_json described, under the current strategy, with new weights and not
/// compiled; built, if that one was. Errors as load_model's.
std::unique_ptr<Model> model_from_json(const std::string& json,
                                       const CustomObjects& custom_objects = {});

}  // namespace tutti::keras
