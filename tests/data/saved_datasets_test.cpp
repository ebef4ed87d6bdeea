// save, load and snapshot with shards, and what replaces what.

#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "data/elements.h"
#include "support/temporary_folder.h"

namespace tutti::data {
namespace {

namespace fs = std::filesystem;

class SavedDatasets : public testing::TemporaryFolder {
 protected:
  std::set<std::string> files(const std::string& name) const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path(name)))
      all.insert(entry.path().filename().string());
    return all;
  }
  Numbers loaded(const std::string& name) const { return numbers(load<Tensor>(path(name))); }
};

int64_t third(const Tensor& x) { return x.item<int64_t>() % 3; }
int64_t one_of_two(const Tensor& x) { return x.item<int64_t>() < 6 ? 1 : 0; }

TEST_F(SavedDatasets, HaveAFileForEachShardThatHasElements) {
  range(8).save(path("d"), {.compression = "GZIP", .shard_func = third});
  EXPECT_EQ(files("d"), (std::set<std::string>{"elements.index", "elements.data-0-0",
                                               "elements.data-0-1", "elements.data-0-2"}));
  range(3).save(path("e"), {.shard_func = [](const Tensor&) { return 2; }});
  EXPECT_EQ(files("e"), (std::set<std::string>{"elements.index", "elements.data-0-2"}));
  EXPECT_EQ(loaded("e"), (Numbers{0, 1, 2}));
}

TEST_F(SavedDatasets, DealtOutByACounterComeBackInTheirOrder) {
  range(8).save(path("d"), {.shard_func = third});
  EXPECT_EQ(loaded("d"), numbers(range(8)));
  EXPECT_EQ(load<Tensor>(path("d")).cardinality(), 8);
}

TEST_F(SavedDatasets, ComeFromTheShardsByTurns) {
  range(9).save(path("d"), {.shard_func = one_of_two});
  EXPECT_EQ(loaded("d"), (Numbers{6, 0, 7, 1, 8, 2, 3, 4, 5}));
}

TEST_F(SavedDatasets, AreReadAsTheReaderFunctionSays) {
  range(8).save(path("d"), {.shard_func = third});
  const auto in_a_row =
      load<Tensor>(path("d"), {.reader_func = [](const Dataset<Dataset<Tensor>>& shards) {
                     return shards.flat_map([](const Dataset<Tensor>& shard) { return shard; });
                   }});
  EXPECT_EQ(numbers(in_a_row), (Numbers{0, 3, 6, 1, 4, 7, 2, 5}));
  EXPECT_EQ(in_a_row.cardinality(), kUnknown);
  EXPECT_EQ(to_string(in_a_row), cat("load(", path("d"), ", reader_func=function)"));
  Numbers sizes;
  const auto last_shard =
      load<Tensor>(path("d"), {.reader_func = [&](const Dataset<Dataset<Tensor>>& shards) {
                     for (const auto& shard : shards) sizes.push_back(shard.cardinality());
                     return shards.skip(2).flat_map(
                         [](const Dataset<Tensor>& shard) { return shard.repeat(2); });
                   }});
  EXPECT_EQ(numbers(last_shard), (Numbers{2, 5, 2, 5}));
  EXPECT_EQ(sizes, (Numbers{3, 3, 2}));
}

