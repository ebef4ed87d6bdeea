// Iterators of datasets in checkpoints.

#include <unistd.h>

#include <filesystem>

#include "support/expect.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/strategies.h"
#include "tutti/train/checkpoint.h"

namespace tutti::keras {
namespace {

namespace fs = std::filesystem;
using train::Checkpoint;

class IteratorCheckpoints : public ::testing::Test {
 protected:
  IteratorCheckpoints() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / cat("tutti_", test->name(), "_", getpid());
    fs::create_directories(folder_);
  }
  ~IteratorCheckpoints() override { fs::remove_all(folder_); }
  std::string prefix() const { return (folder_ / "ckpt").string(); }
  fs::path folder_;
};

data::Dataset<std::tuple<Tensor, std::string>> pipeline() {
  const auto letters =
      data::from_tensor_slices(std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g"});
  return data::zip(data::range(7), letters).shuffle(4, {.seed = 5}).repeat(3).prefetch(2);
}

TEST_F(IteratorCheckpoints, GoOnWithExactlyTheNextElement) {
  auto iterator = pipeline().iterator();
  for (int i = 0; i < 9; ++i) iterator.next();
  Checkpoint checkpoint({{"iterator", iterator}});
  const std::string path = checkpoint.save(prefix());
  auto other = pipeline().iterator();
  Checkpoint({{"iterator", other}}).restore(path);
  while (auto expected = iterator.next()) {
    const auto got = other.next();
    ASSERT_TRUE(got);
    EXPECT_TRUE(at::equal(std::get<0>(*got), std::get<0>(*expected)));
    EXPECT_EQ(std::get<1>(*got), std::get<1>(*expected));
  }
  EXPECT_FALSE(other.next());
}

TEST_F(IteratorCheckpoints, OfDistributedDatasetsGoOnWithTheNextStep) {
  for (int64_t ahead : {0, 2}) {
    distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    const auto begun = [&] {
      return strategy
          .distribute_dataset(data::range(11).shuffle(6, {.seed = 3}).repeat(2).batch(4),
                              {.per_replica_buffer_size = ahead})
          .iterator();
    };
    auto whole = begun();
    std::vector<std::string> all;
    const auto text = [](const auto& step) {
      return cat(step.values()[0].sum().template item<int64_t>(), " ",
                 step.values()[1].sum().template item<int64_t>());
    };
    while (auto step = whole.get_next_as_optional()) all.push_back(text(*step));
    for (std::size_t at = 0; at <= all.size(); ++at) {
      auto iterator = begun();
      for (std::size_t i = 0; i < at; ++i) iterator.get_next();
      const std::string path = Checkpoint({{"iterator", iterator}}).save(prefix());
      auto other = begun();
      Checkpoint({{"iterator", other}}).restore(path);
      std::vector<std::string> rest;
      while (auto step = other.get_next_as_optional()) rest.push_back(text(*step));
      EXPECT_EQ(rest, std::vector<std::string>(all.begin() + static_cast<int64_t>(at), all.end()));
    }
  }
}

TEST_F(IteratorCheckpoints, OfGeneratorsAreRefused) {
  auto iterator = data::from_generator<Tensor>([] {
                    return []() -> std::optional<Tensor> { return at::ones({}); };
                  }).iterator();
  Checkpoint checkpoint({{"iterator", iterator}});
  EXPECT_ERROR(checkpoint.save(prefix()), FailedPrecondition, "from_generator");
}

}  // namespace
}  // namespace tutti::keras
