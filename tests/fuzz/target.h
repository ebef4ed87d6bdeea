#pragma once
// What a fuzz target is: a function that a reader's bytes go through. Any Error is a clean end;
// anything else is found.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti::fuzz {

/// The bytes as a file that only memory holds, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : handle_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (handle_ < 0) std::abort();
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t written = write(handle_, bytes.data() + at, bytes.size() - at);
      if (written <= 0) std::abort();
      at += static_cast<std::size_t>(written);
    }
  }
  ~MemoryFile() { close(handle_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(handle_); }

 private:
  int handle_;
};

/// Reads `bytes`; defined once in each target.
void read_input(std::string_view bytes);

}  // namespace tutti::fuzz
