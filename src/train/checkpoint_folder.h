#pragma once
// The file `checkpoint` of a folder: which checkpoints are there, and which is the latest.

#include <cstdint>
#include <string>
#include <vector>

#include "io/file_system.h"
#include "train/folder_lock.h"

namespace tutti::train {

/// As TensorFlow's CheckpointState: paths relative to the folder, the oldest first.
struct FolderState {
  std::string latest;
  std::vector<std::string> all;
  std::vector<double> times;  ///< seconds since the epoch, one each
  double last_preserved = 0;

  /// Makes `path` the latest; a path that was there already moves to the end.
  void add(const std::string& path);
};

/// Empty when the folder has no such file; DataLoss when it is none, or damaged.
FolderState read_folder_state(const std::string& folder);
void write_folder_state(const std::string& folder, const FolderState& state,
                        io::FileSystem& files = io::posix_files());
/// What can be told without that file: checkpoints `name`-N by their numbers.
FolderState find_checkpoints(const std::string& folder, const std::string& name);
/// Removes what a writer that died had announced and the folder's file does not name. `lock` is
/// held.
void remove_abandoned(FolderLock& lock, const std::string& folder, io::FileSystem& files);

std::string folder_of(const std::string& path);
/// `path` with ".tutti" behind it, and without.
std::string file_of(const std::string& path);
std::string without_suffix(const std::string& path);
/// `path` as it stands in a folder's file; and back.
std::string relative_to(const std::string& folder, const std::string& path);
std::string inside(const std::string& folder, const std::string& name);
/// Whether the file would be removed from `folder` or a folder in it; false when that cannot be
/// told.
bool lies_inside(const std::string& folder, const std::string& path);
double seconds_now();
/// The text as a number; 0 when it is none.
int64_t number_in(const std::string& text);

}  // namespace tutti::train
