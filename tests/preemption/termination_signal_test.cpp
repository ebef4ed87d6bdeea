#include "preemption/termination_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "preemption/polling.h"
#include "support/comes_true.h"

namespace tutti::preemption {
namespace {

using testing::comes_true;

std::atomic<int> calls_of_users{0};
void users_handler(int) { ++calls_of_users; }
void users_handler_with_info(int, siginfo_t*, void*) { ++calls_of_users; }

struct sigaction present() {
  struct sigaction action = {};
  ::sigaction(SIGTERM, nullptr, &action);
  return action;
}

/// The default is back after each test.
class Signal : public ::testing::Test {
 protected:
  Signal() { calls_of_users = 0; }
  ~Signal() override { ::signal(SIGTERM, SIG_DFL); }
};

TEST_F(Signal, CallsEachActionOnAThreadOfItsOwn) {
  std::atomic<int> first{0}, second{0};
  const pthread_t here = ::pthread_self();
  std::atomic<bool> elsewhere{false};
  TerminationSignal one([&] {
    elsewhere = ::pthread_equal(here, ::pthread_self()) == 0;
    ++first;
  });
  TerminationSignal two([&] { ++second; });
  ::raise(SIGTERM);
  EXPECT_TRUE(comes_true([&] { return first == 1 && second == 1; }));
  EXPECT_TRUE(elsewhere);
}

TEST_F(Signal, TheDefaultIsBackWithTheLast) {
  {
    auto one = std::make_unique<TerminationSignal>([] {});
    TerminationSignal two([] {});
    one.reset();
    EXPECT_NE(present().sa_handler, SIG_DFL);
  }
  EXPECT_EQ(present().sa_handler, SIG_DFL);
}

TEST_F(Signal, AHandlerOfTheUsersIsCalledTooAndIsBackAfterwards) {
  ::signal(SIGTERM, users_handler);
  {
    std::atomic<int> calls{0};
    TerminationSignal ours([&] { ++calls; });
    ::raise(SIGTERM);
    EXPECT_EQ(calls_of_users, 1);
    EXPECT_TRUE(comes_true([&] { return calls == 1; }));
  }
  EXPECT_EQ(present().sa_handler, users_handler);
  ::raise(SIGTERM);
  EXPECT_EQ(calls_of_users, 2);
}

TEST_F(Signal, SoIsOneThatTakesTheSignalsInformation) {
  struct sigaction action = {};
  action.sa_sigaction = users_handler_with_info;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGTERM, &action, nullptr);
  {
    TerminationSignal ours([] {});
    ::raise(SIGTERM);
    EXPECT_EQ(calls_of_users, 1);
  }
  EXPECT_EQ(present().sa_sigaction, users_handler_with_info);
}

TEST_F(Signal, AHandlerThatCameLaterStays) {
  {
    TerminationSignal ours([] {});
    ::signal(SIGTERM, users_handler);
  }
  EXPECT_EQ(present().sa_handler, users_handler);
  ::signal(SIGTERM, SIG_DFL);
  {
    TerminationSignal listens_again([] {});
  }  // and leaves nothing behind
}

TEST_F(Signal, ASecondLifeHearsOnlyItsOwnSignals) {
  std::atomic<int> calls{0};
  {
    TerminationSignal first([&] { ++calls; });
  }
  TerminationSignal second([&] { ++calls; });
  ::raise(SIGTERM);
  EXPECT_TRUE(comes_true([&] { return calls == 1; }));
}

TEST_F(Signal, ASignalToAForkedChildIsNotHeardByItsParent) {
  std::atomic<int> calls{0};
  TerminationSignal ours([&] { ++calls; });
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(calls, 0);
  ::raise(SIGTERM);
  EXPECT_TRUE(comes_true([&] { return calls == 1; }));
}

TEST(PollingOfAQuestion, EndsWithTheFirstYes) {
  std::atomic<int> asked{0}, told{0};
  Polling polling([&] { return ++asked == 2; }, [&] { ++told; });
  EXPECT_TRUE(comes_true([&] { return told == 1; }));
  EXPECT_EQ(asked, 2);
}

TEST(PollingOfAQuestion, GoesOnAfterAnException) {
  std::atomic<int> asked{0}, told{0};
  Polling polling(
      [&] {
        if (++asked == 1) throw std::runtime_error("not now");
        return true;
      },
      [&] { ++told; });
  EXPECT_TRUE(comes_true([&] { return told == 1; }));
}

TEST(PollingOfAQuestion, ItsEndDoesNotWaitForTheNextSecond) {
  std::atomic<int> asked{0};
  {
    Polling polling([&] { return ++asked, false; }, [] {});
    EXPECT_TRUE(comes_true([&] { return asked == 1; }));
  }
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace tutti::preemption
