#pragma once

#include "tutti/base/function_ref.h"
#include "tutti/keras/model_base.h"

namespace tutti::keras {

/// Weights belong to the model's strategy, wherever the model is built from. FailedPrecondition
/// under another strategy.
void in_strategy_of(const Model& model, FunctionRef<void()> make_weights);

}  // namespace tutti::keras
