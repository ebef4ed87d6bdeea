#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "data/elements.h"

namespace tutti::data {
namespace {

class TextLines : public ::testing::Test {
 protected:
  TextLines()
      : folder_(std::filesystem::temp_directory_path() / cat("tutti_text_lines_", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TextLines() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::vector<std::string> lines(const Dataset<std::string>& dataset) {
    std::vector<std::string> all;
    for (const std::string& line : dataset) all.push_back(line);
    return all;
  }
  std::filesystem::path folder_;
};

using Lines = std::vector<std::string>;

TEST_F(TextLines, AreReadFileAfterFileWithoutTheirEnds) {
  const auto dataset =
      text_lines({file("a", "one\ntwo\r\n\nlast"), file("b", ""), file("c", "x\n")});
  for (int pass = 0; pass < 2; ++pass)
    EXPECT_EQ(lines(dataset), (Lines{"one", "two", "", "last", "x"}));
  EXPECT_EQ(dataset.cardinality(), kUnknown);
  EXPECT_EQ(lines(text_lines({})), Lines{});
}

TEST_F(TextLines, AreUnpackedFromGzip) {
  const std::string path = folder_ / "packed.gz";
  gzFile packed = gzopen(path.c_str(), "wb");
  gzputs(packed, "alpha\nbeta\n");
  gzclose(packed);
  EXPECT_EQ(lines(text_lines({path})), (Lines{"alpha", "beta"}));
}

TEST_F(TextLines, OfAMissingFileAreAnErrorBehindWhichThePassGoesOn) {
  auto pass = text_lines({folder_ / "missing", file("b", "x\n")}).iterator();
  EXPECT_ERROR(pass.next(), NotFound, "missing");
  EXPECT_EQ(pass.get_next(), "x");
  EXPECT_FALSE(pass.next());
}

TEST_F(TextLines, AreMappedToNumbersAndBatched) {
  const auto dataset = text_lines({file("a", "4\n5\n6\n")}).map([](const std::string& line) {
    return at::scalar_tensor(std::stoi(line), at::kLong);
  });
  EXPECT_EQ(rows(dataset.batch(2)), (Rows{{4, 5}, {6}}));
}

TEST_F(TextLines, HaveNoBatches) {
  const auto batches = text_lines({file("a", "ab\ncd\n")}).batch(2);
  EXPECT_ERROR(batches.iterator().next(), InvalidArgument, "strings have no batches");
}

}  // namespace
}  // namespace tutti::data
