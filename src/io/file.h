#pragma once
// Whole files, plain or gzip.

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::io {

bool file_exists(const std::string& path);

/// The file's bytes, unpacked when it is gzip (told by its first bytes). `limit`: more bytes than
/// this, packed or not, are DataLoss. NotFound when it cannot be opened; DataLoss when the packed
/// stream is damaged or cut short.
std::vector<uint8_t> read_file(const std::string& path, std::size_t limit);

/// Writes a temporary file beside `path`, flushes it to the disk, renames it.
void write_file_atomically(const std::string& path,
                           const std::vector<std::pair<const void*, std::size_t>>& parts);

}  // namespace tutti::io
