#include "train/folder_lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

constexpr char kLockFile[] = "checkpoint.lock";
constexpr char kOwner[] = "owner: ";
constexpr char kName[] = "name: ";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// When this process began, in the kernel's ticks since it did: process numbers come again.
std::string start_of_process() {
  std::string stat = text_of("/proc/self/stat");
  const std::size_t behind_name = stat.rfind(')');
  std::istringstream fields(behind_name == std::string::npos ? "" : stat.substr(behind_name + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // the 22nd of all
  return field;
}

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string program = text_of("/proc/self/comm");
  while (!program.empty() && program.back() == '\n') program.pop_back();
  return cat("process ", getpid(), " of host ", host, " (", program, ", start ", start_of_process(),
             ")");
}

/// What stands behind `key` in whole lines of `text`: a line that was cut is none.
std::vector<std::string> values_of(const std::string& text, const std::string& key) {
  std::vector<std::string> values;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    if (line.rfind(key, 0) == 0) values.push_back(line.substr(key.size()));
  }
  return values;
}

std::string owner_in(const std::string& path) {
  const std::vector<std::string> owners = values_of(text_of(path), kOwner);
  return owners.empty() ? "" : owners[0];
}

}  // namespace

FolderLock::FolderLock(std::string operation, std::string folder, io::FileSystem& files)
    : operation_(std::move(operation)),
      folder_(std::move(folder)),
      path_(cat(folder_, "/", kLockFile)),
      owner_(this_process()),
      files_(files),
      process_(getpid()) {}

FolderLock::~FolderLock() {
  if (file_ < 0) return;
  if (process_ == getpid() && is_still_mine()) files_.remove(path_);
  files_.close(file_);
}

/// By the name too: where locks of other hosts do not count, the last one to take it has it. A file
/// without one is what a full disk left of it.
bool FolderLock::is_still_mine() const {
  struct stat opened = {}, named = {};
  if (fstat(file_, &opened) != 0 || stat(path_.c_str(), &named) != 0 ||
      opened.st_ino != named.st_ino || opened.st_dev != named.st_dev)
    return false;
  const std::string owner = owner_in(path_);
  return owner.empty() || owner == owner_;
}

void FolderLock::hold() {
  const auto refuse = [&](const std::string& other, const char* what) {
    throw FailedPrecondition(
        cat(operation_, " [", folder_, "]: ", other.empty() ? "another process" : other, what,
            ", this is ", owner_, ", expected one writer a folder; give each job its own"));
  };
  if (file_ >= 0) {
    if (is_still_mine()) return;
    struct stat named = {};
    if (stat(path_.c_str(), &named) == 0 || errno != ENOENT)
      refuse(owner_in(path_), " has taken the folder");
    files_.close(file_);  // the program has deleted the folder, and saves into it again
    file_ = -1;
  }
  if (take()) return;
  const std::string other = owner_in(path_);
  if (other != owner_) refuse(other, " writes here");
}

void FolderLock::fail(int code) const {
  io::throw_file_error(code, cat(operation_, " [", path_, "]: ", std::strerror(code),
                                 ", expected a folder to write in"));
}

/// False while somebody has it.
bool FolderLock::take() {
  int file = -1;
  const int code = files_.lock(path_, file);
  if (code == EWOULDBLOCK) return false;
  if (code != 0 && code != ENOLCK && code != EOPNOTSUPP) fail(code);
  if (code != 0) return true;  // a file system without locks: nothing can be told
  file_ = file;
  announced_ = values_of(text_of(path_), kName);
  write(announced_);
  return true;
}

void FolderLock::write(const std::vector<std::string>& names) {
  std::string text = cat(kOwner, owner_, "\n");
  for (const std::string& name : names) text += cat(kName, name, "\n");
  int code = files_.truncate(file_);
  if (code == 0) code = files_.write(file_, text.data(), text.size());
  if (code != 0) fail(code);
}

void FolderLock::announce(const std::vector<std::string>& names) {
  if (file_ < 0) return;
  write(names);
  if (const int code = files_.sync(file_); code != 0) fail(code);
}

std::vector<std::string> FolderLock::take_announced() { return std::exchange(announced_, {}); }

}  // namespace tutti::train
