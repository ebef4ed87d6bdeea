// Ranks that are killed, frozen, late or never there, in real processes: what the others get, and
// how soon.

#include <gtest/gtest.h>

#include <future>

#include "collectives/processes/rank_processes.h"
#include "support/message_checks.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using testing::Command;
using testing::Frame;
using testing::RankPool;
using testing::throws_saying;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kLarge = 4 << 20;  // entries: 16 MB
constexpr int64_t kForever = 1 << 30;
constexpr milliseconds kSoon{1000};
constexpr milliseconds kTelling{500};  // at a deadline: who waits for whom
// For the time that a machine with fewer cores than processes takes to let each of them run.
constexpr milliseconds kSlack{1500};

class ProcessFailures : public ::testing::TestWithParam<const char*> {
 protected:
  ~ProcessFailures() override { RankPool::of_program().renew(); }

  /// Makes a group; empty when all is well, else what each rank's process said.
  void make(int size) {
    RankPool& pool = RankPool::of_program();
    number_ = pool.next_number();
    for (int rank = 0; rank < size; ++rank) {
      pool.process(rank)->tell(testing::make_command(GetParam(), number_, rank, size, 60'000));
    }
    for (int rank = 0; rank < size; ++rank) pool.process(rank)->answer();
  }
  void start_loop(int rank, int64_t numel, int64_t calls, double timeout_seconds = 0) {
    const CommunicationOptions options{.timeout_seconds = timeout_seconds};
    Frame command;
    command.put(Command::kLoop).put(number_).put(numel).put(calls).put(options);
    process(rank)->tell(command);
  }
  static std::shared_ptr<testing::RankProcess> process(int rank) {
    return RankPool::of_program().process(rank);
  }

  /// All but `victim` fail with Unavailable within `limit`, and it is what they name.
  static void expect_named(int size, int victim, milliseconds limit) {
    expect_said<Unavailable>(size, victim, "]: rank " + std::to_string(victim) + " ", limit);
  }
  template <class ErrorType>
  static void expect_said(int size, int victim, const std::string& name, milliseconds limit) {
    const auto start = Clock::now();
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      EXPECT_TRUE(throws_saying<ErrorType>([&] { process(rank)->answer(); }, {name.c_str()}))
          << "on rank " << rank;
      EXPECT_LT(Clock::now() - start, limit) << "on rank " << rank;
    }
  }

  int64_t number_ = 0;
};

TEST_P(ProcessFailures, ARankKilledInALargeAllReduceIsNamedWithinASecond) {
  for (const int size : {2, 4}) {
    for (const int victim : {0, size - 1}) {
      SCOPED_TRACE(::testing::Message() << size << " ranks, rank " << victim << " is killed");
      make(size);
      for (int rank = 0; rank < size; ++rank) start_loop(rank, kLarge, kForever);
      for (int rank = 0; rank < size; ++rank) process(rank)->answer();  // all have begun
      process(victim)->signal(SIGKILL);
      expect_named(size, victim, kSoon + kSlack);
      RankPool::of_program().renew();
    }
  }
}

TEST_P(ProcessFailures, ARankKilledBetweenTheCallsOfTheOthersIsNamedWithinASecond) {
  make(3);
  for (const int rank : {0, 2}) start_loop(rank, 4, kForever);
  process(1)->signal(SIGKILL);  // it has never called
  expect_named(3, 1, kSoon + kSlack);
}

TEST_P(ProcessFailures, AFrozenRankIsNamedAtTheDeadline) {
  for (const auto& [size, victim] : {std::pair(3, 1), std::pair(4, 3)}) {
    SCOPED_TRACE(::testing::Message() << size << " ranks, rank " << victim << " is frozen");
    make(size);
    for (int rank = 0; rank < size; ++rank) start_loop(rank, kLarge, kForever, 2);
    for (int rank = 0; rank < size; ++rank) process(rank)->answer();
    process(victim)->signal(SIGSTOP);
    const auto start = Clock::now();
    // Others wait for ranks that wait themselves: those are not named.
    const std::string said = "]: nothing from rank " + std::to_string(victim) + " in ";
    expect_said<DeadlineExceeded>(size, victim, said, milliseconds(2000) + kTelling + kSlack);
    EXPECT_GT(Clock::now() - start, milliseconds(500));
    RankPool::of_program().renew();
  }
}

TEST_P(ProcessFailures, ARankThatWasFrozenForLessThanTheDeadlineIsWaitedFor) {
  make(2);
  for (int rank = 0; rank < 2; ++rank) start_loop(rank, 1 << 18, 20, 60);
  for (int rank = 0; rank < 2; ++rank) process(rank)->answer();
  process(1)->signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(300));  // how long it stands still, not a meeting
  process(1)->signal(SIGCONT);
  for (int rank = 0; rank < 2; ++rank) EXPECT_NO_THROW(process(rank)->answer());
}

