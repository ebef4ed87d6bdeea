#pragma once
// What every backend must do when all goes well; communicator_failure_contract.h has the rest of
// the suite. A backend enters by one line:
//   INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorContract,
//                            ::testing::Values(GroupMaker{"gloo", make_gloo_group}));
// Every case runs on groups of several sizes. local_reduce is the oracle, bit for bit.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <atomic>

#include "collectives/local_reduce.h"
#include "support/message_checks.h"
#include "support/run_on_ranks.h"
#include "support/tensor_checks.h"
#include "tutti/base/error.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

using testing::run_on_ranks;
using testing::throws_saying;

struct GroupMaker {
  const char* name;
  std::function<testing::Group(int size)> make;
};
inline void PrintTo(const GroupMaker& maker, std::ostream* out) { *out << maker.name; }

class CommunicatorContract : public ::testing::TestWithParam<GroupMaker> {
 protected:
  using Body = std::function<void(Communicator&)>;

  testing::Group make(int size) { return GetParam().make(size); }
  /// Once on a group of each size from `smallest` up.
  void on_groups(int smallest, const Body& body) {
    for (int size : {1, 2, 3, 4, 8}) {
      if (size < smallest) continue;
      SCOPED_TRACE(size);
      testing::Group group = make(size);
      run_on_ranks(group, body);
    }
  }

  /// The tensor of `rank`; every rank can make everybody's.
  static at::Tensor example(int rank, at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat,
                            int64_t seed = 0) {
    at::Generator generator =
        at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * seed + rank + 1));
    // Of many magnitudes, so that another order of adding would show.
    const at::Tensor noise =
        at::randn(sizes, generator, at::kDouble) * at::randn(sizes, generator, at::kDouble).exp();
    return at::isIntegralType(dtype, true) ? (noise * 50).to(at::kLong).to(dtype) : noise.to(dtype);
  }
  static std::vector<at::Tensor> examples(int size, at::IntArrayRef sizes,
                                          at::ScalarType dtype = at::kFloat, int64_t seed = 0) {
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(example(rank, sizes, dtype, seed));
    return all;
  }

  /// The group still does what it should.
  static void expect_usable(Communicator& group) {
    at::Tensor x = at::full({3}, group.rank() + 1.0);
    group.all_reduce(x, ReduceOp::kSum);
    EXPECT_TENSOR_EQ(x, at::full({3}, group.size() * (group.size() + 1) / 2.0));
  }
  static CommunicationOptions within(double seconds) { return {.timeout_seconds = seconds}; }
};

TEST_P(CommunicatorContract, AllReduceSumAddsInRankOrder) {
  on_groups(1, [](Communicator& group) {
    for (int64_t numel : {1, 7, 1024, 1025, 5000, 100003}) {
      at::Tensor x = example(group.rank(), {numel});
      group.all_reduce(x, ReduceOp::kSum);
      EXPECT_TENSOR_EQ(x, local_reduce(ReduceOp::kSum, examples(group.size(), {numel})));
    }
  });
}

TEST_P(CommunicatorContract, AllReduceMeanDividesTheSumByTheGroupSize) {
  on_groups(1, [](Communicator& group) {
    at::Tensor small = at::full({3}, group.rank() + 1.0);
    group.all_reduce(small, ReduceOp::kMean);
    EXPECT_TENSOR_EQ(small, at::full({3}, (group.size() + 1) / 2.0));
    at::Tensor x = example(group.rank(), {33, 77});
    group.all_reduce(x, ReduceOp::kMean);
    EXPECT_TENSOR_EQ(x, local_reduce(ReduceOp::kMean, examples(group.size(), {33, 77})));
  });
}

