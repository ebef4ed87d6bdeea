// Sources that make their elements: range with a type, counter, random, list_files.

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/elements.h"
#include "tutti/base/seed.h"

namespace tutti::data {
namespace {

TEST(Range, HasTheTypeThatIsAskedFor) {
  const auto floats = range(5, 0, -2, {.output_type = at::kFloat});
  EXPECT_EQ(cat(floats.element_spec()), "TensorSpec(shape=(), dtype=float32)");
  EXPECT_TENSOR_EQ(floats.batch(3).get_single_element(), at::tensor({5.0F, 3.0F, 1.0F}));
  EXPECT_EQ(to_string(floats), "range(5, 0, -2, output_type=float32)");
  EXPECT_ERROR(range(3, {.output_type = at::kBool}), InvalidArgument, "bool");
  EXPECT_ERROR(range(3, {.output_type = kString}), InvalidArgument, "string");
}

TEST(Counter, GoesOnWithoutEnd) {
  const auto odd = counter({.start = 5, .step = -2});
  EXPECT_EQ(odd.cardinality(), kInfinite);
  EXPECT_EQ(numbers(odd.take(4)), (Numbers{5, 3, 1, -1}));
  EXPECT_EQ(numbers(counter().take(3)), (Numbers{0, 1, 2}));
}

TEST(Random, RepeatsItselfInEveryPassUnlessToldOtherwise) {
  const auto fixed = data::random({.seed = 3}).take(5);
  EXPECT_EQ(numbers(fixed), numbers(fixed));
  EXPECT_EQ(numbers(fixed), numbers(data::random({.seed = 3}).take(5)));
  EXPECT_NE(numbers(fixed), numbers(data::random({.seed = 4}).take(5)));
  const auto fresh = data::random({.seed = 3, .rerandomize_each_iteration = true}).take(5);
  const Numbers first = numbers(fresh);
  EXPECT_NE(numbers(fresh), first);
}

TEST(Random, FillsThirtyTwoBitsAndHasNoEnd) {
  const auto some = numbers(data::random({.seed = 3}).take(1000));
  const auto [least, most] = std::minmax_element(some.begin(), some.end());
  EXPECT_GE(*least, 0);
  EXPECT_LT(*most, int64_t{1} << 32);
  EXPECT_GT(*most - *least, int64_t{1} << 31);
  EXPECT_EQ(data::random().cardinality(), kInfinite);
}

class ListFiles : public ::testing::Test {
 protected:
  ListFiles()
      : folder_(std::filesystem::temp_directory_path() / cat("tutti_list_files_", ::getpid())) {
    std::filesystem::create_directories(folder_);
    for (const char* name : {"b.txt", "a.txt", "d.txt", "c.txt", "e.csv"})
      std::ofstream(folder_ / name) << name << "\n";
  }
  ~ListFiles() override { std::filesystem::remove_all(folder_); }
  std::string pattern(const char* name) const { return folder_ / name; }
  std::vector<std::string> names(const Dataset<std::string>& dataset) const {
    std::vector<std::string> all;
    for (const std::string& path : dataset) all.push_back(std::filesystem::path(path).filename());
    return all;
  }
  std::filesystem::path folder_;
};

using Names = std::vector<std::string>;

TEST_F(ListFiles, AreSortedWithoutShuffle) {
  const auto files = list_files(pattern("*.txt"), {.shuffle = false});
  EXPECT_EQ(names(files), (Names{"a.txt", "b.txt", "c.txt", "d.txt"}));
  EXPECT_EQ(files.cardinality(), 4);
  EXPECT_EQ(names(list_files({pattern("*.csv"), pattern("[ab].txt")}, {.shuffle = false})),
            (Names{"e.csv", "a.txt", "b.txt"}));
}

TEST_F(ListFiles, HaveAnotherOrderInEachPassByDefault) {
  const auto files = list_files(pattern("*"), {.seed = 1});
  std::vector<Names> passes;
  for (int i = 0; i < 6; ++i) passes.push_back(names(files));
  for (Names pass : passes) {
    std::sort(pass.begin(), pass.end());
    EXPECT_EQ(pass, (Names{"a.txt", "b.txt", "c.txt", "d.txt", "e.csv"}));
  }
  EXPECT_TRUE(std::any_of(passes.begin(), passes.end(),
                          [&](const Names& pass) { return pass != passes[0]; }));
  const auto again = list_files(pattern("*"), {.seed = 1});
  for (const Names& pass : passes) EXPECT_EQ(names(again), pass);
}

TEST_F(ListFiles, ThatMatchNothingAreAnError) {
  EXPECT_ERROR(list_files(pattern("*.png")), InvalidArgument, "*.png");
}

TEST_F(ListFiles, AreReadByInterleave) {
  const auto lines =
      list_files(pattern("*.txt"), {.shuffle = false}).interleave([](const std::string& file) {
        return text_lines(file);
      });
  Names all;
  for (const std::string& line : lines) all.push_back(line);
  EXPECT_EQ(all, (Names{"a.txt", "b.txt", "c.txt", "d.txt"}));
  EXPECT_TRUE(lines.plan()->function_reads_files());
}

}  // namespace
}  // namespace tutti::data
