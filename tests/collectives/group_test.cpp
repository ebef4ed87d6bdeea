// What the contract suite does not reach: large tensors, arenas, narrow wires, and how a group is
// built.

#include "collectives/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <future>

#include "collectives/gloo/gloo.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/local_reduce.h"
#include "collectives/shm/shm.h"
#include "support/message_checks.h"
#include "support/run_on_ranks.h"
#include "support/tensor_checks.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using std::chrono::milliseconds;
using testing::Group;
using testing::run_on_ranks;
using testing::throws_saying;
using Maker = std::unique_ptr<Communicator> (*)(const GroupOptions&);

/// Of many magnitudes, so that another order of adding would show.
at::Tensor example(int rank, int64_t numel, at::ScalarType dtype = at::kFloat) {
  const at::Tensor n = at::arange(numel, at::kDouble) * (rank + 3);
  return ((n * 0.7).sin() * (n * 0.011).cos().mul(6).exp()).to(dtype);
}
std::vector<at::Tensor> examples(int size, int64_t numel, at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(example(rank, numel, dtype));
  return all;
}

std::unique_ptr<Communicator> make_on_hosts_of_three(const GroupOptions& options) {
  GroupOptions told = options;
  told.host = std::to_string(options.rank / 3);
  return make_hierarchical(told);
}
std::unique_ptr<Communicator> make_on_hosts_of_one(const GroupOptions& options) {
  GroupOptions told = options;
  told.host = std::to_string(options.rank);
  return make_hierarchical(told);
}

struct Case {
  const char* name;
  Maker make;
};
void PrintTo(const Case& what, std::ostream* out) { *out << what.name; }

class LargeTensors : public ::testing::TestWithParam<Case> {};

TEST_P(LargeTensors, AllReduceAddsInRankOrder) {
  for (const int size : {2, 3, 4}) {
    Group group = make_local_group(size, GetParam().make);
    for (const int64_t numel : {65536, 3'000'017}) {
      const at::Tensor wanted = local_reduce(ReduceOp::kMean, examples(size, numel));
      run_on_ranks(group, [&](Communicator& rank) {
        at::Tensor x = example(rank.rank(), numel);
        rank.all_reduce(x, ReduceOp::kMean);
        EXPECT_TENSOR_EQ(x, wanted);
      });
    }
  }
}