TEST_P(CommunicatorContract, AllReduceTakesEveryDtype) {
  on_groups(1, [](Communicator& group) {
    for (at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
          at::kChar, at::kByte, at::kBool, at::kComplexFloat}) {
      for (int64_t numel : {5, 3000}) {
        at::Tensor x = example(group.rank(), {numel}, dtype);
        group.all_reduce(x, ReduceOp::kSum);
        EXPECT_TENSOR_EQ(x, local_reduce(ReduceOp::kSum, examples(group.size(), {numel}, dtype)));
        if (at::isIntegralType(dtype, true)) continue;
        x = example(group.rank(), {numel}, dtype);
        group.all_reduce(x, ReduceOp::kMean);
        EXPECT_TENSOR_EQ(x, local_reduce(ReduceOp::kMean, examples(group.size(), {numel}, dtype)));
      }
    }
  });
}

TEST_P(CommunicatorContract, AllReduceTakesScalarsAndEmptyTensors) {
  on_groups(1, [](Communicator& group) {
    at::Tensor scalar = at::scalar_tensor(group.rank() + 1, at::kLong);
    group.all_reduce(scalar, ReduceOp::kSum);
    EXPECT_EQ(scalar.item<int64_t>(), group.size() * (group.size() + 1) / 2);
    at::Tensor empty = at::empty({0, 4});
    group.all_reduce(empty, ReduceOp::kMean);
    EXPECT_EQ(empty.sizes(), (at::IntArrayRef{0, 4}));
  });
}

TEST_P(CommunicatorContract, AllReduceWritesTheCallersMemory) {
  on_groups(1, [](Communicator& group) {
    at::Tensor arena = at::ones({100});
    at::Tensor part = arena.narrow(0, 3, 50);  // off the cache lines
    group.all_reduce(part, ReduceOp::kSum);
    at::Tensor wanted = at::ones({100});
    wanted.narrow(0, 3, 50).fill_(group.size());
    EXPECT_TENSOR_EQ(arena, wanted);
  });
}

TEST_P(CommunicatorContract, AllReduceMovesTheVersionThatAutogradWatches) {
  on_groups(2, [](Communicator& group) {
    at::Tensor x = at::ones({2000});
    const auto before = x._version();
    group.all_reduce(x, ReduceOp::kSum);
    EXPECT_GT(x._version(), before);
  });
}

TEST_P(CommunicatorContract, AStartedAllReduceGivesWhatAllReduceGives) {
  on_groups(1, [](Communicator& group) {
    at::Tensor a = example(group.rank(), {3000}, at::kFloat, 1);
    at::Tensor b = example(group.rank(), {10}, at::kFloat, 2);
    auto first = group.start_all_reduce(a, ReduceOp::kSum);
    auto second = group.start_all_reduce(b, ReduceOp::kMean);
    // Another order on each rank, which the contract allows.
    (group.rank() % 2 == 0 ? first : second)->wait();
    (group.rank() % 2 == 0 ? second : first)->wait();
    first->wait();
    EXPECT_TENSOR_EQ(a,
                     local_reduce(ReduceOp::kSum, examples(group.size(), {3000}, at::kFloat, 1)));
    EXPECT_TENSOR_EQ(b, local_reduce(ReduceOp::kMean, examples(group.size(), {10}, at::kFloat, 2)));
  });
}

TEST_P(CommunicatorContract, AStartedAllReduceMayBeDropped) {
  on_groups(1, [](Communicator& group) {
    at::Tensor x = at::ones({10});
    auto work = group.start_all_reduce(x, ReduceOp::kSum);
    if (group.rank() == 0) {
      work.reset();
    } else {
      work->wait();
    }
    work.reset();
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, AStartedAllReduceThrowsAtWait) {
  on_groups(2, [](Communicator& group) {
    at::Tensor x = at::ones({group.rank() == 1 ? 3 : 4});
    auto work = group.start_all_reduce(x, ReduceOp::kSum);
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { work->wait(); }, {"(4,)", "(3,)", "call 1"}));
    work.reset();
    expect_usable(group);
  });
}

TEST_P(CommunicatorContract, AFailedWorkThatIsDroppedBreaksTheGroup) {
  testing::Group group = make(2);
  run_on_ranks(group, [](Communicator& rank) {
    at::Tensor x = at::ones({rank.rank() + 1});
    rank.start_all_reduce(x, ReduceOp::kSum).reset();
    EXPECT_TRUE(
        throws_saying<Aborted>([&] { rank.barrier(); }, {"start_all_reduce", "not waited for"}));
  });
}

