#include "tutti/keras/torch_model.h"

namespace tutti::keras::internal {

void refuse_inputs(const Model& model, std::size_t inputs) {
  throw InvalidArgument(cat("TorchModel [", model.name(), "]: ", inputs,
                            " inputs, expected as many as the module's forward takes"));
}

}  // namespace tutti::keras::internal
