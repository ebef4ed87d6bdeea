#include "collectives/rendezvous.h"

#include <gtest/gtest.h>

#include "support/message_checks.h"
#include "support/run_on_ranks.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using std::chrono::milliseconds;
using testing::run_threads;
using testing::throws_saying;

constexpr milliseconds kLong{90'000};

void pass(Rendezvous& place, int rank, const char* operation = "merge_call") {
  place.meet(rank, {operation}, kLong);
  place.leave(rank, kLong);
}

void run_ranks(Rendezvous& place, const std::function<void(int)>& body) {
  run_threads(place.size(), body, [&] { place.abort("the test's watchdog"); });
}

TEST(Rendezvous, NeedsARank) { EXPECT_THROW(Rendezvous(0), InvalidArgument); }

TEST(Rendezvous, ARankAloneNeverWaits) {
  Rendezvous place(1);
  for (int i = 0; i < 3; ++i) pass(place, 0);
}

// Two ranks spin where there are two cores; seventeen are more than a small machine has, and sleep.
TEST(Rendezvous, EveryRankSeesEveryPayloadAndNobodyReusesItsOwnEarly) {
  for (int size : {2, 5, 17}) {
    Rendezvous place(size);
    std::vector<int> payloads(
        static_cast<std::size_t>(size));  // plain memory: the meeting orders it
    run_ranks(place, [&](int rank) {
      for (int round = 0; round < 300; ++round) {
        int& mine = payloads[static_cast<std::size_t>(rank)];
        mine = 1000 * round + rank;
        place.meet(rank, {"step", &mine}, kLong);
        for (int other = 0; other < size; ++other) {
          ASSERT_EQ(*static_cast<const int*>(place.call_of(other).payload), 1000 * round + other);
        }
        place.leave(rank, kLong);
      }
    });
  }
}

TEST(Rendezvous, DifferentOperationsAreRefusedOnEveryRankAndItStaysUsable) {
  Rendezvous place(3);
  run_ranks(place, [&](int rank) {
    for (int round = 0; round < 20; ++round) {
      EXPECT_TRUE(throws_saying<InvalidArgument>(
          [&] { pass(place, rank, rank == 1 ? "merge_call" : "all_reduce"); },
          {"rank 0 called all_reduce, rank 1 called merge_call"}));
      pass(place, rank);
    }
  });
}

TEST(Rendezvous, OperationsAreComparedByTheirText) {
  Rendezvous place(2);
  const std::string same[] = {"step", "step"};
  run_ranks(place, [&](int rank) { pass(place, rank, same[rank].c_str()); });
}

TEST(Rendezvous, ARankThatHasFinishedIsNamedToThoseThatWaitForIt) {
  Rendezvous place(3);
  run_ranks(place, [&](int rank) {
    pass(place, rank);
    if (rank == 1) return place.finished(rank);
    for (int attempt = 0; attempt < 5;
         ++attempt) {  // an attempt that failed must not count as an arrival
      EXPECT_TRUE(throws_saying<FailedPrecondition>(
          [&] { pass(place, rank); },
          {"merge_call [rank ", "rank 1 has returned without making this call"}));
    }
  });
  place.reset();
  run_ranks(place, [&](int rank) { pass(place, rank); });
}

TEST(Rendezvous, ARankMayFinishWhileOthersAreStillAtItsLastBarrier) {
  Rendezvous place(4);
  for (int round = 0; round < 200; ++round) {
    run_ranks(place, [&](int rank) {
      pass(place, rank);
      place.finished(rank);
    });
    place.reset();
  }
}

TEST(Rendezvous, ADeadlineNamesTheMissingRanksAndBreaksIt) {
  Rendezvous place(4);
  run_ranks(place, [&](int rank) {
    if (rank == 1 || rank == 2) return;
    EXPECT_TRUE(throws_saying<DeadlineExceeded>(
        [&] {
          place.meet(rank, {"merge_call", nullptr, 7}, milliseconds(rank == 0 ? 30 : 60'000));
        },
        {"merge_call [rank ", "call 7", "nothing from rank 1, rank 2 in 30 ms", "all 4 ranks"}));
  });
  EXPECT_THROW(pass(place, 1), DeadlineExceeded);
  // As new: who had arrived before is missing again.
  place.reset();
  EXPECT_TRUE(throws_saying<DeadlineExceeded>([&] { place.meet(1, {"x"}, milliseconds(1)); },
                                              {"nothing from rank 0, rank 2, rank 3 in"}));
}

TEST(Rendezvous, ADeadlineHoldsForLeavingToo) {
  Rendezvous place(2);
  run_ranks(place, [&](int rank) {
    place.meet(rank, {"merge_call"}, kLong);
    if (rank == 1) return;
    EXPECT_TRUE(throws_saying<DeadlineExceeded>([&] { place.leave(0, milliseconds(20)); },
                                                {"nothing from rank 1"}));
  });
}

TEST(Rendezvous, TheFirstAbortIsTheReason) {
  Rendezvous place(2);
  run_ranks(place, [&](int rank) {
    if (rank == 1) {
      place.abort("first");
      place.abort("second");
    }
    EXPECT_TRUE(throws_saying<Aborted>([&] { pass(place, rank); },
                                       {"merge_call [rank ", "aborted, first"}));
  });
  EXPECT_THROW(place.check_open(0, "x"), Aborted);
  place.reset();
  place.check_open(0, "x");
  run_ranks(place, [&](int rank) { pass(place, rank); });
}

TEST(Rendezvous, AbortAtAnyMomentLetsEverybodyOut) {
  for (int round = 0; round < 100; ++round) {
    Rendezvous place(3);
    std::thread outsider([&] {
      for (int i = 0; i < 20 * (round % 10); ++i) std::this_thread::yield();
      place.abort("now");
    });
    run_ranks(place, [&](int rank) { EXPECT_THROW(for (;;) pass(place, rank), Aborted); });
    outsider.join();
  }
}

TEST(Rendezvous, TheObserverIsToldOfEveryWait) {
  class Counter : public WaitObserver {
   public:
    void before_wait(int) override { before.fetch_add(1); }
    void after_wait(int) override { after.fetch_add(1); }
    std::atomic<int> before{0}, after{0};
  };
  Rendezvous place(2);
  Counter counter;
  place.set_wait_observer(&counter);
  run_ranks(place, [&](int rank) { pass(place, rank); });
  EXPECT_EQ(counter.before.load(), 4);
  place.abort("x");
  EXPECT_THROW(pass(place, 0), Aborted);
  EXPECT_EQ(counter.after.load(), counter.before.load());
}

}  // namespace
}  // namespace tutti::collectives
