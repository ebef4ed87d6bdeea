#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
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

}  // namespace

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

FileStream::FileStream(const std::string& path)
    : path_(path), file_(gzopen(path.c_str(), "rb")) {  // zlib reads plain files as they are
  if (file_ == nullptr)
    throw NotFound(cat("read [", path, "]: ", std::strerror(errno), ", expected a readable file"));
  gzbuffer(static_cast<gzFile>(file_), 1 << 18);
}

FileStream::~FileStream() { gzclose(static_cast<gzFile>(file_)); }

std::size_t FileStream::read(void* into, std::size_t size) {
  auto* const file = static_cast<gzFile>(file_);
  std::size_t have = 0;
  while (have < size) {
    const auto part = static_cast<unsigned>(std::min<std::size_t>(size - have, 1 << 20));
    const int got = gzread(file, static_cast<char*>(into) + have, part);
    int status = Z_OK;
    const char* message = gzerror(file, &status);
    if (got < 0 || status == Z_BUF_ERROR || status == Z_DATA_ERROR) {
      throw DataLoss(cat("read [", path_,
                         "]: ", status == Z_BUF_ERROR ? "the packed data end early" : message,
                         ", expected whole gzip data; get the file again"));
    }
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

std::vector<uint8_t> read_file(const std::string& path, std::size_t limit) {
  FileStream file(path);
  std::vector<uint8_t> bytes;
  for (constexpr std::size_t kPart = 1 << 20;;) {
    const std::size_t have = bytes.size();
    bytes.resize(have + kPart);
    bytes.resize(have + file.read(bytes.data() + have, kPart));
    if (bytes.size() > limit)
      throw DataLoss(cat("read [", path, "]: more than ", limit,
                         " bytes, expected at most that; is it the right file?"));
    if (bytes.size() < have + kPart) break;
  }
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
