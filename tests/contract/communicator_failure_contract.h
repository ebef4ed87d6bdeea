#pragma once
// What every backend must do when a rank errs, disagrees, fails or stays away: the second half of
// the suite that communicator_contract.h begins.

#include <cmath>

#include "contract/communicator_contract.h"

namespace tutti::collectives {

// ---- Wrong on one rank alone: refused at once, and nobody else hears of it ---------------------

TEST_P(CommunicatorContract, ATensorThatIsNotContiguousIsRefusedAndTheCallCanBeMadeAgain) {
  on_groups(1, [](Communicator& group) {
    at::Tensor x = at::ones({4, 6});
    if (group.rank() == 0) {
      at::Tensor turned = x.t();
      const auto said = {"strides (1, 6) for sizes (6, 4)", "call contiguous() first", "rank 0/",
                         "call 1"};
      EXPECT_TRUE(
          throws_saying<InvalidArgument>([&] { group.all_reduce(turned, ReduceOp::kSum); }, said));
      EXPECT_TRUE(throws_saying<InvalidArgument>(
          [&] { group.start_all_reduce(turned, ReduceOp::kSum); }, said));
      EXPECT_TRUE(throws_saying<InvalidArgument>([&] { group.all_gather(turned); }, said));
      EXPECT_TRUE(throws_saying<InvalidArgument>([&] { group.broadcast(turned, 0); }, said));
    }
    group.all_reduce(x, ReduceOp::kSum);
    EXPECT_TENSOR_EQ(x, at::full({4, 6}, static_cast<double>(group.size())));
    EXPECT_EQ(group.num_calls(), 1);
  });
}

TEST_P(CommunicatorContract, ArgumentsAreChecked) {
  testing::Group group = make(2);
  Communicator& rank = *group[0];
  at::Tensor undefined;
  at::Tensor ints = at::ones({2}, at::kInt);
  at::Tensor sparse = at::ones({2}).to_sparse();
  at::Tensor x = at::ones({3});
  const auto refused = [](auto call, std::initializer_list<const char*> parts) {
    EXPECT_TRUE(throws_saying<InvalidArgument>(call, parts));
  };
  refused([&] { rank.all_reduce(undefined, ReduceOp::kSum); }, {"all_reduce [", "undefined"});
  refused([&] { rank.all_reduce(sparse, ReduceOp::kSum); }, {"sparse", "to_dense()"});
  refused([&] { rank.all_reduce(ints, ReduceOp::kMean); }, {"MEAN of int32", "use SUM"});
  refused([&] { rank.reduce_scatter(ints, ReduceOp::kMean); },
          {"reduce_scatter [", "MEAN of int32"});
  refused([&] { rank.reduce_scatter(x, ReduceOp::kSum); }, {"sizes (3,)", "divide by 2 ranks"});
  refused([&] { rank.all_gather(at::scalar_tensor(1.0)); }, {"a scalar", "unsqueeze(0)"});
  refused([&] { rank.broadcast(x, 2); }, {"root 2", "from 0 to 1"});
  refused([&] { rank.broadcast(x, -1); }, {"root -1"});
  refused([&] { rank.barrier(within(-1)); }, {"timeout_seconds -1"});
  refused([&] { rank.barrier(within(std::nan(""))); }, {"timeout_seconds nan"});
  refused([&] { rank.barrier({.bytes_per_pack = -5}); }, {"bytes_per_pack -5"});
  EXPECT_EQ(rank.num_calls(), 0);
}

TEST_P(CommunicatorContract, WhereNamesBackendAndRank) {
  testing::Group group = make(3);
  EXPECT_EQ(group[1]->where(), std::string(GetParam().name) + " rank 1/3");
}

// ---- Ranks that disagree: refused on every rank, both calls named, the group goes on ------------

TEST_P(CommunicatorContract, DifferentSizesAreRefusedOnEveryRank) {
  on_groups(2, [](Communicator& group) {
    expect_usable(group);
    at::Tensor x = at::ones({group.rank() == 1 ? 4 : 3});
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { group.all_reduce(x, ReduceOp::kSum); },
                                               {"rank 0: all_reduce SUM float32 (3,), call 2; rank "
                                                "1: all_reduce SUM float32 (4,), call 2"}));
    EXPECT_TENSOR_EQ(x, at::ones_like(x));
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, DifferentDtypesAreRefusedOnEveryRank) {
  on_groups(2, [](Communicator& group) {
    const bool last = group.rank() == group.size() - 1;
    at::Tensor x = at::ones({3}, last ? at::kDouble : at::kFloat);
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { group.broadcast(x, 0); },
                                       {"rank 0: broadcast float32 (3,) from root 0, call 1; rank ",
                                        ": broadcast float64 (3,) from root 0, call 1"}));
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { group.all_gather(x); }, {"float32", "float64"}));
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, DifferentOpsAreRefusedOnEveryRank) {
  on_groups(2, [](Communicator& group) {
    at::Tensor x = at::ones({group.size(), 3});
    const ReduceOp op = group.rank() == 0 ? ReduceOp::kMean : ReduceOp::kSum;
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { group.all_reduce(x, op); }, {"all_reduce MEAN float32", "all_reduce SUM float32"}));
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { group.reduce_scatter(x, op); },
        {"reduce_scatter MEAN float32", "reduce_scatter SUM float32"}));
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, DifferentRootsAreRefusedOnEveryRank) {
  on_groups(2, [](Communicator& group) {
    at::Tensor x = at::ones({3});
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { group.broadcast(x, group.rank() == 0 ? 1 : 0); }, {"from root 1", "from root 0"}));
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, DifferentVerbsAreRefusedOnEveryRank) {
  on_groups(2, [](Communicator& group) {
    at::Tensor x = at::ones({3});
    const auto call = [&] {
      if (group.rank() == 1) {
        group.all_gather(x);
      } else {
        group.all_reduce(x, ReduceOp::kSum);
      }
    };
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        call, {"rank 0 called all_reduce, rank 1 called all_gather"}));
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, AllGatherRefusesOtherSizesThanThoseOfTheFirstDimension) {
  on_groups(2, [](Communicator& group) {
    const at::Tensor x = group.rank() == 1 ? at::ones({2, 4}) : at::ones({2, 3});
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { group.all_gather(x); }, {"all_gather float32 (2, 3)", "all_gather float32 (2, 4)"}));
    const at::Tensor y = group.rank() == 1 ? at::ones({2, 3, 1}) : at::ones({2, 3});
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { group.all_gather(y); }, {"(2, 3, 1)"}));
    expect_usable(group);
  });
}