TEST_P(CommunicatorContract, AllGatherJoinsInRankOrder) {
  on_groups(1, [](Communicator& group) {
    const at::Tensor mine = example(group.rank(), {2, 3});
    EXPECT_TENSOR_EQ(group.all_gather(mine), at::cat(examples(group.size(), {2, 3})));
  });
}

TEST_P(CommunicatorContract, AllGatherTakesUnevenRows) {
  on_groups(1, [](Communicator& group) {
    std::vector<at::Tensor> all;  // rank 0 has no rows
    for (int rank = 0; rank < group.size(); ++rank)
      all.push_back(example(rank, {rank, 3}, at::kInt));
    EXPECT_TENSOR_EQ(group.all_gather(all[static_cast<std::size_t>(group.rank())]), at::cat(all));
  });
}

TEST_P(CommunicatorContract, AllGatherHasNoHistory) {
  on_groups(1, [](Communicator& group) {
    const at::Tensor x = at::ones({2}).requires_grad_();
    EXPECT_FALSE(group.all_gather(x).requires_grad());
  });
}

TEST_P(CommunicatorContract, ReduceScatterGivesEachRankItsRows) {
  on_groups(1, [](Communicator& group) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const int64_t rows = 2 * group.size();
      const at::Tensor all = local_reduce(op, examples(group.size(), {rows, 5}));
      EXPECT_TENSOR_EQ(group.reduce_scatter(example(group.rank(), {rows, 5}), op),
                       all.narrow(0, 2 * group.rank(), 2));
    }
    EXPECT_EQ(group.reduce_scatter(at::ones({0, 2}), ReduceOp::kSum).sizes(),
              (at::IntArrayRef{0, 2}));
  });
}

TEST_P(CommunicatorContract, BroadcastGivesTheRootsTensor) {
  on_groups(1, [](Communicator& group) {
    for (int root = 0; root < group.size(); ++root) {
      at::Tensor x = example(group.rank(), {41, 3});
      group.broadcast(x, root);
      EXPECT_TENSOR_EQ(x, example(root, {41, 3}));
    }
  });
}

TEST_P(CommunicatorContract, BarrierLetsNobodyThroughEarly) {
  std::atomic<int> arrived{0};
  testing::Group group = make(4);
  run_on_ranks(group, [&](Communicator& rank) {
    for (int round = 1; round <= 100; ++round) {
      arrived.fetch_add(1);
      rank.barrier();
      EXPECT_GE(arrived.load(), 4 * round);
      rank.barrier();
    }
  });
}

TEST_P(CommunicatorContract, ManyMixedCallsKeepInStep) {
  on_groups(1, [](Communicator& group) {
    uint64_t state = 7;  // the same on every rank
    for (int call = 0; call < 1000; ++call) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const int64_t numel = 1 + static_cast<int64_t>((state >> 40) % 3000);
      at::Tensor x = at::full({group.size(), numel}, call + group.rank(), at::kFloat);
      const float sum =
          static_cast<float>(group.size() * call) + group.size() * (group.size() - 1) / 2.0F;
      const int root = static_cast<int>((state >> 34) % static_cast<uint64_t>(group.size()));
      switch ((state >> 60) % 5) {
        case 0:
          group.all_reduce(x, ReduceOp::kSum);
          ASSERT_TENSOR_EQ(x, at::full_like(x, sum));
          break;
        case 1:
          ASSERT_TENSOR_EQ(group.reduce_scatter(x, ReduceOp::kSum), at::full({1, numel}, sum));
          break;
        case 2:
          group.broadcast(x, root);
          ASSERT_TENSOR_EQ(x, at::full_like(x, call + root));
          break;
        case 3:
          ASSERT_EQ(group.all_gather(x).sum(at::kDouble).item<double>(),
                    static_cast<double>(sum) * group.size() * numel);
          break;
        default:
          group.barrier();
      }
    }
    EXPECT_EQ(group.num_calls(), 1000);
  });
}

}  // namespace tutti::collectives
