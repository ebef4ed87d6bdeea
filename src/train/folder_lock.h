#pragma once
// One writer a folder: who saves numbered checkpoints, or a backup, holds the folder meanwhile.

#include <string>
#include <vector>

#include "io/file_system.h"

namespace tutti::train {

/// The file `checkpoint.lock` of a folder: locked (flock), it names the process that writes there
/// and what it was about to write or remove, for whoever comes after it died. A lock ends with its
/// process, whatever becomes of the file. Objects of one process share a folder. One thread at a
/// time.
class FolderLock {
 public:
  /// Takes nothing yet. `operation`: for messages.
  FolderLock(std::string operation, std::string folder, io::FileSystem& files);
  /// Leaves the folder, without the file.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Takes the folder, which is there, or sees whether it still has it. FailedPrecondition that
  /// names both processes when another one has it or has taken it since.
  void hold();
  /// While this is held: names in the folder of which some will be written, the others removed. On
  /// the disk when it returns.
  void announce(const std::vector<std::string>& names);
  /// What a process that died had announced, once.
  std::vector<std::string> take_announced();

 private:
  bool take();
  bool is_still_mine() const;
  [[noreturn]] void fail(int code) const;
  void write(const std::vector<std::string>& names);

  std::string operation_;
  std::string folder_;
  std::string path_;
  std::string owner_;
  io::FileSystem& files_;
  int file_ = -1;
  int process_;  ///< a fork has not this one's lock
  std::vector<std::string> announced_;
};

}  // namespace tutti::train
