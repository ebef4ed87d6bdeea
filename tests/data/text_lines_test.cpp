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

TEST_F(TextLines, AreBatchedAsTensorsOfStrings) {
  const auto lines = text_lines(file("a", "ab\n\ncd\n"));
  EXPECT_EQ(cat(lines.element_spec()), "TensorSpec(shape=(), dtype=string)");
  auto pass = lines.batch(2).iterator();
  EXPECT_EQ(pass.get_next(), (StringTensor{"ab", ""}));
  EXPECT_EQ(pass.get_next(), (StringTensor{"cd"}));
  EXPECT_FALSE(pass.next());
}

TEST_F(TextLines, LongerThanTheReadersBufferAreWhole) {
  const std::string longest(600000, 'x');
  const std::string middle(300000, 'y');
  EXPECT_EQ(lines(text_lines(file("a", "first\n" + longest + "\n\n" + middle))),
            (Lines{"first", longest, "", middle}));
}

TEST_F(TextLines, OfADamagedGzipFileAreAnErrorBehindWhichTheNextFileComes) {
  const std::string path = folder_ / "packed.gz";
  gzFile packed = gzopen(path.c_str(), "wb");
  for (int i = 0; i < 1000; ++i) gzprintf(packed, "line %d\n", i * i);
  gzclose(packed);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  auto pass = text_lines({path, file("b", "x\n")}).iterator();
  EXPECT_ERROR(while (pass.next()){}, DataLoss, "packed.gz");
  EXPECT_EQ(pass.get_next(), "x");
}

TEST_F(TextLines, GoOnWhereAPassWasSaved) {
  const auto dataset = text_lines({file("a", "one\r\ntwo\n"), file("b", ""), file("c", "x\ny")});
  const Lines all = lines(dataset);
  for (std::size_t at = 0; at <= all.size(); ++at) {
    auto pass = dataset.iterator();
    for (std::size_t i = 0; i < at; ++i) pass.next();
    auto other = dataset.iterator();
    other.restore(pass.save());
    Lines rest;
    while (auto line = other.next()) rest.push_back(*line);
    EXPECT_EQ(rest, Lines(all.begin() + static_cast<std::ptrdiff_t>(at), all.end()));
  }
}

TEST_F(TextLines, WithoutEndAreRefusedBeforeTheyTakeMoreMemory) {
  const std::string path = folder_ / "packed.gz";
  gzFile packed = gzopen(path.c_str(), "wb1");
  const std::string part(1 << 20, 'x');
  for (int i = 0; i < 258; ++i) gzwrite(packed, part.data(), 1 << 20);
  gzclose(packed);
  auto pass = text_lines({path, file("next", "one\n")}).iterator();
  EXPECT_ERROR(pass.next(), DataLoss, "packed.gz, byte 0]: a line of more than 256 MiB");
  EXPECT_EQ(pass.get_next(), "one");
}

}  // namespace
}  // namespace tutti::data
