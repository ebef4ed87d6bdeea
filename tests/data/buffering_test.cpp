#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "data/elements.h"
#include "tutti/base/seed.h"

namespace tutti::data {
namespace {

Numbers sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// Both paths: elements and rows of a table.
std::vector<Dataset<Tensor>> both(int64_t count) { return {range(count), table_of(count)}; }

TEST(Shuffle, WithALargeBufferIsAPermutation) {
  for (const auto& dataset : both(50)) {
    for (int64_t buffer : {50, 1000}) {
      const Numbers order = numbers(dataset.shuffle(buffer, {.seed = 1}));
      EXPECT_NE(order, numbers(dataset));
      EXPECT_EQ(sorted(order), numbers(dataset));
    }
  }
}

TEST(Shuffle, LosesNothingWithASmallBuffer) {
  for (const auto& dataset : both(600)) {
    EXPECT_EQ(sorted(numbers(dataset.shuffle(7, {.seed = 1}))), numbers(dataset));
  }
}

TEST(Shuffle, DrawsOnlyFromItsBuffer) {
  for (const auto& dataset : both(600)) {
    const Numbers order = numbers(dataset.shuffle(7, {.seed = 1}));
    for (std::size_t i = 0; i < order.size(); ++i)
      EXPECT_LT(order[i], static_cast<int64_t>(i) + 7) << "place " << i;
  }
}

TEST(Shuffle, WithABufferOfOneKeepsTheOrder) {
  for (const auto& dataset : both(9)) EXPECT_EQ(numbers(dataset.shuffle(1)), numbers(dataset));
}

TEST(Shuffle, PutsEveryElementFirstAboutAsOften) {
  constexpr int kPasses = 4000;
  const auto dataset = range(4).shuffle(4, {.seed = 5});
  std::vector<int> firsts(4);
  for (int pass = 0; pass < kPasses; ++pass)
    ++firsts[static_cast<std::size_t>(dataset.iterator().get_next().item<int64_t>())];
  for (int count : firsts) EXPECT_NEAR(count, kPasses / 4, 150);  // above five deviations
}

TEST(Shuffle, SeededAgreesWithAFreshOne) {
  for (const auto& dataset : both(30)) {
    const auto a = dataset.shuffle(30, {.seed = 7});
    const auto b = dataset.shuffle(30, {.seed = 7});
    EXPECT_EQ(numbers(a), numbers(b));
    EXPECT_EQ(numbers(a), numbers(b)) << "in the second epoch";
  }
}

TEST(Shuffle, OfRowsHasTheOrderOfElements) {
  EXPECT_EQ(numbers(range(300).shuffle(20, {.seed = 7})),
            numbers(table_of(300).shuffle(20, {.seed = 7})));
}

TEST(Shuffle, HasAnotherOrderForAnotherSeed) {
  EXPECT_NE(numbers(range(30).shuffle(30, {.seed = 7})),
            numbers(range(30).shuffle(30, {.seed = 8})));
}

TEST(Shuffle, HasAnotherOrderInEachEpoch) {
  const auto dataset = range(30).shuffle(30, {.seed = 7});
  const Numbers first = numbers(dataset);
  EXPECT_NE(first, numbers(dataset));
  const Numbers two = numbers(range(30).shuffle(30, {.seed = 7}).repeat(2));
  EXPECT_EQ(Numbers(two.begin(), two.begin() + 30), first);
  EXPECT_NE(Numbers(two.begin() + 30, two.end()), first);
}

TEST(Shuffle, RepeatsItsOrderWithoutReshuffling) {
  for (const std::optional<int64_t> seed : {std::optional<int64_t>(7), std::optional<int64_t>()}) {
    const auto dataset = range(30).shuffle(30, {.seed = seed, .reshuffle_each_iteration = false});
    EXPECT_EQ(numbers(dataset), numbers(dataset));
  }
}

TEST(Shuffle, FollowsTheGlobalSeed) {
  tutti::internal::set_global_seed(11);
  const auto a = range(30).shuffle(30);
  const auto b = range(30).shuffle(30);
  const Numbers first = numbers(a);
  EXPECT_NE(first, numbers(b)) << "each shuffle has a seed of its own";
  tutti::internal::set_global_seed(11);
  EXPECT_EQ(first, numbers(range(30).shuffle(30)));
}

TEST(Shuffle, StartsAnewWithEachGlobalSeed) {
  const auto dataset = range(30).shuffle(30, {.seed = 7});
  tutti::internal::set_global_seed(11);
  const Numbers first = numbers(dataset);
  numbers(dataset);
  tutti::internal::set_global_seed(11);
  EXPECT_EQ(numbers(dataset), first);
  tutti::internal::set_global_seed(12);
  EXPECT_NE(numbers(dataset), first);
}

TEST(Shuffle, KeepsCardinalityAndSpec) {
  EXPECT_EQ(range(30).shuffle(3).cardinality(), 30);
  EXPECT_EQ(cat(range(30).shuffle(3).element_spec()), "TensorSpec(shape=(), dtype=int64)");
}

TEST(Shuffle, RefusesABufferBelowOne) {
  EXPECT_ERROR(range(30).shuffle(0), InvalidArgument, "a buffer of 0");
}

/// range(count), counting the calls of a map behind it.
struct Counted {
  explicit Counted(int64_t count)
      : dataset(range(count).map([calls = calls](const Tensor& x) {
          ++*calls;
          return x * 2;
        })) {}
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  Dataset<Tensor> dataset;
};

TEST(Cache, GivesTheFirstPassAgainWithoutMap) {
  const Counted counted(4);
  const auto cached = counted.dataset.cache();
  const Numbers first = numbers(cached);
  EXPECT_EQ(first, (Numbers{0, 2, 4, 6}));
  EXPECT_EQ(numbers(cached), first);
  EXPECT_EQ(*counted.calls, 4);
}

TEST(Cache, DropsAPartialPass) {
  const Counted counted(4);
  const auto cached = counted.dataset.cache();
  {
    auto pass = cached.iterator();
    pass.next();
    pass.next();
  }
  EXPECT_EQ(numbers(cached), (Numbers{0, 2, 4, 6}));
  EXPECT_EQ(*counted.calls, 6);
  EXPECT_EQ(numbers(cached), (Numbers{0, 2, 4, 6}));
  EXPECT_EQ(*counted.calls, 6);
}

TEST(Cache, IsSharedByItsCopies) {
  const Counted counted(4);
  const auto cached = counted.dataset.cache();
  const auto copy = cached;
  numbers(copy);
  numbers(cached);
  EXPECT_EQ(*counted.calls, 4);
}

TEST(Cache, KeepsElementsOfDifferentShapes) {
  const auto cached =
      range(4).map([](const Tensor& x) { return at::arange(x.item<int64_t>()); }).cache();
  const Rows wanted{{}, {0}, {0, 1}, {0, 1, 2}};
  EXPECT_EQ(rows(cached), wanted);
  EXPECT_EQ(rows(cached), wanted);
}

TEST(Cache, KeepsElementsWhoseShapeChangesLate) {
  const auto cached = range(4)
                          .map([](const Tensor& x) {
                            return x.item<int64_t>() < 3 ? x.reshape({1}) : at::arange(2);
                          })
                          .cache();
  const Rows wanted{{0}, {1}, {2}, {0, 1}};
  EXPECT_EQ(rows(cached), wanted);
  EXPECT_EQ(rows(cached), wanted);
}

TEST(Cache, KeepsElementsThatAreNotContiguous) {
  const Tensor turned = at::arange(6).view({3, 2}).t();
  const auto cached = from_tensors(turned).cache();
  for (int pass = 0; pass < 2; ++pass) EXPECT_TENSOR_EQ(cached.iterator().get_next(), turned);
}

TEST(Cache, KeepsAnInputOfUnknownLength) {
  const auto cached =
      range(6).filter([](const Tensor& x) { return x.item<int64_t>() % 2 == 0; }).cache();
  EXPECT_EQ(numbers(cached), (Numbers{0, 2, 4}));
  EXPECT_EQ(numbers(cached), (Numbers{0, 2, 4}));
}

TEST(Cache, OfAnEmptyInputIsEmpty) {
  const auto cached = range(0).cache();
  EXPECT_EQ(numbers(cached), Numbers{});
  EXPECT_EQ(numbers(cached), Numbers{});
}

TEST(Cache, GivesBatchesOfRowsAsOfElements) {
  const auto cached = range(5).cache();
  const Rows wanted{{0, 1}, {2, 3}, {4}};
  EXPECT_EQ(rows(cached.batch(2)), wanted);
  EXPECT_EQ(rows(cached.batch(2)), wanted);
}

TEST(Cache, WorksUnderShuffleAndRepeat) {
  const Counted counted(10);
  const Numbers all = numbers(counted.dataset.cache().shuffle(10, {.seed = 1}).repeat(3));
  EXPECT_EQ(all.size(), 30u);
  for (std::size_t pass = 0; pass < 3; ++pass) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(10 * pass);
    EXPECT_EQ(sorted(Numbers(begin, begin + 10)), numbers(range(0, 20, 2)));
  }
  EXPECT_EQ(*counted.calls, 10);
}

TEST(Cache, KeepsCardinalityAndSpec) {
  const auto cached = range(4).cache();
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(cached.cardinality(), 4);
    EXPECT_EQ(cat(cached.element_spec()), "TensorSpec(shape=(), dtype=int64)");
    numbers(cached);
  }
}

