// What holds over several passes: elements are the caller's own, looking changes nothing, and rows
// stay rows through caches, repeats and concatenations.

#include <ATen/Parallel.h>

#include <limits>
#include <stdexcept>

#include "data/elements.h"
#include "tutti/base/seed.h"

namespace tutti::data {
namespace {

Tensor doubled_in_place(Tensor x) { return x.mul_(2); }

TEST(Ownership, WritingIntoASliceLeavesTheSourceAlone) {
  const Tensor source = at::arange(3);
  const auto dataset = from_tensor_slices(source).map(doubled_in_place);
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(numbers(dataset), (Numbers{0, 2, 4}));
  EXPECT_TENSOR_EQ(source, at::arange(3));
}

TEST(Ownership, WritingIntoAnElementLeavesTheCacheAlone) {
  const auto of_rows = range(3).cache();
  const auto of_shapes =
      range(3).map([](const Tensor& x) { return at::ones(x.item<int64_t>(), at::kLong); }).cache();
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(numbers(of_rows.map(doubled_in_place)), (Numbers{0, 2, 4}));
    EXPECT_EQ(rows(of_shapes.map(doubled_in_place)), (Rows{{}, {2}, {2, 2}}));
  }
}

TEST(Ownership, ARowOfATransposedSourceIsItsRow) {
  const Tensor turned = at::arange(6).view({3, 2}).t();
  EXPECT_EQ(rows(from_tensor_slices(turned)), (Rows{{0, 2, 4}, {1, 3, 5}}));
}

TEST(Ownership, AConjugatedViewIsCopiedByValue) {
  const Tensor values = at::complex(at::tensor({1.0, 2.0}), at::tensor({3.0, 4.0})).conj();
  const auto dataset = from_tensor_slices(values);
  EXPECT_TRUE(at::equal(dataset.iterator().get_next().resolve_conj(), values[0].resolve_conj()));
  const auto batch = dataset.map([](const Tensor& x) { return x.conj().conj(); }).batch(2);
  EXPECT_TRUE(at::equal(batch.iterator().get_next().resolve_conj(), values.resolve_conj()));
}

TEST(Preview, LeavesTheOrdersOfAShuffleAlone) {
  const auto build = [] {
    return table_of(20)
        .shuffle(20, {.seed = 3})
        .map([](const Tensor& x) { return x + 1; })
        .enumerate()
        .map([](const Tensor&, const Tensor& x) { return x; });
  };
  const auto seen = build();
  const auto unseen = build();
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(cat(seen.element_spec()), "TensorSpec(shape=(), dtype=int64)");
    EXPECT_EQ(numbers(seen), numbers(unseen)) << "pass " << pass;
  }
}

TEST(Preview, FillsNoBufferAndCallsTheFunctionOnce) {
  auto calls = std::make_shared<int>(0);
  const auto dataset = range(100)
                           .map([calls](const Tensor& x) {
                             ++*calls;
                             return x;
                           })
                           .shuffle(50)
                           .prefetch(5)
                           .batch(10)
                           .map([](const Tensor& x) { return x.to(at::kFloat); });
  for (int look = 0; look < 3; ++look)
    EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(None,), dtype=float32)");
  EXPECT_EQ(*calls, 11) << "one element, and one batch";
}

TEST(Preview, OfAGeneratorAsksItOnce) {
  auto factories = std::make_shared<int>(0);
  const auto dataset = from_generator<Tensor>([factories] {
    ++*factories;
    return [] { return std::optional<Tensor>(at::zeros({2})); };
  });
  for (int look = 0; look < 3; ++look)
    EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(2,), dtype=float32)");
  EXPECT_EQ(*factories, 1);
}

TEST(Preview, LooksBehindAFilterAndASkip) {
  const auto dataset = range(4)
                           .skip(1)
                           .filter([](const Tensor& x) { return x.item<int64_t>() > 1; })
                           .map([](const Tensor& x) -> Tensor {
                             if (x.item<int64_t>() < 2) throw std::runtime_error("rejected");
                             return at::zeros({x.item<int64_t>()});
                           });
  EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(2,), dtype=float32)");
}

TEST(Preview, OfZipAndConcatenateDrawsNoSeed) {
  const auto build = [] { return table_of(20).shuffle(20, {.seed = 3}); };
  const auto shuffled = build();
  const auto same = [](const Tensor& x) { return x; };
  EXPECT_EQ(shuffled.concatenate(table_of(1)).map(same).element_spec().structure(), "*");
  EXPECT_EQ(zip(shuffled, table_of(1))
                .map([](const Tensor& x, const Tensor&) { return x; })
                .element_spec()
                .structure(),
            "*");
  EXPECT_EQ(numbers(shuffled), numbers(build()));
}

TEST(CacheRows, GrowForAnInputOfUnknownLength) {
  const auto cached = range(1000).filter([](const Tensor&) { return true; }).cache();
  EXPECT_EQ(numbers(cached), numbers(range(1000)));
  EXPECT_NE(cached.plan()->iterator()->table(), nullptr) << "the second pass reads rows";
  EXPECT_EQ(rows(cached.batch(300)), rows(range(1000).batch(300)));
}

TEST(CacheRows, AreNotReservedBeyondTheMemory) {
  const int64_t much = int64_t{1} << 44;
  auto pass = range(much).map([](const Tensor& x) { return x; }).cache().iterator();
  for (int64_t i = 0; i < 600; ++i) EXPECT_EQ(pass.get_next().item<int64_t>(), i);
}

