// What several threads make: order, errors, random numbers, options, how they end.

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "data/elements.h"
#include "tutti/base/seed.h"
#include "tutti/data/element_random.h"

namespace tutti::data {
namespace {

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// Takes longer or shorter, in an order that has nothing to do with the element's.
void take_a_while(const Tensor& x) { sleep_ms((x.item<int64_t>() * 7 + 3) % 5); }

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    sleep_ms(5);
  }
  return false;
}

TEST(ParallelPasses, KeepTheOrderWhateverTheTiming) {
  for (int64_t calls : {1, 2, 5}) {
    const auto mapped = range(40).map(
        [](const Tensor& x) {
          take_a_while(x);
          return x * 3;
        },
        {.num_parallel_calls = calls});
    EXPECT_EQ(numbers(mapped), numbers(range(0, 120, 3)));
  }
}

TEST(ParallelPasses, OutOfOrderGiveWhatIsReady) {
  std::atomic<bool> released{false};
  auto pass = range(6)
                  .map(
                      [&](const Tensor& x) {
                        if (x.item<int64_t>() == 0) eventually([&] { return released.load(); });
                        return x;
                      },
                      {.num_parallel_calls = 2, .deterministic = false})
                  .iterator();
  std::set<int64_t> first;
  for (int i = 0; i < 5; ++i) first.insert(pass.get_next().item<int64_t>());
  EXPECT_EQ(first, (std::set<int64_t>{1, 2, 3, 4, 5})) << "while 0 takes long";
  released = true;
  EXPECT_EQ(pass.get_next().item<int64_t>(), 0);
  EXPECT_FALSE(pass.next());
}

/// What two calls at once have read when one result was taken.
int read_ahead(const Tensor& result) {
  std::atomic<int> read{0};
  auto pass = range(1000)
                  .map([&](const Tensor& x) {
                    ++read;
                    return x;
                  })
                  .map([&](const Tensor&) { return result; }, {.num_parallel_calls = 2})
                  .iterator();
  pass.next();
  pass.next();
  sleep_ms(30);
  return read;
}

TEST(ParallelPasses, ReadNoFurtherAheadThanTheirBuffer) {
  EXPECT_LE(read_ahead(at::zeros({1 << 20})), 2 + 4)
      << "two results for each call, behind those that were taken";
  EXPECT_LE(read_ahead(at::zeros({1})), 2 + 16 + 16)
      << "of small ones eight for each call, behind as many that are given out together";
}

TEST(ParallelPasses, BeginWithTheFirstElementUnlessWarm) {
  std::atomic<int> calls{0};
  const auto counted = range(10).map(
      [&](const Tensor& x) {
        ++calls;
        return x;
      },
      {.num_parallel_calls = 2});
  {
    auto pass = counted.iterator();
    sleep_ms(20);
    EXPECT_EQ(calls, 0);
    auto behind = counted.prefetch(2).iterator();
    sleep_ms(20);
    EXPECT_EQ(calls, 0);
  }
  auto warm = counted.with_options({.experimental_warm_start = true}).iterator();
  EXPECT_TRUE(eventually([&] { return calls > 0; }));
}

TEST(ParallelPasses, EndInTheMiddleOfElements) {
  std::atomic<int> running{0};
  for (int i = 0; i < 5; ++i) {
    auto pass = range(100)
                    .map(
                        [&](const Tensor& x) {
                          ++running;
                          sleep_ms(3);
                          --running;
                          return x;
                        },
                        {.num_parallel_calls = 3})
                    .interleave([](const Tensor& x) { return from_tensors(x).repeat(); },
                                {.cycle_length = 2, .num_parallel_calls = 2})
                    .prefetch(2)
                    .iterator();
    pass.next();
  }
  EXPECT_EQ(running, 0) << "all threads have been joined";
}

Tensor noisy(const Tensor& x) {
  take_a_while(x);
  return at::rand({3}, element_random());
}

std::vector<Tensor> noise(std::optional<int64_t> calls, int passes = 1) {
  tutti::internal::set_global_seed(21);
  const auto dataset = range(16).map(noisy, {.num_parallel_calls = calls});
  std::vector<Tensor> all;
  for (int i = 0; i < passes; ++i) {
    for (const Tensor& element : dataset) all.push_back(element);
  }
  return all;
}

