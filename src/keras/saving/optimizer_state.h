#pragma once
// The parts of a model's file that other files have too.

#include <optional>
#include <string>

#include "keras/json.h"
#include "tutti/io/tensor_file.h"
#include "tutti/keras/model.h"

namespace tutti::keras {

/// `weights/…` of the file to the model. InvalidArgument when they are those of another model;
/// nothing is changed then.
void take_weights(Model& model, const io::TensorFile& file, const std::string& path);

/// What an optimizer knows besides its configuration: counts and names as JSON, slots and
/// accumulated gradients as tensors of `file`. The model is compiled.
Json put_optimizer(const Model& model, io::TensorFile& file);
/// The same back into the optimizer of a built model. DataLoss when it does not fit.
void take_optimizer(Model& model, const Json& json, const io::TensorFile& file,
                    const std::string& path);

/// Nothing for an optimizer of several rates.
std::optional<double> learning_rate_of(const optimizers::Optimizer& optimizer);

}  // namespace tutti::keras