TEST(Prefetch, ChangesNoElement) {
  for (int64_t buffer : {-1, 0, 1, 3, 100}) {
    EXPECT_EQ(numbers(range(20).prefetch(buffer)), numbers(range(20)));
    EXPECT_EQ(rows(table_of(20).batch(3).prefetch(buffer)), rows(range(20).batch(3)));
  }
}

TEST(Prefetch, StaysAtTheEnd) {
  auto pass = range(1).prefetch(2).iterator();
  pass.next();
  EXPECT_FALSE(pass.next());
  EXPECT_FALSE(pass.next());
}

TEST(Prefetch, MakesElementsAhead) {
  const Counted counted(100);
  auto pass = counted.dataset.prefetch(3).iterator();
  pass.next();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (*counted.calls < 4 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(*counted.calls, 4);
}

TEST(Prefetch, MakesNoMoreThanItsBufferAhead) {
  const Counted counted(100);
  auto pass = counted.dataset.prefetch(3).iterator();
  pass.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(*counted.calls, 4) << "one that was taken, three in the buffer";
}

TEST(Prefetch, StopsWhenDroppedEarly) {
  const Counted counted(1);
  {
    auto pass = counted.dataset.repeat().prefetch(2).iterator();
    pass.next();
  }
  const int calls = *counted.calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(*counted.calls, calls);
}

TEST(Prefetch, StopsWhenNobodyAsked) {
  range(10).repeat().prefetch(2).iterator();
  range(0).prefetch(2).iterator();
}

TEST(Prefetch, DeliversErrorsAtTheirPosition) {
  auto pass = range(3)
                  .map([](const Tensor& x) -> Tensor {
                    if (x.item<int64_t>() == 1) throw std::runtime_error("one");
                    return x;
                  })
                  .prefetch(5)
                  .iterator();
  EXPECT_EQ(pass.get_next().item<int64_t>(), 0);
  EXPECT_ERROR(pass.next(), std::runtime_error, "one");
  EXPECT_EQ(pass.get_next().item<int64_t>(), 2);
  EXPECT_FALSE(pass.next());
}

TEST(Prefetch, KeepsCardinalityAndSpec) {
  EXPECT_EQ(range(3).prefetch(2).cardinality(), 3);
  EXPECT_EQ(cat(range(3).prefetch(2).element_spec()), "TensorSpec(shape=(), dtype=int64)");
}

TEST(Prefetch, RefusesABufferBelowMinusOne) {
  EXPECT_ERROR(range(3).prefetch(-2), InvalidArgument, "a buffer of -2");
}

}  // namespace
}  // namespace tutti::data
