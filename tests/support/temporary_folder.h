#pragma once
// Files of a test in a folder of its own, removed afterwards.

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::testing {

class TemporaryFolder : public ::testing::Test {
 protected:
  TemporaryFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              cat("tutti_", test->test_suite_name(), "_", test->name(), "_", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  ~TemporaryFolder() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }
  static std::string bytes_of(const std::string& file_path) {
    std::ifstream file(file_path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  /// As gzip makes of them.
  std::string gzipped(const std::string& bytes) const {
    gzFile file = gzopen(path("packing").c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return bytes_of(path("packing"));
  }

  /// Each damaged form of `bytes`: cut at every byte, and with every bit turned. `visit(damaged,
  /// what)`, where `what` names the damage.
  template <class Visit>
  static void for_each_damage(const std::string& bytes, Visit visit) {
    for (std::size_t size = 0; size < bytes.size(); ++size)
      visit(bytes.substr(0, size), cat("cut after ", size, " bytes"));
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        visit(damaged, cat("bit ", bit, " of byte ", at));
      }
    }
  }

  std::filesystem::path folder_;
};

}  // namespace tutti::testing