TEST(CacheRows, OfAnEndlessInputAreNone) {
  const auto cached = range(2).repeat().cache();
  EXPECT_EQ(cached.cardinality(), kInfinite);
  EXPECT_EQ(numbers(cached.take(5)), (Numbers{0, 1, 0, 1, 0}));
}

TEST(CacheRows, AppearInTheSecondRoundOfARepeat) {
  for (const bool shuffled : {false, true}) {
    const auto cached = range(5).cache();
    const auto base = shuffled ? cached.shuffle(5, {.seed = 2}) : cached;
    auto repeated = base.repeat(3).batch(2).plan()->iterator();
    const auto slow_base = shuffled ? range(5).shuffle(5, {.seed = 2}) : range(5);
    auto slow = slow_base.repeat(3).batch(2).plan()->iterator();
    for (auto batch = repeated->next(); batch; batch = repeated->next())
      EXPECT_TENSOR_EQ(batch->leaf(), slow->next()->leaf());
    EXPECT_FALSE(slow->next());

    auto pass = base.repeat(2).plan()->iterator();
    EXPECT_NE(pass->table(), nullptr) << "by now the cache is full";
  }
}

TEST(CacheRows, UnderARepeatUnderAShuffleAreElements) {
  const auto dataset = [](const Dataset<Tensor>& base) {
    return rows(base.repeat(3).shuffle(4, {.seed = 2}).batch(4));
  };
  EXPECT_EQ(dataset(range(5).cache()), dataset(range(5)));
}

TEST(ConcatenatedRows, AreTheRowsOfBoth) {
  const Tensor second = at::arange(100, 104);
  const auto join = [&](bool rows_of_table) {
    auto a = table_of(5);
    auto b = from_tensor_slices(second);
    auto c = table_of(2);
    if (!rows_of_table) a = without_table(a);
    return a.concatenate(b).concatenate(c);
  };
  EXPECT_NE(join(true).plan()->iterator()->table(), nullptr);
  EXPECT_EQ(join(false).plan()->iterator()->table(), nullptr);
  EXPECT_EQ(rows(join(true).batch(4)), (Rows{{0, 1, 2, 3}, {4, 100, 101, 102}, {103, 0, 1}}));
  EXPECT_EQ(numbers(join(true)), numbers(join(false)));
  const auto chain = [](const Dataset<Tensor>& dataset) {
    return rows(dataset.shuffle(6, {.seed = 4}).repeat(2).skip(1).shard(2, 0).batch(3));
  };
  EXPECT_EQ(chain(join(true)), chain(join(false)));
}

TEST(ConcatenatedRows, MayBeReadAsElementsInBetween) {
  auto pass = table_of(2).concatenate(table_of(3)).plan()->iterator();
  std::vector<int64_t> indices;
  pass->next_rows(1, indices);
  EXPECT_EQ(pass->next()->leaf().item<int64_t>(), 1);
  EXPECT_EQ(pass->next()->leaf().item<int64_t>(), 0);
  pass->next_rows(9, indices);
  EXPECT_EQ(indices, (Numbers{0, 3, 4}));
  EXPECT_FALSE(pass->next());
  pass->next_rows(1, indices);
  EXPECT_EQ(indices.size(), 3u);
}

TEST(ConcatenatedRows, OfAnotherShapeAreElements) {
  const auto both =
      from_tensor_slices(at::zeros({1, 2})).concatenate(from_tensor_slices(at::zeros({1, 3})));
  EXPECT_EQ(both.plan()->iterator()->table(), nullptr);
  EXPECT_EQ(rows(both), (Rows{{0, 0}, {0, 0, 0}}));
}

TEST(ConcatenatedRows, WithTuples) {
  const auto part = [](int64_t from) {
    return from_tensor_slices(at::arange(from, from + 4).view({2, 2}), at::arange(from, from + 2));
  };
  auto [x, y] = part(0).concatenate(part(10)).batch(4).iterator().get_next();
  EXPECT_TENSOR_EQ(x, at::cat({at::arange(4), at::arange(10, 14)}).view({4, 2}));
  EXPECT_TENSOR_EQ(y, at::tensor({0, 1, 10, 11}).to(at::kLong));
}

TEST(Prefetch, ComputesOnOneCoreAndLeavesTheCallerItsOwn) {
  const int before = at::get_num_threads();
  auto pass =
      range(1)
          .map([](const Tensor&) { return at::scalar_tensor(at::get_num_threads(), at::kLong); })
          .prefetch(1)
          .iterator();
  EXPECT_EQ(pass.get_next().item<int64_t>(), 1);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(Take, DoesNotCountAnElementThatThrew) {
  auto pass = range(4)
                  .map([](const Tensor& x) -> Tensor {
                    if (x.item<int64_t>() == 1) throw std::runtime_error("one");
                    return x;
                  })
                  .take(2)
                  .iterator();
  pass.next();
  EXPECT_ERROR(pass.next(), std::runtime_error, "one");
  EXPECT_EQ(pass.get_next().item<int64_t>(), 2);
  EXPECT_FALSE(pass.next());
}

TEST(Range, ReachesTheEndsOfInt64) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(range(0, kMax, 2).cardinality(), kMax / 2 + 1);
  EXPECT_EQ(range(kMin, kMax, kMax).cardinality(), 3);
  EXPECT_EQ(range(kMax, kMin, kMin).cardinality(), 2);
  EXPECT_EQ(numbers(range(kMax - 1, kMax, 5)), (Numbers{kMax - 1}));
  EXPECT_EQ(range(10).repeat(kMax).cardinality(), kMax);
  EXPECT_EQ(numbers(table_of(3).repeat(kMax).skip(300000).take(2)), (Numbers{0, 1}));
}

}  // namespace
}  // namespace tutti::data
