// The files of a saved dataset of one shard: the first two bytes say how many of the others are
// the index, the rest is the data file.

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fuzz/target.h"
#include "tutti/data/dataset.h"

namespace tutti::fuzz {
namespace {

/// Where only memory holds files, if there is such a folder.
class Folder {
 public:
  Folder() {
    const bool memory = std::filesystem::is_directory("/dev/shm");
    const auto place = memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = (place / ("tutti_fuzz_" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void read_input(std::string_view bytes) {
  if (bytes.size() < 2) return;
  static const Folder folder;
  const std::size_t index = static_cast<unsigned char>(bytes[0]) +
                            std::size_t{256} * static_cast<unsigned char>(bytes[1]);
  bytes.remove_prefix(2);
  folder.write("elements.index", bytes.substr(0, index));
  folder.write("elements.data-0-0", bytes.substr(std::min(index, bytes.size())));
  auto pass = data::load(folder.path()).iterator();
  for (;;) {
    try {
      if (!pass.next()) break;
    } catch (const DataLoss&) {  // the next call goes on
    }
  }
}

}  // namespace tutti::fuzz
