#pragma once
// Tensor files in other places than a path of the disk.

#include <cstdint>
#include <string>
#include <string_view>

#include "io/file_system.h"
#include "tutti/io/tensor_file.h"

namespace tutti::io {

void write_tensor_file(const std::string& path, const TensorFile& file, FileSystem& files);
/// The bytes that write_tensor_file would write; and back, errors naming `where`.
std::string tensor_bytes(const TensorFile& file);
TensorFile read_tensor_bytes(const std::string& where, std::string_view bytes);
/// `digest`: equal for files of equal bytes; of a file with checksums, of all of it.
TensorFile read_tensor_file(const std::string& path, uint32_t& digest);

}  // namespace tutti::io
