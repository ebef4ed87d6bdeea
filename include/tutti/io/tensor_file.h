#pragma once
// The file format of models and weights: a JSON text and named tensors, checksummed.
// docs/formats.md has the bytes.

#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::io {

struct TensorFile {
  std::string metadata;                                 ///< JSON object text
  std::vector<std::pair<std::string, Tensor>> tensors;  ///< names may repeat; order is kept
};

/// Writes to a temporary file beside `path`, flushes it to the disk and renames it: `path` is
/// either the old file or the whole new one. Throws NotFound or ResourceExhausted with the system's
/// reason.
void write_tensor_file(const std::string& path, const TensorFile& file);

/// Checks every size before memory is taken for it, and every checksum. NotFound when there is no
/// file; DataLoss when it is damaged or cut short; InvalidArgument when it is of another kind or a
/// later version.
TensorFile read_tensor_file(const std::string& path);

}  // namespace tutti::io