// ---- Ranks that fail or stay away
// ----------------------------------------------------------------

TEST_P(CommunicatorContract, Issue52_AbortWakesTheRanksThatWait) {
  on_groups(2, [](Communicator& group) {
    if (group.rank() == 0) {
      group.abort("rank 0 had enough");
      EXPECT_THROW(group.barrier(), Aborted);
      return;
    }
    at::Tensor x = at::ones({3});
    EXPECT_TRUE(throws_saying<Aborted>([&] { group.all_reduce(x, ReduceOp::kSum); },
                                       {"all_reduce [", "rank 0 had enough"}));
    EXPECT_THROW(group.all_gather(x), Aborted);
  });
}

TEST_P(CommunicatorContract, AbortComesFromAnyThread) {
  testing::Group group = make(3);
  std::atomic<int> about_to_wait{0};
  std::thread outsider([&] {
    while (about_to_wait.load() < 2) std::this_thread::yield();
    group[2]->abort("from outside");
  });
  run_on_ranks(group, [&](Communicator& rank) {
    if (rank.rank() == 2) return;
    about_to_wait.fetch_add(1);
    EXPECT_TRUE(throws_saying<Aborted>([&] { rank.barrier(); }, {"barrier [", "from outside"}));
  });
  outsider.join();
}

TEST_P(CommunicatorContract, ARankThatNeverComesIsNamedWithinTheTimeout) {
  on_groups(2, [](Communicator& group) {
    const int absent = group.size() - 1;
    if (group.rank() == absent) return;
    at::Tensor x = at::ones({3});
    const auto start = std::chrono::steady_clock::now();
    const std::string name = "nothing from rank " + std::to_string(absent);
    EXPECT_TRUE(
        throws_saying<DeadlineExceeded>([&] { group.all_reduce(x, ReduceOp::kSum, within(0.1)); },
                                        {"all_reduce [", "call 1", name.c_str(), "100 ms"}));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  });
}

TEST_P(CommunicatorContract, ADeadlineBreaksTheGroup) {
  testing::Group group = make(2);
  at::Tensor x = at::ones({3});
  EXPECT_THROW(group[0]->all_reduce(x, ReduceOp::kSum, within(0.01)), DeadlineExceeded);
  EXPECT_THROW(group[1]->all_reduce(x, ReduceOp::kSum), DeadlineExceeded);
  EXPECT_THROW(group[0]->barrier(), DeadlineExceeded);
}

TEST_P(CommunicatorContract, ASlowRankIsWaitedFor) {
  on_groups(2, [](Communicator& group) {
    // Slower than any spinning, so that the others sleep and must be woken.
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, GroupsAreIndependent) {
  testing::Group broken = make(2);
  testing::Group group = make(2);
  broken[0]->abort("this one only");
  run_on_ranks(group, [&](Communicator& rank) {
    EXPECT_THROW(broken[static_cast<std::size_t>(rank.rank())]->barrier(), Aborted);
    expect_usable(rank);
  });
}

}  // namespace tutti::collectives
