#pragma once
// Nests of tensors and strings as files.

#include <string>

#include "tutti/tensor/nest.h"

namespace tutti::train {

/// Writes `state` to a safetensors file; a leaf's name is its path, joined by slashes. Strings
/// stand in it as their bytes and lengths. `about` is kept beside it: any text.
void write_state(const std::string& path, const Nest& state, const std::string& about);

struct StateFile {
  Nest state;
  std::string about;
};
/// What write_state wrote. NotFound, DataLoss, or InvalidArgument for a file of another kind.
StateFile read_state(const std::string& path);

}  // namespace tutti::train
