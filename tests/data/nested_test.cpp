// flat_map and interleave, one by one and in parallel.

#include <atomic>
#include <filesystem>

#include "data/elements.h"
#include "tutti/base/log.h"

namespace tutti::data {
namespace {

Dataset<Tensor> tens(const Tensor& i) {
  const int64_t from = 10 * i.item<int64_t>();
  return range(from, from + i.item<int64_t>());
}

TEST(FlatMap, GivesTheElementsOfEachDatasetInOrder) {
  const auto flat = range(4).flat_map(tens);
  EXPECT_EQ(numbers(flat), (Numbers{10, 20, 21, 30, 31, 32}));
  EXPECT_EQ(numbers(flat), (Numbers{10, 20, 21, 30, 31, 32})) << "in every pass";
  EXPECT_EQ(flat.cardinality(), kUnknown);
  EXPECT_EQ(cat(flat.element_spec()), "TensorSpec(shape=(), dtype=int64)");
  EXPECT_EQ(numbers(range(0).flat_map(tens)), Numbers{});
  EXPECT_ERROR(range(0).flat_map(tens).element_spec(), FailedPrecondition, "empty");
}

TEST(FlatMap, SpreadsATupleOverTheFunctionsParameters) {
  const auto flat = zip(range(2), range(5, 7)).flat_map([](const Tensor& a, const Tensor& b) {
    return from_tensors(a).concatenate(from_tensors(b));
  });
  EXPECT_EQ(numbers(flat), (Numbers{0, 5, 1, 6}));
}

TEST(FlatMap, GoesOnBehindAnErrorOfItsFunctionOrOfADataset) {
  auto pass = range(3)
                  .flat_map([](const Tensor& i) {
                    if (i.item<int64_t>() == 0) throw InvalidArgument("no first");
                    return range(2).map([i](const Tensor& x) {
                      if (i.item<int64_t>() == 1 && x.item<int64_t>() == 0)
                        throw DataLoss("no zero");
                      return i * 10 + x;
                    });
                  })
                  .iterator();
  EXPECT_ERROR(pass.next(), InvalidArgument, "no first");
  EXPECT_ERROR(pass.next(), DataLoss, "no zero");
  EXPECT_EQ(pass.get_next().item<int64_t>(), 11);
  EXPECT_EQ(pass.get_next().item<int64_t>(), 20);
}

TEST(FlatMap, HasTheBatchSizeOfItsDatasets) {
  const auto batches = range(2).flat_map([](const Tensor&) { return range(5).batch(2); });
  EXPECT_EQ(batches.plan()->batch_size(), 2);
  EXPECT_EQ(range(2).flat_map(tens).plan()->batch_size(), std::nullopt);
  EXPECT_EQ(rows(Dataset<Tensor>(worker_pieces(
                batches
                    .with_options(
                        {.experimental_distribute = {.auto_shard_policy = AutoShardPolicy::kOff}})
                    .plan(),
                {1, 2, 0}))),
            (Rows{{0}, {1}, {2}, {3}, {4}, {0}, {1}, {2}, {3}, {4}}));
}

Dataset<Tensor> repeated(const Tensor& i) { return from_tensors(i).repeat(i.item<int64_t>() + 2); }

TEST(Interleave, TakesBlocksInTurnAndFillsThePlaceOfOneThatEnded) {
  const auto in_turn = range(1, 5).interleave(repeated, {.cycle_length = 3, .block_length = 2});
  EXPECT_EQ(numbers(in_turn), (Numbers{1, 1, 2, 2, 3, 3, 1, 2, 2, 3, 3, 4, 4, 3, 4, 4, 4, 4}));
  EXPECT_EQ(in_turn.cardinality(), kUnknown);
}

TEST(Interleave, HasFourDatasetsOpenByDefaultWhateverTheMachine) {
  EXPECT_EQ(numbers(range(6).interleave([](const Tensor& i) { return from_tensors(i).repeat(2); })),
            (Numbers{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 4, 5}));
  EXPECT_EQ(to_string(range(6).interleave(tens)),
            "interleave(function, cycle_length=4)\n  range(0, 6)");
}

TEST(Interleave, RefusesLengthsBelowOne) {
  EXPECT_ERROR(range(2).interleave(tens, {.cycle_length = 0}), InvalidArgument, "cycle_length 0");
  EXPECT_ERROR(range(2).interleave(tens, {.block_length = 0}), InvalidArgument, "block_length 0");
  EXPECT_ERROR(range(2).interleave(tens, {.num_parallel_calls = 0}), InvalidArgument,
               "num_parallel_calls 0");
}

TEST(Interleave, WarnsOfDeterministicWithoutParallelCalls) {
  ::testing::internal::CaptureStderr();
  range(2).interleave(tens, {.deterministic = false});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("interleave: deterministic"), std::string::npos) << said;
}

TEST(ParallelInterleave, GivesTheOrderOfTheSequentialOne) {
  for (int64_t cycle : {1, 2, 3, 5}) {
    for (int64_t block : {1, 2, 3}) {
      const auto dataset = range(9);
      const auto uneven = [](const Tensor& i) {
        const int64_t n = i.item<int64_t>();
        return range(100 * n, 100 * n + (n * 7) % 5);
      };
      const Numbers expected =
          numbers(dataset.interleave(uneven, {.cycle_length = cycle, .block_length = block}));
      for (int64_t calls : {int64_t{1}, int64_t{4}, kAutotune}) {
        EXPECT_EQ(numbers(dataset.interleave(
                      uneven,
                      {.cycle_length = cycle, .block_length = block, .num_parallel_calls = calls})),
                  expected)
            << cycle << " " << block << " " << calls;
      }
    }
  }
}

TEST(ParallelInterleave, OutOfOrderGivesEveryElementOnce) {
  auto all = numbers(range(9).interleave(
      [](const Tensor& i) { return range(10 * i.item<int64_t>(), 10 * i.item<int64_t>() + 10); },
      {.cycle_length = 3, .num_parallel_calls = 2, .deterministic = false}));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, numbers(range(90)));
}

