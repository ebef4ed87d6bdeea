#pragma once
// Models: layers together, with the training loop of Keras.

#include <memory>
#include <string>

#include "tutti/keras/functional.h"
#include "tutti/keras/model_base.h"
#include "tutti/keras/sequential.h"

namespace tutti::keras {

struct LoadModelOptions {
  /// False: architecture and weights only, for a model whose loss or metrics are the user's own.
  bool compile = true;
};
/// The model that Model::save wrote, under the current strategy, built, compiled if it was: fit
/// goes on as if there had been no interruption. NotFound, InvalidArgument or DataLoss says what is
/// wrong with the file.
std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options = {});

}  // namespace tutti::keras
