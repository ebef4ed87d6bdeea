// cache in files, snapshot, save and load.

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/elements.h"
#include "tutti/base/seed.h"
#include "tutti/data/readers.h"
#include "tutti/io/tf_record.h"

namespace tutti::data {
namespace {

namespace fs = std::filesystem;

class FileCaches : public ::testing::Test {
 protected:
  FileCaches() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / cat("tutti_", test->name(), "_", getpid());
    fs::create_directories(folder_);
  }
  ~FileCaches() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  /// 0 … count - 1, cached in "c"; counts the calls of its function.
  Dataset<Tensor> cached(int64_t count = 6) {
    return range(count)
        .map([calls = calls_](const Tensor& x) {
          ++*calls;
          return x * 2;
        })
        .cache(path("c"));
  }
  int calls() const { return *calls_; }
  fs::path folder_;
  std::shared_ptr<int> calls_ = std::make_shared<int>(0);
};

const Numbers kDoubles{0, 2, 4, 6, 8, 10};

TEST_F(FileCaches, GiveTheFirstPassAgainAlsoToOtherPrograms) {
  EXPECT_EQ(numbers(cached()), kDoubles);
  EXPECT_EQ(calls(), 6);
  EXPECT_EQ(numbers(cached()), kDoubles) << "by another dataset, as of another program";
  EXPECT_EQ(calls(), 6);
  EXPECT_EQ(num_files(), 2u) << "index and data, no lock";
  EXPECT_EQ(numbers(cached().repeat(2).skip(4)), (Numbers{8, 10, 0, 2, 4, 6, 8, 10}));
}

TEST_F(FileCaches, KeepStructuresDtypesAndStrings) {
  const auto make = [&] {
    return range(3)
        .map([](const Tensor& x) {
          return Nest::map(
              {{"a", Nest::tuple({Nest(x.to(at::kFloat) / 3), Nest(at::ones({2, 0}, at::kByte))})},
               {"b", Nest::list({Nest(StringTensor({"x", std::string("\0y", 2)})), Nest()})},
               {"c", Nest(at::arange(6).reshape({2, 3}).t().to(at::kBFloat16))}});
        })
        .cache(path("c"));
  };
  std::vector<Nest> first, second;
  for (const Nest& element : make()) first.push_back(element);
  for (const Nest& element : make()) second.push_back(element);
  ASSERT_EQ(second.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(same_structure(first[i], second[i])) << second[i].structure();
    EXPECT_EQ(first[i]["b"][0].strings(), second[i]["b"][0].strings());
    const auto a = flatten(first[i]);
    const auto b = flatten(second[i]);
    for (std::size_t leaf = 0; leaf < a.size(); ++leaf) {
      EXPECT_EQ(a[leaf].scalar_type(), b[leaf].scalar_type());
      EXPECT_TRUE(at::equal(a[leaf], b[leaf]));
    }
  }
}

TEST_F(FileCaches, LeaveNothingOfAPartialPass) {
  {
    auto pass = cached().iterator();
    pass.next();
    EXPECT_EQ(num_files(), 2u) << "lock and data under way";
  }
  EXPECT_EQ(num_files(), 0u);
  EXPECT_EQ(numbers(cached()), kDoubles);
}

TEST_F(FileCaches, RefuseASecondWriterAtOnce) {
  auto first = cached().iterator();
  first.next();
  auto second = cached().iterator();
  EXPECT_ERROR(second.next(), AlreadyExists, "another pass writes these files");
  while (first.next()) {
  }
  EXPECT_EQ(second.get_next().item<int64_t>(), 0) << "the cache is complete by now";
}

TEST_F(FileCaches, OfAWriterThatDiedAreNotLocked) {
  const pid_t child = fork();
  if (child == 0) {
    auto pass = cached().iterator();
    pass.next();
    _exit(0);  // without any destructor
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(fs::exists(path("c.lock"))) << "the file is there, but nobody holds it";
  EXPECT_EQ(numbers(cached()), kDoubles);
  EXPECT_EQ(num_files(), 2u);
}

TEST_F(FileCaches, AreReadWithoutALock) {
  numbers(cached());
  auto first = cached().iterator();
  auto second = cached().iterator();
  first.next();
  EXPECT_EQ(second.get_next().item<int64_t>(), 0);
  EXPECT_FALSE(fs::exists(path("c.lock")));
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(FileCaches, ThatWereCutAnywhereAreDataLossWithTheFile) {
  numbers(cached(2));
  for (const char* name : {"c.data-0-0", "c.index"}) {
    const std::string whole = bytes_of(path(name));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write(path(name), whole.substr(0, size));
      EXPECT_ERROR(numbers(cached(2)), DataLoss, name);
    }
    write(path(name), whole);
  }
  fs::remove(path("c.data-0-0"));
  EXPECT_ERROR(numbers(cached(2)), DataLoss, "c.data-0-0");
}

TEST_F(FileCaches, WithAnyByteChangedAreDataLossWithTheFile) {
  numbers(cached(2));
  for (const char* name : {"c.data-0-0", "c.index"}) {
    const std::string whole = bytes_of(path(name));
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      write(path(name), damaged);
      EXPECT_ERROR(numbers(cached(2)), DataLoss, name);
    }
    write(path(name), whole);
  }
  EXPECT_EQ(numbers(cached(2)), (Numbers{0, 2}));
}

TEST_F(FileCaches, GoOnWhereTheyWereSavedUnlessTheyAreWritten) {
  auto writing = cached().iterator();
  writing.next();
  EXPECT_ERROR(writing.save(), FailedPrecondition, "writes the cache");
  while (writing.next()) {
  }
  for (int at = 0; at <= 6; ++at) {
    auto pass = cached().iterator();
    for (int i = 0; i < at; ++i) pass.next();
    auto other = cached().iterator();
    other.restore(pass.save());
    Numbers rest;
    while (auto element = other.next()) rest.push_back(element->item<int64_t>());
    EXPECT_EQ(rest, Numbers(kDoubles.begin() + at, kDoubles.end()));
  }
  auto pass = cached().iterator();
  pass.next();
  const Nest state = pass.save();
  fs::remove(path("c.index"));
  EXPECT_ERROR(cached().iterator().restore(state), FailedPrecondition, "no complete cache");
}

TEST_F(FileCaches, HaveNoPlaceForDatasets) {
  EXPECT_ERROR(
      {
        for (const auto& window : range(4).window(2).cache(path("c"))) (void)window;
      },
      InvalidArgument, "cache in front of window");
  EXPECT_EQ(num_files(), 0u);
  EXPECT_ERROR(numbers(range(2).cache(path("no/folder/c"))), NotFound, "no/folder/c");
}

TEST_F(FileCaches, WithoutANameAreInMemory) {
  EXPECT_EQ(to_string(range(2).cache("")), "cache()\n  range(0, 2)");
}

TEST_F(FileCaches, SnapshotsLetOthersPassThrough) {
  const auto make = [&] { return range(4).snapshot(path("s"), {.compression = "GZIP"}); };
  auto first = make().iterator();
  first.next();
  EXPECT_EQ(numbers(make()), numbers(range(4)));
  EXPECT_FALSE(fs::exists(path("s/elements.index")));
  while (first.next()) {
  }
  EXPECT_EQ(numbers(make()), numbers(range(4)));
  EXPECT_TRUE(fs::exists(path("s/elements.index")));
}

TEST_F(FileCaches, SavedDatasetsAreLoaded) {
  const auto pairs =
      zip(range(4), from_tensor_slices(std::vector<std::string>{"a", "b", "c", "d"}));
  for (const char* compression : {"", "ZLIB"}) {
    pairs.save(path("d"), {.compression = compression});
    const auto loaded = load<std::tuple<Tensor, std::string>>(path("d"));
    EXPECT_EQ(loaded.cardinality(), 4);
    EXPECT_EQ(cat(loaded.element_spec()), cat(pairs.element_spec()));
    std::string text;
    for (const auto& [number, letter] : loaded) text += cat(number.item<int64_t>(), letter);
    EXPECT_EQ(text, "0a1b2c3d");
    auto pass = loaded.iterator();
    pass.next();
    auto other = load<std::tuple<Tensor, std::string>>(path("d")).iterator();
    other.restore(pass.save());
    EXPECT_EQ(std::get<1>(other.get_next()), "b");
  }
  EXPECT_ERROR(load(path("none")), NotFound, "that Dataset::save wrote");
  EXPECT_ERROR(pairs.save(path("d"), {.compression = "ZIP"}), InvalidArgument, "ZIP");
}

TEST_F(FileCaches, UserIssue61_DamagedRecordsUnderIgnoreErrorsEnd) {
  std::vector<std::string> files;
  for (const char* name : {"x", "y", "z"}) {
    files.push_back(path(name));
    io::TFRecordWriter writer(files.back());
    for (int i = 0; i < 5; ++i) writer.write(cat(name, i));
  }
  const auto count = [&] {
    return TFRecordDataset(files)
        .ignore_errors({.log_warning = true})
        .reduce(0, [](int sum, const StringTensor&) { return sum + 1; });
  };
  const std::string whole = bytes_of(files[1]);
  std::string damaged = whole;
  damaged[2 * 18 + 12] ^= 1;  // the bytes of y2
  write(files[1], damaged);
  EXPECT_EQ(count(), 14);
  for (int good = 0; good < 5; ++good) {
    damaged = whole;
    damaged[static_cast<std::size_t>(good) * 18 + 3] ^= 1;  // a length
    write(files[1], damaged);
    EXPECT_EQ(count(), 10 + good);
  }
}

}  // namespace
}  // namespace tutti::data