TEST(ParallelInterleave, HasErrorsAtTheirPlaces) {
  const auto broken = [](const Tensor& i) {
    const int64_t n = i.item<int64_t>();
    if (n == 1) throw InvalidArgument("no second");
    return range(2).map([n](const Tensor& x) {
      if (n == 2 && x.item<int64_t>() == 0) throw DataLoss("no first of the third");
      return x + 10 * n;
    });
  };
  const auto text = [&](const InterleaveOptions& options) {
    std::string all;
    auto pass = range(4).interleave(broken, options).iterator();
    for (bool more = true; more;) {
      try {
        const auto element = pass.next();
        more = element.has_value();
        if (more) all += cat(element->item<int64_t>(), " ");
      } catch (const Error& error) {
        all += cat(error.what(), " ");
      }
    }
    return all;
  };
  const std::string expected = text({.cycle_length = 2});
  EXPECT_NE(expected.find("no second"), std::string::npos);
  EXPECT_NE(expected.find("no first of the third"), std::string::npos);
  EXPECT_EQ(text({.cycle_length = 2, .num_parallel_calls = 3}), expected);
}

TEST(ParallelInterleave, OfEndlessDatasetsMayBeLeft) {
  auto pass = range(3)
                  .interleave([](const Tensor& i) { return from_tensors(i).repeat(); },
                              {.num_parallel_calls = 2})
                  .iterator();
  EXPECT_EQ(pass.get_next().item<int64_t>(), 0);
  EXPECT_EQ(pass.get_next().item<int64_t>(), 1);
}

TEST(ParallelMap, KeepsTheOrderAndHasErrorsAtTheirPlaces) {
  auto pass = range(20)
                  .map(
                      [](const Tensor& x) {
                        if (x.item<int64_t>() == 7) throw DataLoss("no seven");
                        return x * 2;
                      },
                      {.num_parallel_calls = 4})
                  .iterator();
  for (int64_t i = 0; i < 20; ++i) {
    if (i == 7) {
      EXPECT_ERROR(pass.next(), DataLoss, "no seven");
    } else {
      EXPECT_EQ(pass.get_next().item<int64_t>(), 2 * i);
    }
  }
  EXPECT_FALSE(pass.next());
  EXPECT_FALSE(pass.next());
}

TEST(ParallelMap, HandsOnErrorsOfItsInputInTheirPlaces) {
  const auto broken = range(5).map([](const Tensor& x) {
    if (x.item<int64_t>() == 2) throw DataLoss("no two");
    return x;
  });
  EXPECT_EQ(numbers(broken.map([](const Tensor& x) { return x + 1; }, {.num_parallel_calls = 3})
                        .ignore_errors()),
            (Numbers{1, 2, 4, 5}));
}

TEST(ParallelMap, RunsCallsAtTheSameTime) {
  std::atomic<int> inside = 0;
  const auto meet = [&inside](const Tensor& x) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();  // ends only with a second call
    return x;
  };
  EXPECT_EQ(numbers(range(4).map(meet, {.num_parallel_calls = 2})), numbers(range(4)));
}

TEST(ParallelMap, OutOfOrderGivesEveryElementOnce) {
  auto all = numbers(range(50).map([](const Tensor& x) { return x; },
                                   {.num_parallel_calls = 3, .deterministic = false}));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, numbers(range(50)));
}

TEST(ParallelMap, HasTheSpecAndTheCardinalityOfMap) {
  const auto mapped =
      range(10).batch(4).map([](const Tensor& x) { return x * 2; }, {.num_parallel_calls = 2});
  EXPECT_EQ(cat(mapped.element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(mapped.cardinality(), 3);
  EXPECT_EQ(to_string(mapped), "map(function, num_parallel_calls=2)\n  batch(4)\n    range(0, 10)");
  EXPECT_ERROR(range(2).map([](const Tensor& x) { return x; }, {.num_parallel_calls = -2}),
               InvalidArgument, "num_parallel_calls -2");
}

}  // namespace
}  // namespace tutti::data