TEST(RandomFunctions, DrawOtherNumbersForEachElementPassAndFunction) {
  const auto two_passes = noise(2, 2);
  std::set<double> sums;
  for (const Tensor& element : two_passes) sums.insert(element.sum().item<double>());
  EXPECT_EQ(sums.size(), two_passes.size());
  auto both = zip(range(1).map(noisy), range(1).map(noisy)).iterator();
  const auto [a, b] = both.get_next();
  EXPECT_FALSE(at::equal(a, b));
}

TEST(RandomFunctions, OfDatasetsMadeOnThreadsDrawTheSame) {
  const auto drawn = [](std::optional<int64_t> calls) {
    tutti::internal::set_global_seed(4);
    Rows all;
    const auto dataset = range(6).interleave(
        [](const Tensor& x) {
          take_a_while(x);
          return range(5).shuffle(5).map([](const Tensor& y) {
            return y + at::randint(0, 1000, {}, element_random(), at::kLong);
          });
        },
        {.cycle_length = 3, .num_parallel_calls = calls});
    for (int i = 0; i < 2; ++i) all.push_back(numbers(dataset));
    return all;
  };
  const Rows one_by_one = drawn(std::nullopt);
  EXPECT_NE(one_by_one[0], one_by_one[1]);
  for (int64_t calls : {1, 3}) EXPECT_EQ(drawn(calls), one_by_one);
}

TEST(RandomFunctions, AreRefusedOutside) {
  EXPECT_ERROR(element_random(), FailedPrecondition, "outside of a dataset's functions");
}

TEST(RandomFunctions, OfFiltersAndScansDrawToo) {
  const auto kept = [] {
    tutti::internal::set_global_seed(4);
    return numbers(range(50).filter(
        [](const Tensor&) { return at::rand({}, element_random()).item<double>() < 0.5; }));
  };
  EXPECT_EQ(kept(), kept());
  EXPECT_NE(kept().size(), 50u);
}

TEST(PipelineOptions, HoldForTheWholePipelineWhereverTheyStand) {
  const auto unordered = range(3).with_options({.deterministic = false}).batch(2);
  EXPECT_EQ(unordered.plan()->options().deterministic, false);
  std::atomic<bool> released{false};
  auto pass = range(3)
                  .with_options({.deterministic = false})
                  .map(
                      [&](const Tensor& x) {
                        if (x.item<int64_t>() == 0) eventually([&] { return released.load(); });
                        return x;
                      },
                      {.num_parallel_calls = 2})
                  .iterator();
  EXPECT_EQ(pass.get_next().item<int64_t>(), 1);
  released = true;
}

TEST(PipelineOptions, MergeAndRefuseConflicts) {
  const auto both = range(3)
                        .with_options({.dataset_name = "a", .deterministic = false})
                        .with_options({.autotune = {.ram_budget = 1000}, .dataset_name = "b"});
  const Options options = both.plan()->options();
  EXPECT_EQ(options.deterministic, false);
  EXPECT_EQ(options.autotune.ram_budget, 1000);
  EXPECT_EQ(options.dataset_name, "b");
  EXPECT_EQ(to_string(both),
            "with_options(autotune.ram_budget=1000, dataset_name=b)\n"
            "  with_options(dataset_name=a, deterministic=false)\n"
            "    range(0, 3)");
  EXPECT_ERROR(both.with_options({.deterministic = true}), InvalidArgument,
               "deterministic true, but false further up");
  EXPECT_ERROR(both.with_options({.autotune = {.ram_budget = 5}}), InvalidArgument,
               "ram_budget 5, but 1000");
  using Policy = AutoShardPolicy;
  EXPECT_ERROR(range(3)
                   .with_options({.experimental_distribute = {.auto_shard_policy = Policy::kOff}})
                   .with_options({.experimental_distribute = {.auto_shard_policy = Policy::kData}}),
               InvalidArgument, "DATA, but OFF");
  EXPECT_EQ(zip(both, range(3)).plan()->options().deterministic, false);
  EXPECT_ERROR(range(3).with_options({.threading = {.max_intra_op_parallelism = 0}}),
               InvalidArgument, "expected at least 1");
}

