#pragma once
// The system calls of whoever writes files that must survive: a seam, so that tests can fail each
// of them, end the process in front of it, or take the power away behind it.

#include <cstddef>
#include <string>

namespace tutti::io {

/// Every call gives 0 or the errno, and throws nothing. Of this class itself they are POSIX's. Any
/// thread, each file by one at a time.
class FileSystem {
 public:
  FileSystem() = default;
  virtual ~FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  /// A new or emptied file for writing, locked (flock) until it is closed: remove_leftover() knows
  /// by that whether its writer lives.
  virtual int create(const std::string& path, int& file);
  /// All bytes, at the end of the file.
  virtual int write(int file, const void* data, std::size_t size);
  virtual int sync(int file);
  virtual int close(int file);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int remove(const std::string& path);
  /// One folder; one that is there is no error.
  virtual int make_folder(const std::string& path);
  /// What was renamed or removed in it is so after a power failure too.
  virtual int sync_folder(const std::string& path);
  /// The file, made where it is missing, locked for this process alone; EWOULDBLOCK while another
  /// one, or another file of this process, has it. Goes on after what the file has.
  virtual int lock(const std::string& path, int& file);
  /// Empties it.
  virtual int truncate(int file);
  /// Removes what a writer that has died left; EWOULDBLOCK while it lives.
  virtual int remove_leftover(const std::string& path);
};

FileSystem& posix_files();

/// Throws the error that `code`, an errno, stands for: ResourceExhausted where the disk is full,
/// NotFound, PermissionDenied, FailedPrecondition where a folder is in the way, else Unavailable.
[[noreturn]] void throw_file_error(int code, const std::string& message);

/// Makes the folder, and those around it, so that they survive a power failure. "" is none to make.
void make_folders(const std::string& path, FileSystem& files = posix_files());

}  // namespace tutti::io
