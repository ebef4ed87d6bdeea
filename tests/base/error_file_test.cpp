#include "base/error_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ErrorFile, KeepsTheFirstErrorWithItsTime) {
  const std::string path = ::testing::TempDir() + "tutti_error_file_" + std::to_string(getpid());
  setenv("TUTTI_ERROR_FILE", path.c_str(), 1);
  record_error("the cause");
  record_error("what came of it");
  unsetenv("TUTTI_ERROR_FILE");
  const std::string text = contents(path);
  std::remove(path.c_str());
  EXPECT_GT(std::stod(text), 1.7e9);
  EXPECT_EQ(text.substr(text.find(' ')), " the cause\n");
}

TEST(ErrorFile, WithoutTheVariableOrTheFolderNothingHappens) {
  record_error("nowhere");
  setenv("TUTTI_ERROR_FILE", "/no/such/folder/file", 1);
  record_error("nowhere");
  unsetenv("TUTTI_ERROR_FILE");
}

}  // namespace
}  // namespace tutti
