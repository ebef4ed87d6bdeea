#include "io/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {

int result_of(int returned) { return returned == 0 ? 0 : errno; }

/// Whether the name still leads to the open file.
bool is_the_file(int file, const std::string& path) {
  struct stat opened = {}, named = {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

int lock_waiting(int file) {
  int returned = 0;
  do {
    returned = flock(file, LOCK_EX);
  } while (returned != 0 && errno == EINTR);
  return returned;
}

}  // namespace

int FileSystem::create(const std::string& path, int& file) {
  for (;;) {
    file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return errno;
    // Who is just removing it as a leftover has the lock, for a moment; without locks nobody is.
    // It is emptied under the lock alone: another thread may be writing it until it renames it.
    if (lock_waiting(file) != 0 || is_the_file(file, path)) {
      if (ftruncate(file, 0) == 0) return 0;
      const int code = errno;
      ::close(file);
      return code;
    }
    ::close(file);
  }
}

int FileSystem::write(int file, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file, bytes, std::min<std::size_t>(size, std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
  return 0;
}

int FileSystem::sync(int file) { return result_of(fsync(file)); }
int FileSystem::close(int file) { return result_of(::close(file)); }
int FileSystem::rename(const std::string& from, const std::string& to) {
  return result_of(std::rename(from.c_str(), to.c_str()));
}
int FileSystem::remove(const std::string& path) { return result_of(unlink(path.c_str())); }

int FileSystem::make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0) return 0;
  const int code = errno;
  std::error_code unused;
  return code == EEXIST && std::filesystem::is_directory(path, unused) ? 0 : code;
}

int FileSystem::sync_folder(const std::string& path) {
  const int folder = open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  int code = result_of(fsync(folder));
  if (code == EINVAL || code == EROFS) code = 0;  // a file system that has no such thing
  ::close(folder);
  return code;
}

int FileSystem::lock(const std::string& path, int& file) {
  for (;;) {
    file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return errno;
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      ::close(file);
      file = -1;
      return code;
    }
    if (is_the_file(file, path)) return 0;  // else the one before has just removed it
    ::close(file);
  }
}

int FileSystem::truncate(int file) { return result_of(ftruncate(file, 0)); }

int FileSystem::remove_leftover(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? 0 : errno;
  int code = result_of(flock(file, LOCK_EX | LOCK_NB));
  if (code == 0 && is_the_file(file, path)) code = result_of(unlink(path.c_str()));
  ::close(file);
  return code;
}

FileSystem& posix_files() {
  static FileSystem files;  // without state
  return files;
}

void throw_file_error(int code, const std::string& message) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      throw ResourceExhausted(message);
    case ENOENT:
    case ENOTDIR:
      throw NotFound(message);
    case EACCES:
    case EPERM:
    case EROFS:
      throw PermissionDenied(message);
    case EISDIR:
    case EEXIST:
    case ENOTEMPTY:
      throw FailedPrecondition(message);
    default:
      throw Unavailable(message);
  }
}

void make_folders(const std::string& path, FileSystem& files) {
  namespace fs = std::filesystem;
  std::vector<fs::path> missing;
  std::error_code unused;
  for (fs::path at = path; !at.empty() && !fs::is_directory(at, unused); at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);  // "a/b/" ends in one that has none
    if (at == at.parent_path()) break;
  }
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& folder : missing) {
    int code = files.make_folder(folder.string());
    if (code == 0) code = files.sync_folder(folder.parent_path().string());
    if (code != 0)
      throw_file_error(code, cat("make folder [", folder.string(), "]: ", std::strerror(code),
                                 ", expected a place where a folder can be made"));
  }
}

}  // namespace tutti::io