TEST(PipelineOptions, RefuseAlgorithmsThatSearch) {
  using Algorithm = AutotuneAlgorithm;
  const auto with = [](Algorithm algorithm) {
    return range(3).with_options({.autotune = {.autotune_algorithm = algorithm}});
  };
  EXPECT_EQ(numbers(with(Algorithm::kDefault)), (Numbers{0, 1, 2}));
  EXPECT_EQ(to_string(with(Algorithm::kMaxParallelism)),
            "with_options(autotune.autotune_algorithm=MAX_PARALLELISM)\n  range(0, 3)");
  for (Algorithm algorithm :
       {Algorithm::kHillClimb, Algorithm::kGradientDescent, Algorithm::kStageBased})
    EXPECT_ERROR(with(algorithm), Unimplemented, "expected DEFAULT or MAX_PARALLELISM");
  EXPECT_ERROR(with(Algorithm::kDefault)
                   .with_options({.autotune = {.autotune_algorithm = Algorithm::kMaxParallelism}}),
               InvalidArgument, "MAX_PARALLELISM, but DEFAULT");
}

TEST(PipelineOptions, BoundTheThreads) {
  std::atomic<int> at_once{0}, most{0};
  const auto busy = [&](const Tensor& x) {
    const int now = ++at_once;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    sleep_ms(3);
    --at_once;
    return x;
  };
  numbers(range(12)
              .map(busy, {.num_parallel_calls = 6})
              .with_options({.threading = {.private_threadpool_size = 2}}));
  EXPECT_LE(most, 2);
  most = 0;
  // In the rounds of a repeat and in inner datasets too.
  numbers(range(2)
              .flat_map([&](const Tensor&) {
                return range(6).map(busy, {.num_parallel_calls = kAutotune});
              })
              .repeat(2)
              .with_options({.autotune = {.cpu_budget = 1}}));
  EXPECT_EQ(most, 1);
}

TEST(PipelineOptions, ThreadsOfThePipelineUseTheirCores) {
  std::atomic<int> threads{0};
  const auto look = [&](const Tensor& x) {
    threads = at::get_num_threads();
    return x;
  };
  numbers(range(2).map(look, {.num_parallel_calls = 2}));
  EXPECT_EQ(threads, 1);
  numbers(range(2)
              .map(look, {.num_parallel_calls = 2})
              .with_options({.threading = {.max_intra_op_parallelism = 2}}));
  EXPECT_EQ(threads, 2);
}

TEST(ParallelPasses, MklHasNoMoreThreadsInACallThanItsOptionsSay) {
  using Number = int (*)();
  const auto of_mkl = reinterpret_cast<Number>(dlsym(RTLD_DEFAULT, "MKL_Get_Max_Threads"));
  const int before = at::get_num_threads();
  at::set_num_threads(
      2);  // tells MKL itself, which then asks OpenMP no more; so MKL_NUM_THREADS does
  std::atomic<int> threads{1};
  numbers(range(4).map(
      [&](const Tensor& x) {
        if (of_mkl != nullptr) threads = std::max<int>(threads, of_mkl());
        return x;
      },
      {.num_parallel_calls = 2}));
  at::set_num_threads(before);
  EXPECT_EQ(threads, 1);
}

/// Elements that a prefetch has made when nobody takes any more: its buffer and what was taken.
int made_after_bursts(const Options& options) {
  std::atomic<int> made{0};
  auto pass = range(100000)
                  .map([&](const Tensor& x) {
                    ++made;
                    return at::ones({1000});
                  })
                  .prefetch(kAutotune)
                  .with_options(options)
                  .iterator();
  int taken = 0;
  for (int burst = 0; burst < 6; ++burst) {
    sleep_ms(20);  // it fills up
    for (int i = 0; i < 200; ++i, ++taken) pass.next();
  }
  sleep_ms(50);
  return made - taken;
}

TEST(PipelineOptions, ThePrefetchBufferGrowsWithinTheBudget) {
  EXPECT_GT(made_after_bursts({}), 2);
  EXPECT_EQ(made_after_bursts({.autotune = {.enabled = false}}), 2);
  EXPECT_LE(made_after_bursts({.autotune = {.ram_budget = 4 * 4000}}), 4);
}

}  // namespace
}  // namespace tutti::data
