#pragma once
// The files under tests/io/data.

#include <fstream>
#include <iterator>
#include <string>

namespace tutti::io {

inline std::string fixture(const std::string& name) {
  const std::string here = __FILE__;
  return here.substr(0, here.rfind('/')) + "/data/" + name;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace tutti::io
