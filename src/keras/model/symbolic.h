#pragma once
// What a layer's call with symbolic tensors leaves behind.

#include <vector>

#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

/// A node of the graph: it owns its layer and, through its inputs, all that leads to it. The first
/// one of an Input has no inputs.
struct SymbolicCall {
  std::shared_ptr<LayerImpl> layer;
  std::vector<KerasTensor> inputs;
  std::vector<Shape> shapes;  ///< of the outputs, batch dimension included
  at::ScalarType dtype;
  int64_t place;  ///< among the layer's symbolic calls
};

}  // namespace tutti::keras::layers
