#include "io/file.h"

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "io/file_system.h"
#include "support/expect.h"

namespace tutti::io {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed afterwards.
class WholeFiles : public ::testing::Test {
 protected:
  WholeFiles() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / cat("tutti_", test->name(), "_", getpid());
    fs::create_directories(folder_);
  }
  ~WholeFiles() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& bytes) const {
    std::ofstream(path("x"), std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path("x");
  }
  std::string gzip(const std::string& bytes) const {
    gzFile file = gzopen(path("packed").c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    std::ifstream packed(path("packed"), std::ios::binary);
    return {std::istreambuf_iterator<char>(packed), std::istreambuf_iterator<char>()};
  }
  static std::string text(const std::vector<uint8_t>& bytes) {
    return {bytes.begin(), bytes.end()};
  }

  fs::path folder_;
};

constexpr std::size_t kLimit = 1 << 22;

TEST_F(WholeFiles, ArePlainOrGzipByTheirFirstBytes) {
  for (const std::string& bytes :
       {std::string(), std::string("a\0b", 3), std::string(3000000, 'x')}) {
    EXPECT_EQ(text(read_file(write(bytes), kLimit)), bytes);
    EXPECT_EQ(text(read_file(write(gzip(bytes)), kLimit)), bytes);
  }
}

TEST_F(WholeFiles, MayHaveSeveralGzipMembers) {
  EXPECT_EQ(text(read_file(write(gzip("one ") + gzip("two")), kLimit)), "one two");
}

TEST_F(WholeFiles, AreReadInPartsByAStream) {
  const std::string bytes(3000000, 'x');
  for (const std::string& whole : {bytes, gzip(bytes)}) {
    FileStream file(write(whole));
    std::string part(2000000, ' ');
    EXPECT_EQ(file.read(part.data(), part.size()), part.size());
    EXPECT_EQ(file.read(part.data(), part.size()), 1000000u);
    EXPECT_EQ(file.read(part.data(), part.size()), 0u);
  }
}

TEST_F(WholeFiles, AboveTheLimitAreDataLoss) {
  EXPECT_EQ(read_file(write(std::string(100, 'x')), 100).size(), 100u);
  EXPECT_ERROR(read_file(write(std::string(101, 'x')), 100), DataLoss, "more than 100 bytes");
  EXPECT_ERROR(read_file(write(gzip(std::string(4000000, 'x'))), 1 << 20), DataLoss, "bytes");
}

TEST_F(WholeFiles, DamagedAnywhereInTheGzipDataAreNeverReadWrong) {
  const std::string bytes = "some text that is packed, and some more of it";
  const std::string whole = gzip(bytes);
  int refused = 0;
  for (std::size_t i = 10; i < whole.size(); ++i) {  // behind the header
    SCOPED_TRACE(i);
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    try {
      EXPECT_EQ(text(read_file(write(damaged), kLimit)), bytes) << "a bit that pads";
    } catch (const DataLoss& error) {
      EXPECT_NE(std::string(error.what()).find("expected whole gzip data"), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GE(refused, static_cast<int>(whole.size()) - 11);
}

TEST_F(WholeFiles, ThatAreMissingAreNotFound) {
  EXPECT_ERROR(read_file(path("none"), kLimit), NotFound, "none");
  EXPECT_FALSE(file_exists(path("none")));
  EXPECT_FALSE(file_exists(folder_.string())) << "a folder is no file";
}

TEST_F(WholeFiles, ThatAreFoldersAreRefused) {
  EXPECT_ERROR(read_file(folder_.string(), kLimit), Error, folder_.string());
}

TEST_F(WholeFiles, AreReplacedAtOnce) {
  const std::string a = "new ", b = "text";
  write("old");
  write_file_atomically(path("x"), {{a.data(), a.size()}, {b.data(), b.size()}, {nullptr, 0}});
  EXPECT_EQ(text(read_file(path("x"), kLimit)), "new text");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(WholeFiles, ASecondWriterOfTheTemporaryFileWaitsAndEmptiesNothing) {
  FileSystem& files = posix_files();
  int first = -1;
  ASSERT_EQ(files.create(path("x.tmp"), first), 0);
  ASSERT_EQ(files.write(first, "first", 5), 0);
  int second = -1;
  std::thread other([&] { EXPECT_EQ(files.create(path("x.tmp"), second), 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has come to the lock
  EXPECT_EQ(fs::file_size(path("x.tmp")), 5u);
  EXPECT_EQ(files.rename(path("x.tmp"), path("x")), 0);
  files.close(first);
  other.join();
  EXPECT_EQ(text(read_file(path("x"), kLimit)), "first");
  EXPECT_EQ(fs::file_size(path("x.tmp")), 0u) << "a file of its own";
  files.close(second);
}

TEST_F(WholeFiles, ThatCannotBeWrittenLeaveNothingBehind) {
  EXPECT_ERROR(write_file_atomically(path("no folder/x"), {{"x", 1}}), NotFound, "no folder");
  fs::create_directory(path("taken"));
  EXPECT_ERROR(write_file_atomically(path("taken"), {{"x", 1}}), Error, "taken");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace tutti::io