TEST_P(ProcessFailures, ALateRankIsWaitedFor) {
  make(2);
  start_loop(0, 1 << 18, 3);
  std::this_thread::sleep_for(milliseconds(300));  // how late it is
  start_loop(1, 1 << 18, 3);
  for (int rank = 0; rank < 2; ++rank) process(rank)->answer();
  for (int rank = 0; rank < 2; ++rank) EXPECT_NO_THROW(process(rank)->answer());
}

TEST_P(ProcessFailures, AnAbortReachesARankInAnotherProcessInTheMiddleOfACall) {
  make(3);
  for (const int rank : {0, 1}) start_loop(rank, kLarge, kForever);
  const auto start = Clock::now();
  process(2)->ask_urgently(Frame().put(Command::kAbort).put(number_).put(std::string("enough")));
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(throws_saying<Aborted>([&] { process(rank)->answer(); }, {"aborted, enough"}));
  }
  EXPECT_LT(Clock::now() - start, kSoon + kSlack);
}

TEST_P(ProcessFailures, ARankThatLeavesIsNamedAndNotWaitedFor) {
  make(2);
  const auto start = Clock::now();
  process(1)->ask(Frame().put(Command::kDestroy).put(number_));
  start_loop(0, 4, kForever);
  EXPECT_TRUE(throws_saying<Unavailable>([] { process(0)->answer(); }, {"rank 1"}));
  EXPECT_LT(Clock::now() - start, kSoon + kSlack);
}

TEST_P(ProcessFailures, Issue53_ARankThatNeverStartsIsNamedByThoseThatBuildTheGroup) {
  RankPool& pool = RankPool::of_program();
  const int64_t number = pool.next_number();
  const auto start = Clock::now();
  for (const int rank : {0, 1}) {
    process(rank)->tell(testing::make_command(GetParam(), number, rank, 3, 500));
  }
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(
        throws_saying<DeadlineExceeded>([&] { process(rank)->answer(); }, {"rank 2", "500 ms"}));
  }
  EXPECT_LT(Clock::now() - start, milliseconds(1000) + kSlack);
}

TEST_P(ProcessFailures, AGroupIsBuiltAgainWithoutTheOneThatDied) {
  make(3);
  for (int rank = 0; rank < 3; ++rank) start_loop(rank, kLarge, kForever);
  for (int rank = 0; rank < 3; ++rank) process(rank)->answer();
  process(2)->signal(SIGKILL);
  expect_named(3, 2, kSoon + kSlack);
  make(2);  // the same processes
  for (int rank = 0; rank < 2; ++rank) start_loop(rank, kLarge, 3);
  for (int rank = 0; rank < 2; ++rank) process(rank)->answer();
  for (int rank = 0; rank < 2; ++rank) EXPECT_NO_THROW(process(rank)->answer());
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessFailures,
                         ::testing::Values("shm", "gloo", "hierarchical"));

}  // namespace
}  // namespace tutti::collectives
