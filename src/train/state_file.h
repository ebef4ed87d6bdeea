#pragma once
// Nests of tensors and strings as files.

#include <cstdint>
#include <string>
#include <string_view>

#include "io/file_system.h"
#include "tutti/tensor/nest.h"

namespace tutti::train {

/// Writes `state` to a safetensors file; a leaf's name is its path, joined by slashes. Strings
/// stand in it as their bytes and lengths. `about` is kept beside it: any text.
void write_state(const std::string& path, const Nest& state, const std::string& about,
                 io::FileSystem& files = io::posix_files());

struct StateFile {
  Nest state;
  std::string about;
  uint32_t digest = 0;  ///< the same for files of the same bytes only
};
/// What write_state wrote. NotFound, DataLoss, or InvalidArgument for a file of another kind.
StateFile read_state(const std::string& path);

/// The same as bytes. Errors name `where`.
std::string state_bytes(const Nest& state);
Nest state_in(const std::string& where, std::string_view bytes);

}  // namespace tutti::train
