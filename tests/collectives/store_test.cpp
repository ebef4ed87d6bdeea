#include "collectives/store.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using std::chrono::milliseconds;
using testing::throws_saying;

/// Every store passes these.
class StoreContract : public testing::TemporaryFolder, public ::testing::WithParamInterface<bool> {
 protected:
  std::shared_ptr<Store> make() const {
    if (GetParam()) return std::make_shared<FileStore>(folder_.string());
    return std::make_shared<InMemoryStore>();
  }
};

TEST_P(StoreContract, GetGivesTheLastValueSet) {
  const auto store = make();
  const std::string bytes("a\0/b\n", 5);
  store->set("key", "first");
  store->set("key", bytes);
  EXPECT_EQ(store->get("key", milliseconds(0)), bytes);
}

TEST_P(StoreContract, KeysThatLookAlikeAreApart) {
  const auto store = make();
  store->set("a/b", "1");
  store->set("a%2fb", "2");
  store->set("../a", "3");
  EXPECT_EQ(store->get("a/b", milliseconds(0)), "1");
  EXPECT_EQ(store->get("a%2fb", milliseconds(0)), "2");
  EXPECT_EQ(store->get("../a", milliseconds(0)), "3");
}

TEST_P(StoreContract, GetWaitsForAKeyThatIsSetLater) {
  const auto store = make();
  std::thread setter([&] { store->set("late", "here"); });
  EXPECT_EQ(store->get("late", milliseconds(60'000)), "here");
  setter.join();
}

TEST_P(StoreContract, GetEndsAtItsDeadlineAndNamesTheKey) {
  const auto store = make();
  EXPECT_TRUE(throws_saying<DeadlineExceeded>([&] { store->get("never", milliseconds(10)); },
                                              {"\"never\"", "10 ms"}));
}

TEST_P(StoreContract, WaitNamesAllThatAreMissing) {
  const auto store = make();
  store->set("here", "");
  const std::vector<std::string> keys{"a", "here", "b"};
  EXPECT_TRUE(throws_saying<DeadlineExceeded>([&] { store->wait(keys, milliseconds(10)); },
                                              {"\"a\", \"b\""}));
  store->set("a", "");
  store->set("b", "");
  EXPECT_NO_THROW(store->wait(keys, milliseconds(0)));
}

TEST_P(StoreContract, AddCountsEveryCallOfEveryThread) {
  const auto store = make();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 25; ++j) store->add("count", 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->add("count", -1), 199);
}

TEST_P(StoreContract, ARemovedKeyIsAsIfItHadNeverBeenSet) {
  const auto store = make();
  store->set("key", "value");
  store->add("count", 5);
  store->remove("key");
  store->remove("count");
  EXPECT_THROW(store->get("key", milliseconds(0)), DeadlineExceeded);
  EXPECT_EQ(store->add("count", 1), 1);
}

INSTANTIATE_TEST_SUITE_P(InMemory, StoreContract, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(InAFolder, StoreContract, ::testing::Values(true));

TEST(FileStore, AFolderThatIsNotThereIsNamed) {
  FileStore store("/nonexistent/folder");
  EXPECT_TRUE(throws_saying<Unavailable>([&] { store.set("key", "value"); },
                                         {"/nonexistent/folder", "can be written"}));
}

}  // namespace
}  // namespace tutti::collectives
