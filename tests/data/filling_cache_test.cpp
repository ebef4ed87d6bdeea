// The pass that fills a cache, seen from what is built on it: rows of the cache, not copies, with
// the order, the laziness and the errors of elements.

#include <memory>
#include <stdexcept>

#include "data/elements.h"

namespace tutti::data {
namespace {

constexpr int64_t kError = -1;

/// Throws at the numbers 3 and 8.
Dataset<Tensor> failing(int64_t count) {
  return range(count).map([](const Tensor& x) -> Tensor {
    if (x.item<int64_t>() == 3 || x.item<int64_t>() == 8) throw std::runtime_error("failing");
    return x;
  });
}

/// One pass over tensors, flattened; kError stands for an exception.
Rows outcomes(const Dataset<Tensor>& dataset) {
  Rows all;
  auto pass = dataset.iterator();
  for (;;) {
    try {
      const auto element = pass.next();
      if (!element) return all;
      all.push_back(numbers_of(*element));
    } catch (const Error&) {
      all.push_back({kError, kError});
    } catch (const std::runtime_error&) {
      all.push_back({kError});
    }
  }
}

Dataset<Tensor> ragged(int64_t count) {
  return range(count).map([](const Tensor& x) {
    const int64_t number = x.item<int64_t>();
    return number % 4 == 2 ? at::full({2}, number) : at::full({1}, number);
  });
}

TEST(FillingCache, IsATableFromTheStartAndHasColumnsAtTheEnd) {
  const auto cached = range(3).cache();
  const auto pass = cached.plan()->iterator();
  ASSERT_NE(pass->table(), nullptr);
  EXPECT_FALSE(pass->table()->has_columns());
  while (pass->next()) continue;
  EXPECT_TRUE(pass->table()->has_columns());
  EXPECT_EQ(cached.plan()->iterator()->table(), pass->table());
}

using Pipeline = Dataset<Tensor> (*)(const Dataset<Tensor>&);
const std::vector<Pipeline> kOnePass{
    [](const Dataset<Tensor>& base) { return base; },
    [](const Dataset<Tensor>& base) { return base.batch(4); },
    [](const Dataset<Tensor>& base) { return base.shuffle(5, {.seed = 1}); },
    [](const Dataset<Tensor>& base) { return base.shuffle(5, {.seed = 1}).batch(4); },
    [](const Dataset<Tensor>& base) { return base.shuffle(100, {.seed = 1}).batch(3); },
    [](const Dataset<Tensor>& base) { return base.skip(2).take(7); },
    [](const Dataset<Tensor>& base) { return base.skip(2).take(7).batch(3); },
    [](const Dataset<Tensor>& base) { return base.skip(4).batch(3); },
    [](const Dataset<Tensor>& base) { return base.shard(3, 0).batch(2); },
    [](const Dataset<Tensor>& base) { return base.shard(3, 2).batch(2); },
    [](const Dataset<Tensor>& base) { return base.shard(5, 3).batch(2); },
    [](const Dataset<Tensor>& base) { return base.take(9).shard(2, 1).shuffle(2, {.seed = 1}); },
    [](const Dataset<Tensor>& base) { return base.prefetch(2).batch(4); },
};
const std::vector<Pipeline> kSeveralPasses{
    [](const Dataset<Tensor>& base) { return base.repeat(3).batch(4); },
    [](const Dataset<Tensor>& base) { return base.shuffle(5, {.seed = 1}).repeat(3).batch(4); },
    [](const Dataset<Tensor>& base) { return base.repeat(3).shuffle(5, {.seed = 1}).batch(4); },
    [](const Dataset<Tensor>& base) { return base.concatenate(base).batch(4); },
    [](const Dataset<Tensor>& base) { return base.concatenate(range(3)).repeat(2).batch(4); },
};

void expect_the_outcomes_of_the_input(const std::vector<Pipeline>& pipelines,
                                      Dataset<Tensor> (*input)(int64_t)) {
  for (std::size_t i = 0; i < pipelines.size(); ++i)
    EXPECT_EQ(outcomes(pipelines[i](input(11).cache())), outcomes(pipelines[i](input(11)))) << i;
}

TEST(FillingCache, GivesTheElementsOfItsInput) {
  for (const auto& pipelines : {kOnePass, kSeveralPasses}) {
    expect_the_outcomes_of_the_input(pipelines, [](int64_t count) { return range(count); });
    expect_the_outcomes_of_the_input(pipelines, table_of);
  }
}

TEST(FillingCache, GivesTheErrorsOfItsInputInTheirPlaces) {
  expect_the_outcomes_of_the_input(kOnePass, failing);
}

TEST(FillingCache, OfAnInputOfUnknownLengthGrowsUnderAShuffle) {
  const auto unknown = [] { return range(3000).filter([](const Tensor&) { return true; }); };
  const auto base = unknown().cache();
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(rows(base.shuffle(500, {.seed = 1}).batch(7)),
              rows(unknown().shuffle(500, {.seed = 1}).batch(7)));
  }
}

TEST(FillingCache, OfElementsOfSeveralShapesGivesThemInBothPasses) {
  const auto shuffled = [](const Dataset<Tensor>& base) {
    return rows(base.shuffle(4, {.seed = 1}));
  };
  const auto cached = ragged(12).cache();
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(rows(cached), rows(ragged(12)));
    EXPECT_EQ(shuffled(cached), shuffled(ragged(12)));
    EXPECT_FALSE(cached.plan()->iterator()->table()->has_columns());
  }
  EXPECT_EQ(shuffled(ragged(12).cache()), shuffled(ragged(12)));
  EXPECT_EQ(rows(ragged(12).cache().repeat(2)), rows(ragged(12).repeat(2)));
}

