#pragma once
// A folder of a test's own, removed afterwards.

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace tutti::testing {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti_ps_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(folder_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace tutti::testing
