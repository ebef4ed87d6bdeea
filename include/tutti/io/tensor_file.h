#pragma once
// The file format of models and weights: safetensors, with a JSON text and checksums in its
// metadata. docs/formats.md has the bytes.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::io {

struct TensorFile {
  /// JSON object text; empty in a safetensors file that another program wrote.
  std::string metadata;
  /// Order is kept. A name that repeats is written, and read, with a number behind it: `w`, `w#2`.
  std::vector<std::pair<std::string, Tensor>> tensors;
};

/// Writes to a temporary file beside `path`, flushes it to the disk and renames it: `path` is
/// either the old file or the whole new one. Throws NotFound or ResourceExhausted with the system's
/// reason.
void write_tensor_file(const std::string& path, const TensorFile& file);

/// Any safetensors file. Checks every size before memory is taken for it, and every checksum (files
/// of other programs have none). NotFound when there is no file; DataLoss when it is damaged or cut
/// short; InvalidArgument when it is of another kind or a later version; Unimplemented for a dtype
/// that LibTorch has not.
TensorFile read_tensor_file(const std::string& path);

/// The tensors of any safetensors file by name, and the way back: what Python's
/// `safetensors.torch.load_file` and `save_file` do. Errors are those above.
std::map<std::string, Tensor> load_safetensors(const std::string& path);
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors);

}  // namespace tutti::io
