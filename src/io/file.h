#pragma once
// Whole files, plain or gzip.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/file_system.h"

namespace tutti::io {

bool file_exists(const std::string& path);

/// A file's bytes from front to back, unpacked when it is gzip (told by its first bytes).
class FileStream {
 public:
  /// NotFound when it cannot be opened.
  explicit FileStream(const std::string& path);
  ~FileStream();
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;
  /// Reads `size` bytes, fewer only at the end. DataLoss when the packed stream is damaged or cut
  /// short, which the last byte does not tell yet: read on until there is none.
  std::size_t read(void* into, std::size_t size);

 private:
  std::string path_;
  void* file_;
};

/// The file's bytes, by a FileStream. `limit`: more bytes than this, packed or not, are DataLoss.
std::vector<uint8_t> read_file(const std::string& path, std::size_t limit);

/// Writes a temporary file beside `path`, flushes it to the disk, renames it, and flushes the
/// folder: whenever the process or the power ends, `path` is the old file or the whole new one, and
/// after the return the new one. What earlier writers of `path` that died left beside it is
/// removed. On an error (throw_file_error's) the file is as it was before, unless the message says
/// otherwise; what could not be flushed is not tried again.
void write_file_atomically(const std::string& path,
                           const std::vector<std::pair<const void*, std::size_t>>& parts,
                           FileSystem& files = posix_files());
/// What writers of `path` that have died left beside it; only what stands in the way of nothing.
void remove_leftovers(const std::string& path, FileSystem& files = posix_files());

}  // namespace tutti::io