TEST_P(LargeTensors, AllReduceOfNarrowDtypesRoundsAsOperatorsDo) {
  Group group = make_local_group(3, GetParam().make);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kComplexFloat, at::kBool}) {
    const ReduceOp op = dtype == at::kBool ? ReduceOp::kSum : ReduceOp::kMean;
    const at::Tensor wanted = local_reduce(op, examples(3, 300'007, dtype));
    run_on_ranks(group, [&](Communicator& rank) {
      at::Tensor x = example(rank.rank(), 300'007, dtype);
      rank.all_reduce(x, op);
      EXPECT_TENSOR_EQ(x, wanted);
    });
  }
}

TEST_P(LargeTensors, TheOtherCallsMoveThemWhole) {
  Group group = make_local_group(3, GetParam().make);
  constexpr int64_t kRows = 300'003;
  const at::Tensor sum = local_reduce(ReduceOp::kSum, examples(3, kRows));
  run_on_ranks(group, [&](Communicator& rank) {
    const int64_t part = kRows / 3;
    EXPECT_TENSOR_EQ(rank.reduce_scatter(example(rank.rank(), kRows), ReduceOp::kSum),
                     sum.narrow(0, part * rank.rank(), part));
    at::Tensor x = example(rank.rank(), kRows);
    rank.broadcast(x, 1);
    EXPECT_TENSOR_EQ(x, example(1, kRows));
    // Rank 0 brings nothing, rank 2 most.
    const int64_t rows = rank.rank() * 150'000;
    EXPECT_TENSOR_EQ(rank.all_gather(example(rank.rank(), rows)),
                     at::cat({example(1, 150'000), example(2, 300'000)}));
    EXPECT_TENSOR_EQ(rank.all_gather(at::full({2}, rank.rank())),
                     at::arange(3).repeat_interleave(2));
  });
}

TEST_P(LargeTensors, StartedCallsOfSeveralBucketsKeepTheirOrder) {
  Group group = make_local_group(2, GetParam().make);
  run_on_ranks(group, [&](Communicator& rank) {
    std::vector<at::Tensor> buckets;
    std::vector<std::unique_ptr<Work>> works;
    for (int64_t i = 0; i < 8; ++i) buckets.push_back(example(rank.rank(), 1000 + 20'000 * i));
    for (at::Tensor& bucket : buckets) {
      works.push_back(rank.start_all_reduce(bucket, ReduceOp::kSum));
    }
    at::Tensor after = at::ones({1});  // a call that is not started waits for those that are
    rank.all_reduce(after, ReduceOp::kSum);
    for (auto& work : works) work->wait();
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_TENSOR_EQ(buckets[static_cast<std::size_t>(i)],
                       local_reduce(ReduceOp::kSum, examples(2, 1000 + 20'000 * i)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, LargeTensors,
                         ::testing::Values(Case{"shm", make_shm}, Case{"gloo", make_gloo},
                                           Case{"hosts_of_three", make_on_hosts_of_three},
                                           Case{"hosts_of_one", make_on_hosts_of_one}));

// ---- The arena ---------------------------------------------------------------------------------

TEST(SharedArena, TensorsInItAreReducedInPlaceWithTheSameBits) {
  for (const int size : {1, 2, 3, 4}) {
    Group group = make_local_group(size, make_shm);
    const at::Tensor wanted = local_reduce(ReduceOp::kMean, examples(size, 200'003));
    run_on_ranks(group, [&](Communicator& rank) {
      const auto arena = shared_arena(rank);
      const at::Tensor before = arena->empty({17 * (rank.rank() + 1)}, at::kFloat);
      at::Tensor x = arena->empty({200'003}, at::kFloat);  // at another place on each rank
      x.copy_(example(rank.rank(), 200'003));
      EXPECT_TRUE(arena->contains(x));
      rank.all_reduce(x, ReduceOp::kMean);
      EXPECT_TENSOR_EQ(x, wanted);
    });
  }
}

TEST(SharedArena, TensorsInItOnSomeRanksOnlyGoThroughTheSlots) {
  Group group = make_local_group(2, make_shm);
  const at::Tensor wanted = local_reduce(ReduceOp::kSum, examples(2, 50'000));
  run_on_ranks(group, [&](Communicator& rank) {
    at::Tensor x = example(rank.rank(), 50'000);
    if (rank.rank() == 1) {
      at::Tensor shared = shared_arena(rank)->empty({50'000}, at::kFloat);
      x = shared.copy_(x);
    }
    rank.all_reduce(x, ReduceOp::kSum);
    EXPECT_TENSOR_EQ(x, wanted);
  });
}

TEST(SharedArena, ViewsOfAnArenaBufferAreReducedInPlaceToo) {
  Group group = make_local_group(2, make_shm);
  run_on_ranks(group, [&](Communicator& rank) {
    const at::Tensor arena = shared_arena(rank)->empty({10'000}, at::kFloat).fill_(1);
    at::Tensor bucket = arena.narrow(0, 3, 5000);
    rank.all_reduce(bucket, ReduceOp::kSum);
    EXPECT_EQ(arena.sum().item<double>(), 15'000);
  });
}

TEST(SharedArena, GivesMemoryBackAndSaysWhenItIsFull) {
  Group group = make_local_group(1, [](const GroupOptions& options) {
    GroupOptions small = options;
    small.arena_bytes = 1 << 20;  // rounded up to 2 MB
    return make_shm(small);
  });
  const auto arena = shared_arena(*group[0]);
  for (int round = 0; round < 5; ++round) {
    const at::Tensor a = arena->empty({1 << 18}, at::kFloat);
    const at::Tensor b = arena->empty({1 << 18}, at::kFloat);
    EXPECT_TRUE(throws_saying<ResourceExhausted>([&] { arena->empty({1}, at::kFloat); },
                                                 {"0 of 2097152 are free", "arena_bytes"}));
  }
  EXPECT_FALSE(arena->contains(at::ones({3})));
}

TEST(SharedArena, ATensorOutlivesItsCommunicator) {
  Group group = make_local_group(2, make_shm);
  const at::Tensor x = shared_arena(*group[1])->empty({1000}, at::kFloat).fill_(7);
  group.clear();
  EXPECT_EQ(x.sum().item<double>(), 7000);
}

TEST(SharedArena, OnlySharedMemoryHasOne) {
  Group group = make_local_group(1, make_gloo);
  EXPECT_EQ(shared_arena(*group[0]), nullptr);
}

// ---- Narrow wires ------------------------------------------------------------------------------

struct Narrow {
  const char* name;
  Maker make;
  WireDtype wire;
  double tolerance;  // relative to the largest value
};
void PrintTo(const Narrow& what, std::ostream* out) { *out << what.name; }

class NarrowWire : public ::testing::TestWithParam<Narrow> {};

TEST_P(NarrowWire, AllRanksGetTheSameBitsNearTheExactSum) {
  const CommunicationOptions options{.wire_dtype = GetParam().wire};
  for (const int size : {2, 4}) {
    Group group = make_local_group(size, GetParam().make);
    const at::Tensor exact = local_reduce(ReduceOp::kMean, examples(size, 100'003));
    std::vector<at::Tensor> results(static_cast<std::size_t>(size));
    run_on_ranks(group, [&](Communicator& rank) {
      at::Tensor x = example(rank.rank(), 100'003);
      rank.all_reduce(x, ReduceOp::kMean, options);
      results[static_cast<std::size_t>(rank.rank())] = x;
    });
    for (const at::Tensor& result : results) EXPECT_TENSOR_EQ(result, results[0]);
    const double largest = exact.abs().max().item<double>();
    EXPECT_LT((results[0] - exact).abs().max().item<double>(), GetParam().tolerance * largest);
    EXPECT_FALSE(results[0].equal(exact));  // it was narrow indeed
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, NarrowWire,
    ::testing::Values(
        Narrow{"gloo_bfloat16", make_gloo, WireDtype::kBFloat16, 0.02},
        Narrow{"gloo_float16", make_gloo, WireDtype::kHalf, 0.003},
        Narrow{"hierarchical_bfloat16", make_on_hosts_of_three, WireDtype::kBFloat16, 0.03},
        Narrow{"hierarchical_float16", make_on_hosts_of_one, WireDtype::kHalf, 0.005}),
    [](const auto& info) { return info.param.name; });

TEST(NarrowWireOption, LeavesOtherDtypesAndOneHostAsTheyAre) {
  const CommunicationOptions options{.wire_dtype = WireDtype::kBFloat16};
  for (const Maker make : {Maker{make_shm}, Maker{make_gloo}}) {
    const at::ScalarType dtype = make == Maker{make_shm} ? at::kFloat : at::kDouble;
    Group group = make_local_group(2, make);
    const at::Tensor wanted = local_reduce(ReduceOp::kSum, examples(2, 30'000, dtype));
    run_on_ranks(group, [&](Communicator& rank) {
      at::Tensor x = example(rank.rank(), 30'000, dtype);
      rank.all_reduce(x, ReduceOp::kSum, options);
      EXPECT_TENSOR_EQ(x, wanted);
    });
  }
}

TEST(NarrowWireOption, MustBeTheSameOnEveryRank) {
  Group group = make_local_group(2, make_gloo);
  run_on_ranks(group, [&](Communicator& rank) {
    at::Tensor x = at::ones({3000});
    const CommunicationOptions options{.wire_dtype = rank.rank() == 0 ? WireDtype::kSame
                                                                      : WireDtype::kBFloat16};
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { rank.all_reduce(x, ReduceOp::kSum, options); },
                                               {"on the wire as bfloat16"}));
    EXPECT_TENSOR_EQ(x, at::ones({3000}));
  });
}

// ---- How groups are built ----------------------------------------------------------------------

TEST(MakeCommunicator, ChoosesByWhereTheRanksAre) {
  const auto made = [](int size, int on_host, CommunicationImplementation how) {
    const auto store = std::make_shared<InMemoryStore>();
    std::vector<std::future<std::string>> names;
    for (int rank = 0; rank < size; ++rank) {
      names.push_back(std::async(std::launch::async, [=] {
        const auto group = make_communicator(
            {.store = store, .rank = rank, .size = size, .host = std::to_string(rank / on_host)},
            how);
        group->barrier();
        return group->where();
      }));
    }
    std::vector<std::string> said;
    for (auto& name : names) said.push_back(name.get());
    return said[0];
  };
  EXPECT_EQ(made(2, 2, CommunicationImplementation::kAuto), "shm rank 0/2");
  EXPECT_EQ(made(2, 1, CommunicationImplementation::kAuto), "gloo rank 0/2");
  EXPECT_EQ(made(4, 2, CommunicationImplementation::kAuto), "hierarchical rank 0/4");
  EXPECT_EQ(made(2, 2, CommunicationImplementation::kRing), "gloo rank 0/2");
  EXPECT_EQ(made(1, 1, CommunicationImplementation::kAuto), "shm rank 0/1");
}

TEST(MakeCommunicator, RefusesWhatItCannotDo) {
  const auto store = std::make_shared<InMemoryStore>();
  EXPECT_TRUE(throws_saying<Unimplemented>(
      [&] { make_communicator({.store = store}, CommunicationImplementation::kNccl); },
      {"NCCL", "AUTO or RING"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { make_communicator({.store = nullptr}); }, {"no store"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { make_communicator({.store = store, .rank = 2, .size = 2}); }, {"rank 2 of 2"}));
}

TEST(BuildingAGroup, GenerationsDoNotMeet) {
  const auto store = std::make_shared<InMemoryStore>();
  EXPECT_TRUE(throws_saying<DeadlineExceeded>(
      [&] {
        make_shm(
            {.store = store, .generation = 1, .rank = 1, .size = 2, .timeout = milliseconds(50)});
      },
      {"tutti/1/", "nothing from rank 0"}));
  auto rank_0 = std::async(std::launch::async, [&] {
    return make_shm({.store = store, .generation = 2, .rank = 0, .size = 2});
  });
  const auto rank_1 = make_shm({.store = store, .generation = 2, .rank = 1, .size = 2});
  EXPECT_EQ(rank_0.get()->where(), "shm rank 0/2");
}

TEST(BuildingAGroup, AStrangerAtTheSocketOfSharedMemoryIsRefusedAndTheGroupIsBuilt) {
  const auto store = std::make_shared<InMemoryStore>();
  auto rank_0 = std::async(std::launch::async,
                           [&] { return make_shm({.store = store, .rank = 0, .size = 2}); });
  // Knows the socket's name, and not the secret that the store keeps beside it.
  const std::string value = store->get("tutti/0/shm", milliseconds(60'000));
  const std::string name = value.substr(0, value.size() - 32);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const int stranger = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(stranger, reinterpret_cast<sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  const std::string guess(48, 'x');
  EXPECT_EQ(send(stranger, guess.data(), guess.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(guess.size()));
  char byte = 0;
  EXPECT_LE(recv(stranger, &byte, 1, 0), 0);  // closed, and no memory was handed out
  close(stranger);
  auto rank_1 = std::async(std::launch::async,
                           [&] { return make_shm({.store = store, .rank = 1, .size = 2}); });
  Group group;
  group.push_back(rank_0.get());
  group.push_back(rank_1.get());
  run_on_ranks(group, [](Communicator& rank) { rank.barrier(); });
}

TEST(BuildingAGroup, TwoOfOneRankAreRefused) {
  const auto store = std::make_shared<InMemoryStore>();
  const auto make = [&](int rank) {
    return make_shm({.store = store, .rank = rank, .size = 3, .timeout = milliseconds(500)});
  };
  auto rank_0 = std::async(std::launch::async, [&] { return make(0); });
  auto first = std::async(std::launch::async, [&] { return make(1); });
  auto second = std::async(std::launch::async, [&] { return make(1); });
  EXPECT_THROW(rank_0.get(), DeadlineExceeded);  // rank 2 never comes
  int refused = 0;
  for (auto* rank : {&first, &second}) {
    try {
      rank->get();
    } catch (const AlreadyExists&) {
      ++refused;
    } catch (const Error&) {
    }
  }
  EXPECT_EQ(refused, 1);
}

TEST(LeavingAGroup, DoesNotWaitForTheOthers) {
  for (const Maker make : {Maker{make_shm}, Maker{make_gloo}}) {
    Group group = make_local_group(3, make);
    at::Tensor x = at::ones({10});
    auto work = group[2]->start_all_reduce(x, ReduceOp::kSum, {.timeout_seconds = 0.05});
    work.reset();
    const auto start = std::chrono::steady_clock::now();
    group.clear();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
}

}  // namespace
}  // namespace tutti::collectives
