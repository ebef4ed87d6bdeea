#include "io/file.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {

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

namespace {

constexpr char kTemporary[] = ".tmp.";
constexpr std::size_t kWritten = 1 << 20;  // bytes at once: what is smaller is put together

/// Bytes into an open file, small parts together.
class Gathered {
 public:
  Gathered(FileSystem& files, int file) : files_(files), file_(file) {}
  int add(const void* data, std::size_t size) {
    if (size == 0) return 0;
    const auto* bytes = static_cast<const char*>(data);
    if (size < kWritten) {
      buffer_.insert(buffer_.end(), bytes, bytes + size);
      return buffer_.size() < kWritten ? 0 : flush();
    }
    const int code = flush();
    return code != 0 ? code : files_.write(file_, data, size);
  }
  int flush() {
    if (buffer_.empty()) return 0;
    const int code = files_.write(file_, buffer_.data(), buffer_.size());
    buffer_.clear();
    return code;
  }

 private:
  FileSystem& files_;
  int file_;
  std::vector<char> buffer_;
};

int write_parts(const std::vector<std::pair<const void*, std::size_t>>& parts, int file,
                FileSystem& files) {
  Gathered gathered(files, file);
  for (const auto& [data, size] : parts) {
    if (const int code = gathered.add(data, size); code != 0) return code;
  }
  return gathered.flush();
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

void remove_leftovers(const std::string& path, FileSystem& files) {
  const std::string begin = std::filesystem::path(path).filename().string() + kTemporary;
  std::error_code failed;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator at(folder_of(path), failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename().string();
    const bool number = name.size() > begin.size() && name.rfind(begin, 0) == 0 &&
                        name.find_first_not_of("0123456789", begin.size()) == std::string::npos;
    if (number) found.push_back(at->path().string());
  }
  for (const std::string& leftover : found) files.remove_leftover(leftover);
}

void write_file_atomically(const std::string& path,
                           const std::vector<std::pair<const void*, std::size_t>>& parts,
                           FileSystem& files) {
  const std::string temporary = cat(path, kTemporary, getpid());
  int file = -1;
  const auto check = [&](int code, const char* what) {
    if (code == 0) return;
    if (file >= 0) files.close(file);
    files.remove(temporary);
    throw_file_error(code, cat("write [", path, "]: ", what, ": ", std::strerror(code),
                               "; the file is as it was before"));
  };
  remove_leftovers(path, files);
  check(files.create(temporary, file), "cannot open a temporary file beside it");
  check(write_parts(parts, file, files), "cannot write");
  check(files.sync(file), "cannot flush to the disk");
  // Before it is closed: nobody may take it for a leftover meanwhile.
  check(files.rename(temporary, path), "cannot rename the temporary file");
  files.close(file);
  if (const int code = files.sync_folder(folder_of(path)); code != 0) {
    throw_file_error(
        code, cat("write [", path, "]: cannot flush its folder to the disk: ", std::strerror(code),
                  "; the new file is there, but a power failure may bring the old one "
                  "back"));
  }
}

}  // namespace tutti::io