TEST_F(SavedDatasets, TakeTheItemsOfATupleAsTheShardFunctionsArguments) {
  const auto pairs = zip(range(4), range(10, 14));
  pairs.save(path("d"), {.shard_func = [](const Tensor& a, const Tensor& b) {
               EXPECT_EQ((b - a).item<int64_t>(), 10);
               return a > 0;
             }});
  Numbers firsts;
  for (const auto& [a, b] : load<std::tuple<Tensor, Tensor>>(path("d")))
    firsts.push_back(a.item<int64_t>());
  EXPECT_EQ(firsts, (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(files("d").count("elements.data-0-1"), 1u);
}

TEST_F(SavedDatasets, RefuseShardsThatAreNone) {
  EXPECT_ERROR(range(3).save(path("d"), {.shard_func = [](const Tensor&) { return -1; }}),
               InvalidArgument, "shard_func gave -1, expected 0 to 1023");
  EXPECT_ERROR(range(3).save(path("d"), {.shard_func = [](const Tensor&) { return 1024; }}),
               InvalidArgument, "shard_func gave 1024");
  EXPECT_ERROR(range(3).save(path("d"), {.shard_func = [](const Tensor& x) { return x / 2.0; }}),
               InvalidArgument, "shard_func: the function gave");
  EXPECT_EQ(files("d").size(), 0u) << "nothing is left behind";
}

TEST_F(SavedDatasets, OfNoElementsAreEmpty) {
  range(0).save(path("d"));
  EXPECT_EQ(files("d"), (std::set<std::string>{"elements.index"}));
  EXPECT_EQ(loaded("d"), Numbers{});
  EXPECT_EQ(load<Tensor>(path("d")).cardinality(), 0);
}

TEST_F(SavedDatasets, GoOnWhereAPassWasSavedInAnyShard) {
  range(9).save(path("d"), {.shard_func = one_of_two});
  const Numbers whole = loaded("d");
  for (std::size_t at = 0; at <= whole.size(); ++at) {
    auto pass = load<Tensor>(path("d")).iterator();
    for (std::size_t i = 0; i < at; ++i) pass.next();
    auto other = load<Tensor>(path("d")).iterator();
    other.restore(pass.save());
    Numbers rest;
    while (auto element = other.next()) rest.push_back(element->item<int64_t>());
    EXPECT_EQ(rest, Numbers(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end()));
  }
  range(9).save(path("e"), {.shard_func = third});
  EXPECT_ERROR(load(path("e")).iterator().restore(load(path("d")).iterator().save()), DataLoss,
               "the places of 2 shards, expected 3");
}

TEST_F(SavedDatasets, AreReplacedAtOnceWhilePassesOverTheOldOnesGoOn) {
  range(5).save(path("d"), {.shard_func = third});
  const auto old = load<Tensor>(path("d"));
  auto pass = old.iterator();
  EXPECT_EQ(pass.get_next().item<int64_t>(), 0);
  range(10, 14).save(path("d"));
  EXPECT_EQ(loaded("d"), (Numbers{10, 11, 12, 13}));
  EXPECT_EQ(files("d"), (std::set<std::string>{"elements.index", "elements.data-1-0"}));
  Numbers rest;
  while (auto element = pass.next()) rest.push_back(element->item<int64_t>());
  EXPECT_EQ(rest, (Numbers{1, 2, 3, 4})) << "the files of a pass stay open";
  EXPECT_ERROR(old.iterator().next(), FailedPrecondition, "another dataset has replaced this one");
}

TEST_F(SavedDatasets, MayBeSavedOverThemselves) {
  range(4).save(path("d"));
  for (int round = 0; round < 3; ++round)
    load<Tensor>(path("d")).map([](const Tensor& x) { return x + 1; }).save(path("d"));
  EXPECT_EQ(loaded("d"), (Numbers{3, 4, 5, 6}));
  EXPECT_EQ(files("d"), (std::set<std::string>{"elements.index", "elements.data-3-0"}));
}

TEST_F(SavedDatasets, SurviveAWriterThatDiesOrFails) {
  range(4).save(path("d"));
  const pid_t child = fork();
  if (child == 0) {
    range(100)
        .map([](const Tensor& x) {
          if (x.item<int64_t>() == 50) _exit(0);  // without any destructor
          return x;
        })
        .save(path("d"), {.shard_func = third});
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(files("d").count("elements.data-1-2"), 1u) << "what the dead one left";
  EXPECT_EQ(loaded("d"), numbers(range(4)));
  const auto failing = range(9).map([](const Tensor& x) {
    if (x.item<int64_t>() == 5) throw InvalidArgument("five");
    return x;
  });
  EXPECT_ERROR(failing.save(path("d")), InvalidArgument, "five");
  EXPECT_EQ(loaded("d"), numbers(range(4)));
  range(3).save(path("d"));
  EXPECT_EQ(files("d").size(), 2u) << "the next one cleans up";
  EXPECT_EQ(loaded("d"), numbers(range(3)));
}

TEST_F(SavedDatasets, RefuseASecondWriter) {
  EXPECT_ERROR(range(3)
                   .map([&](const Tensor& x) {
                     range(2).save(path("d"));
                     return x;
                   })
                   .save(path("d")),
               AlreadyExists, "another pass writes these files");
  EXPECT_EQ(files("d").size(), 0u);
}

/// Every damage gives an Error, or what was saved.
TEST_F(SavedDatasets, ThatAreDamagedAnywhereAreAnErrorOrRight) {
  const auto strings = from_tensor_slices(std::vector<std::string>{"a", "bc", "", "d"});
  strings.save(path("d"), {.compression = "ZLIB", .shard_func = [](const std::string& text) {
                             return text.empty() ? 1 : 0;
                           }});
  const auto read = [&] {
    std::string all;
    for (const std::string& text : load<std::string>(path("d"))) all += text + ",";
    return all;
  };
  const std::string right = read();
  EXPECT_EQ(right, "a,,bc,d,");
  int refused = 0, damages = 0;
  for (const std::string& file : files("d")) {
    const std::string whole = bytes_of(path("d/" + file));
    for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
      write("d/" + file, damaged);
      ++damages;
      try {
        EXPECT_EQ(read(), right) << file << " " << what;
      } catch (const Error&) {
        ++refused;
      }
    });
    write("d/" + file, whole);
  }
  EXPECT_EQ(read(), right);
  EXPECT_GT(refused, damages * 9 / 10);
  fs::remove(path("d/elements.data-0-1"));
  EXPECT_ERROR(read(), DataLoss, "elements.data-0-1");
}

TEST_F(SavedDatasets, AsSnapshotsHaveShardsAndReadersToo) {
  int calls = 0;
  const auto make = [&] {
    return range(8)
        .map([&](const Tensor& x) {
          ++calls;
          return x;
        })
        .snapshot(path("s"),
                  {.compression = "GZIP",
                   .reader_func =
                       [](const Dataset<Dataset<Tensor>>& shards) {
                         return shards.flat_map([](const Dataset<Tensor>& shard) { return shard; });
                       },
                   .shard_func = third});
  };
  EXPECT_EQ(numbers(make()), numbers(range(8))) << "the pass that writes goes through";
  EXPECT_EQ(numbers(make()), (Numbers{0, 3, 6, 1, 4, 7, 2, 5}));
  EXPECT_EQ(calls, 8);
  EXPECT_EQ(to_string(make()).substr(0, to_string(make()).find('\n')),
            cat("snapshot(", path("s"),
                ", compression=GZIP, reader_func=function, shard_func=function)"));
}

TEST_F(SavedDatasets, OfSnapshotsGoOnOnlyInTheFilesThatWereRead) {
  const auto make = [&] { return range(6).snapshot(path("s"), {.shard_func = third}); };
  numbers(make());
  auto pass = make().iterator();
  for (int i = 0; i < 4; ++i) pass.next();
  auto other = make().iterator();
  other.restore(pass.save());
  EXPECT_EQ(other.get_next().item<int64_t>(), 4);
  fs::remove(path("s/elements.index"));
  numbers(make());
  EXPECT_ERROR(make().iterator().restore(pass.save()), FailedPrecondition, "a newer cache");
}

}  // namespace
}  // namespace tutti::data
