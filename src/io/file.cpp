#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};

}  // namespace

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::vector<uint8_t> read_file(const std::string& path, std::size_t limit) {
  // zlib reads plain files as they are.
  std::unique_ptr<std::remove_pointer_t<gzFile>, CloseGzip> file(gzopen(path.c_str(), "rb"));
  if (!file)
    throw NotFound(cat("read [", path, "]: ", std::strerror(errno), ", expected a readable file"));
  gzbuffer(file.get(), 1 << 18);
  std::vector<uint8_t> bytes;
  for (;;) {
    const std::size_t have = bytes.size();
    if (have > limit)
      throw DataLoss(cat("read [", path, "]: more than ", limit,
                         " bytes, expected at most that; is it the right file?"));
    bytes.resize(have + (1 << 20));
    const int got = gzread(file.get(), bytes.data() + have, 1 << 20);
    int status = Z_OK;
    const char* message = gzerror(file.get(), &status);
    if (got < 0 || status == Z_BUF_ERROR || status == Z_DATA_ERROR) {
      throw DataLoss(cat("read [", path,
                         "]: ", status == Z_BUF_ERROR ? "the packed data end early" : message,
                         ", expected whole gzip data; get the file again"));
    }
    bytes.resize(have + static_cast<std::size_t>(got));
    if (got == 0) break;
  }
  if (bytes.size() > limit)
    throw DataLoss(cat("read [", path, "]: ", bytes.size(), " bytes, expected at most ", limit));
  return bytes;
}

void write_file_atomically(const std::string& path,
                           const std::vector<std::pair<const void*, std::size_t>>& parts) {
  const std::string temporary = cat(path, ".tmp.", getpid());
  auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    const bool full = errno == ENOSPC;
    std::remove(temporary.c_str());
    const std::string message =
        cat("write [", path, "]: ", what, ": ", reason, "; the file is as it was before");
    if (full) throw ResourceExhausted(message);
    throw NotFound(message);
  };
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(temporary.c_str(), "wb"));
  if (!file) fail("cannot open a temporary file beside it");
  for (const auto& [data, size] : parts) {
    if (size > 0 && std::fwrite(data, 1, size, file.get()) != size) fail("cannot write");
  }
  if (std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0)
    fail("cannot flush to the disk");
  file.reset();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot rename the temporary file");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int handle = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (handle >= 0) {
    fsync(handle);
    close(handle);
  }
}

}  // namespace tutti::io