TEST(FillingCache, OfElementsOfSeveralShapesRefusesABatchOfThemAndGoesOn) {
  const auto cached = ragged(12).cache();
  const Rows wanted{{0, 1}, {kError, kError}, {4, 5}, {kError, kError}, {8, 9}, {kError, kError}};
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(outcomes(cached.batch(2)), wanted);
  EXPECT_EQ(outcomes(ragged(12).batch(2)), wanted);
  EXPECT_ERROR(cached.batch(4).iterator().next(), InvalidArgument,
               "TensorSpec(shape=(1,), dtype=int64) and TensorSpec(shape=(2,), dtype=int64)");
}

TEST(FillingCache, ABatchOfTheLaterShapeAloneIsOne) {
  const auto cached = ragged(12).cache().skip(2).shard(4, 0).batch(2);
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(rows(cached), (Rows{{2, 2, 6, 6}, {10, 10}}));
}

/// The numbers below `count` in tensors that are counted while they live.
struct Alive {
  Dataset<Tensor> numbers(int64_t count) const {
    return range(count).map([alive = alive](const Tensor& x) {
      ++*alive;
      auto* value = new int64_t(x.item<int64_t>());
      return at::from_blob(
          value, {},
          [alive](void* memory) {
            delete static_cast<int64_t*>(memory);
            --*alive;
          },
          at::kLong);
    });
  }
  std::shared_ptr<int> alive = std::make_shared<int>(0);
};

TEST(FillingCache, AShuffleBehindItHoldsNoCopies) {
  const Alive counted;
  auto pass = counted.numbers(100).cache().shuffle(50).iterator();
  for (int i = 0; i < 10; ++i) {
    pass.next();
    EXPECT_EQ(*counted.alive, 0) << "the cache and the caller have copies of their own";
  }
  const Alive without_cache;
  auto other = without_cache.numbers(100).shuffle(50).iterator();
  other.next();
  EXPECT_EQ(*without_cache.alive, 49) << "else the buffer holds the elements themselves";
}

TEST(FillingCache, CallsTheFunctionOnlyForWhatAShuffleNeeds) {
  auto calls = std::make_shared<int>(0);
  auto pass = range(1000)
                  .map([calls](const Tensor& x) {
                    ++*calls;
                    return x;
                  })
                  .cache()
                  .shuffle(7)
                  .batch(2)
                  .iterator();
  pass.next();
  EXPECT_EQ(*calls, 8);
  pass.next();
  EXPECT_EQ(*calls, 10);
}

TEST(FillingCache, IsNotDamagedByWhoWritesIntoItsElements) {
  const auto scribble = [](Tensor x) { return x.fill_(99); };
  for (std::size_t i = 0; i < kOnePass.size(); ++i) {
    const auto cached = range(20).cache();
    EXPECT_EQ(rows(kOnePass[i](cached).map(scribble)).back().back(), 99);
    EXPECT_EQ(numbers(cached), numbers(range(20))) << i;
  }
}

TEST(FillingCache, LeavesNothingOfAPassThatEndsEarly) {
  auto calls = std::make_shared<int>(0);
  const auto cached = range(20)
                          .map([calls](const Tensor& x) {
                            ++*calls;
                            return x;
                          })
                          .cache();
  cached.shuffle(5).batch(4).iterator().next();
  EXPECT_EQ(*calls, 8);
  EXPECT_FALSE(cached.plan()->iterator()->table()->has_columns());
  EXPECT_EQ(numbers(cached.shuffle(5)).size(), 20u);
  EXPECT_EQ(*calls, 28);
  EXPECT_EQ(numbers(cached), numbers(range(20)));
  EXPECT_EQ(*calls, 28);
}

TEST(FillingCache, MayBeFilledByAnotherPassMeanwhile) {
  for (const bool shuffled : {false, true}) {
    const auto build = [shuffled](const Dataset<Tensor>& base) {
      return (shuffled ? base.shuffle(4, {.seed = 1}) : base).repeat(3).batch(4);
    };
    const auto cached = range(10).cache();
    auto slow = build(cached).iterator();
    Rows all{numbers_of(slow.get_next())};
    EXPECT_EQ(numbers(cached), numbers(range(10)));
    while (const auto batch = slow.next()) all.push_back(numbers_of(*batch));
    EXPECT_EQ(all, rows(build(range(10))));
  }
}

TEST(RunsFunctions, IsTrueUntilACacheIsFullAndNotBehindAPrefetch) {
  const auto runs = [](const Dataset<Tensor>& dataset) { return dataset.plan()->runs_functions(); };
  const auto same = [](const Tensor& x) { return x; };
  EXPECT_FALSE(runs(table_of(4).shuffle(2).repeat(2).batch(2).skip(1)));
  EXPECT_TRUE(runs(table_of(4).map(same).shuffle(2).repeat(2).batch(2)));
  EXPECT_TRUE(runs(range(4).filter([](const Tensor&) { return true; })));
  EXPECT_TRUE(runs(range(4).concatenate(range(4).map(same))));
  EXPECT_TRUE(runs(from_generator<Tensor>([] { return [] { return std::optional<Tensor>(); }; })));
  EXPECT_FALSE(runs(range(4).map(same).prefetch(1).batch(2)));
  const auto cached = range(4).map(same).cache();
  EXPECT_TRUE(runs(cached.batch(2)));
  rows(cached.shuffle(2).batch(2));
  EXPECT_FALSE(runs(cached.batch(2)));
}

}  // namespace
}  // namespace tutti::data
