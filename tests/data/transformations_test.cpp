#include <stdexcept>

#include "data/elements.h"

namespace tutti::data {
namespace {

Dataset<Tensor> unknown(int64_t count) {
  return range(count).filter([](const Tensor&) { return true; });
}

/// Throws at the element 1.
Dataset<Tensor> failing_at_one(int64_t count) {
  return range(count).map([](const Tensor& x) -> Tensor {
    if (x.item<int64_t>() == 1) throw std::runtime_error("one");
    return x;
  });
}

TEST(Map, AppliesTheFunctionInOrder) {
  EXPECT_EQ(numbers(range(3).map([](const Tensor& x) { return x * 10; })), (Numbers{0, 10, 20}));
}

TEST(Map, TakesATuplesItemsAsArguments) {
  const auto sums =
      zip(range(3), range(10, 13)).map([](const Tensor& a, const Tensor& b) { return a + b; });
  EXPECT_EQ(numbers(sums), (Numbers{10, 12, 14}));
}

TEST(Map, ChangesTheStructure) {
  auto [a, b] =
      range(2).map([](const Tensor& x) { return std::make_tuple(x, x + 1); }).iterator().get_next();
  EXPECT_EQ(a.item<int64_t>(), 0);
  EXPECT_EQ(b.item<int64_t>(), 1);
}

TEST(Map, KeepsTheCardinality) {
  auto same = [](const Tensor& x) { return x; };
  EXPECT_EQ(range(3).map(same).cardinality(), 3);
  EXPECT_EQ(range(3).repeat().map(same).cardinality(), kInfinite);
  EXPECT_EQ(unknown(3).map(same).cardinality(), kUnknown);
}

TEST(Map, TellsItsSpecByTheFirstElement) {
  EXPECT_EQ(cat(range(3).map([](const Tensor&) { return at::zeros({2}); }).element_spec()),
            "TensorSpec(shape=(2,), dtype=float32)");
}

TEST(Map, RunsWithoutGradients) {
  const Tensor weight = at::ones({}).set_requires_grad(true);
  const auto dataset = range(1).map([weight](const Tensor& x) { return x * weight; });
  EXPECT_FALSE(dataset.iterator().get_next().requires_grad());
}

TEST(Map, ThrowsAtTheElementAndGoesOnBehindIt) {
  auto pass = failing_at_one(3).iterator();
  EXPECT_EQ(pass.get_next().item<int64_t>(), 0);
  EXPECT_ERROR(pass.next(), std::runtime_error, "one");
  EXPECT_EQ(pass.get_next().item<int64_t>(), 2);
  EXPECT_FALSE(pass.next());
}

TEST(Filter, KeepsWhatThePredicateAccepts) {
  EXPECT_EQ(numbers(range(6).filter([](const Tensor& x) { return x.item<int64_t>() % 2 == 1; })),
            (Numbers{1, 3, 5}));
}

TEST(Filter, TakesABooleanTensor) {
  EXPECT_EQ(numbers(range(6).filter([](const Tensor& x) { return x.lt(2); })), (Numbers{0, 1}));
}

TEST(Filter, RefusesAnotherVerdict) {
  EXPECT_ERROR(range(6).filter([](const Tensor& x) { return x + 1; }).iterator().next(),
               InvalidArgument, "int64 ()");
  EXPECT_ERROR(
      range(6).filter([](const Tensor& x) { return x.lt(2).expand({2}); }).iterator().next(),
      InvalidArgument, "bool (2,)");
}

TEST(Filter, HasUnknownCardinalityUnlessTheInputIsEmpty) {
  EXPECT_EQ(unknown(3).cardinality(), kUnknown);
  EXPECT_EQ(unknown(0).cardinality(), 0);
}

TEST(Filter, KeepsTheSpec) {
  EXPECT_EQ(cat(unknown(3).element_spec()), "TensorSpec(shape=(), dtype=int64)");
}

TEST(Take, StopsAfterTheCount) {
  for (const auto& dataset : {range(5), table_of(5)}) {
    EXPECT_EQ(numbers(dataset.take(2)), (Numbers{0, 1}));
    EXPECT_EQ(numbers(dataset.take(0)), Numbers{});
    EXPECT_EQ(numbers(dataset.take(9)), (Numbers{0, 1, 2, 3, 4}));
    EXPECT_EQ(numbers(dataset.take(-1)), (Numbers{0, 1, 2, 3, 4}));
  }
}

TEST(Take, KnowsItsCardinality) {
  EXPECT_EQ(range(5).take(2).cardinality(), 2);
  EXPECT_EQ(range(5).take(9).cardinality(), 5);
  EXPECT_EQ(range(5).take(-1).cardinality(), 5);
  EXPECT_EQ(range(5).repeat().take(7).cardinality(), 7);
  EXPECT_EQ(range(5).repeat().take(-1).cardinality(), kInfinite);
  EXPECT_EQ(unknown(5).take(2).cardinality(), kUnknown);
  EXPECT_EQ(unknown(5).take(0).cardinality(), 0);
}

TEST(Skip, StartsBehindTheCount) {
  for (const auto& dataset : {range(5), table_of(5)}) {
    EXPECT_EQ(numbers(dataset.skip(2)), (Numbers{2, 3, 4}));
    EXPECT_EQ(numbers(dataset.skip(0)), (Numbers{0, 1, 2, 3, 4}));
    EXPECT_EQ(numbers(dataset.skip(9)), Numbers{});
    EXPECT_EQ(numbers(dataset.skip(-1)), Numbers{});
  }
}

TEST(Skip, KnowsItsCardinality) {
  EXPECT_EQ(range(5).skip(2).cardinality(), 3);
  EXPECT_EQ(range(5).skip(9).cardinality(), 0);
  EXPECT_EQ(range(5).skip(-1).cardinality(), 0);
  EXPECT_EQ(range(5).repeat().skip(2).cardinality(), kInfinite);
  EXPECT_EQ(unknown(5).skip(2).cardinality(), kUnknown);
}

TEST(TakeAndSkip, RefuseCountsBelowMinusOne) {
  EXPECT_ERROR(range(5).take(-2), InvalidArgument, "take: -2");
  EXPECT_ERROR(range(5).skip(-2), InvalidArgument, "skip: -2");
}

TEST(Repeat, GoesRound) {
  for (const auto& dataset : {range(2), table_of(2)}) {
    EXPECT_EQ(numbers(dataset.repeat(3)), (Numbers{0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(numbers(dataset.repeat(0)), Numbers{});
    EXPECT_EQ(numbers(dataset.repeat().take(5)), (Numbers{0, 1, 0, 1, 0}));
  }
}

TEST(Repeat, EndsForAnEmptyInput) {
  EXPECT_EQ(numbers(range(0).repeat()), Numbers{});
  EXPECT_EQ(rows(from_tensor_slices(at::arange(0)).repeat().batch(2)), Rows{});
}

TEST(Repeat, LetsBatchesGoAcrossPasses) {
  for (const auto& dataset : {range(3), table_of(3)}) {
    EXPECT_EQ(rows(dataset.repeat(2).batch(4)), (Rows{{0, 1, 2, 0}, {1, 2}}));
  }
}

TEST(Repeat, KnowsItsCardinality) {
  EXPECT_EQ(range(2).repeat(3).cardinality(), 6);
  EXPECT_EQ(range(2).repeat(0).cardinality(), 0);
  EXPECT_EQ(range(2).repeat().cardinality(), kInfinite);
  EXPECT_EQ(range(0).repeat().cardinality(), 0);
  EXPECT_EQ(unknown(2).repeat(3).cardinality(), kUnknown);
}

TEST(Repeat, RefusesCountsBelowMinusOne) {
  EXPECT_ERROR(range(5).repeat(-2), InvalidArgument, "repeat: -2");
}

TEST(Shard, GivesEveryNthElement) {
  for (const auto& dataset : {range(7), table_of(7)}) {
    EXPECT_EQ(numbers(dataset.shard(3, 0)), (Numbers{0, 3, 6}));
    EXPECT_EQ(numbers(dataset.shard(3, 1)), (Numbers{1, 4}));
    EXPECT_EQ(numbers(dataset.shard(3, 2)), (Numbers{2, 5}));
    EXPECT_EQ(numbers(dataset.shard(9, 8)), Numbers{});
  }
}

TEST(Shard, KnowsItsCardinality) {
  for (int64_t index = 0; index < 3; ++index) {
    const auto part = range(7).shard(3, index);
    EXPECT_EQ(part.cardinality(), static_cast<int64_t>(numbers(part).size()));
  }
  EXPECT_EQ(range(2).shard(3, 2).cardinality(), 0);
  EXPECT_EQ(unknown(7).shard(3, 1).cardinality(), kUnknown);
}

TEST(Shard, RefusesAnIndexThatIsNone) {
  EXPECT_ERROR(range(7).shard(0, 0), InvalidArgument, "shard: index 0 of 0");
  EXPECT_ERROR(range(7).shard(3, 3), InvalidArgument, "shard: index 3 of 3");
  EXPECT_ERROR(range(7).shard(3, -1), InvalidArgument, "shard: index -1 of 3");
}

TEST(Zip, IsAsLongAsTheShortest) {
  const auto pairs = zip(range(3), range(10, 12));
  Numbers all;
  for (const auto& [a, b] : pairs) {
    all.push_back(a.item<int64_t>());
    all.push_back(b.item<int64_t>());
  }
  EXPECT_EQ(all, (Numbers{0, 10, 1, 11}));
  EXPECT_EQ(pairs.cardinality(), 2);
}

TEST(Zip, KnowsItsCardinality) {
  EXPECT_EQ(zip(range(3), range(2).repeat()).cardinality(), 3);
  EXPECT_EQ(zip(range(3).repeat(), range(2).repeat()).cardinality(), kInfinite);
  EXPECT_EQ(zip(range(3), unknown(2)).cardinality(), kUnknown);
}

TEST(Zip, StaysAtTheEnd) {
  auto pass = zip(range(3), range(1)).iterator();
  pass.next();
  EXPECT_FALSE(pass.next());
  EXPECT_FALSE(pass.next());
}

TEST(Zip, HasATupleOfSpecs) {
  EXPECT_EQ(cat(zip(range(3), range(3)).element_spec()),
            "(TensorSpec(shape=(), dtype=int64), TensorSpec(shape=(), dtype=int64))");
}

TEST(Zip, RefusesNothing) { EXPECT_ERROR(plans::zip({}), InvalidArgument, "no datasets"); }

TEST(Concatenate, GivesOneBehindTheOther) {
  EXPECT_EQ(numbers(range(2).concatenate(range(5, 7))), (Numbers{0, 1, 5, 6}));
  EXPECT_EQ(numbers(range(0).concatenate(table_of(2))), (Numbers{0, 1}));
}

TEST(Concatenate, KnowsItsCardinality) {
  EXPECT_EQ(range(2).concatenate(range(3)).cardinality(), 5);
  EXPECT_EQ(range(2).concatenate(range(3).repeat()).cardinality(), kInfinite);
  EXPECT_EQ(unknown(2).concatenate(range(3).repeat()).cardinality(), kInfinite);
  EXPECT_EQ(range(2).concatenate(unknown(3)).cardinality(), kUnknown);
}

TEST(Concatenate, RelaxesTheSpec) {
  const auto both = from_tensors(at::zeros({2, 3})).concatenate(from_tensors(at::zeros({4, 3})));
  EXPECT_EQ(cat(both.element_spec()), "TensorSpec(shape=(None, 3), dtype=float32)");
}

TEST(Concatenate, TakesTheSpecOfTheSecondWhenTheFirstIsEmpty) {
  const Dataset<Nest> empty(range(0).plan());
  const Dataset<Nest> pairs(zip(range(2), range(2)).plan());
  EXPECT_EQ(empty.concatenate(pairs).element_spec().structure(), "(*, *)");
  EXPECT_EQ(pairs.concatenate(empty).element_spec().structure(), "(*, *)");
}

TEST(Concatenate, RefusesAnotherDtypeOrStructure) {
  EXPECT_ERROR(range(2).concatenate(from_tensors(at::zeros({}))), InvalidArgument, "float32");
  const Dataset<Nest> pairs(zip(range(2), range(2)).plan());
  EXPECT_ERROR(pairs.concatenate(Dataset<Nest>(range(2).plan())), InvalidArgument,
               "expected one structure");
}

TEST(Enumerate, NumbersTheElements) {
  Numbers all;
  for (const auto& [number, element] : range(10, 12).enumerate(5)) {
    EXPECT_EQ(number.scalar_type(), at::kLong);
    all.push_back(number.item<int64_t>());
    all.push_back(element.item<int64_t>());
  }
  EXPECT_EQ(all, (Numbers{5, 10, 6, 11}));
  EXPECT_EQ(range(3).enumerate().cardinality(), 3);
}

TEST(Enumerate, HasANumberInItsSpec) {
  EXPECT_EQ(cat(from_tensors(at::zeros({2})).enumerate().element_spec()),
            "(TensorSpec(shape=(), dtype=int64), TensorSpec(shape=(2,), dtype=float32))");
}

TEST(WithOptions, CarriesOptionsToWhatIsBuiltOnIt) {
  Options options;
  options.experimental_distribute.auto_shard_policy = AutoShardPolicy::kOff;
  const auto dataset = range(4).with_options(options).batch(2).prefetch(1);
  EXPECT_EQ(dataset.plan()->options().experimental_distribute.auto_shard_policy,
            AutoShardPolicy::kOff);
  EXPECT_EQ(range(4).batch(2).plan()->options().experimental_distribute.auto_shard_policy,
            AutoShardPolicy::kAuto);
}

TEST(WithOptions, ChangesNoElement) {
  EXPECT_EQ(numbers(range(4).with_options({})), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(range(4).with_options({}).cardinality(), 4);
}

TEST(Apply, CallsTheFunctionWithTheDataset) {
  EXPECT_EQ(numbers(range(4).apply([](const Dataset<Tensor>& all) { return all.skip(2); })),
            (Numbers{2, 3}));
}

TEST(Rows, GiveWhatElementsGive) {
  const auto chain = [](const Dataset<Tensor>& dataset) {
    return rows(dataset.skip(1).shard(2, 1).repeat(2).take(7).batch(3));
  };
  EXPECT_EQ(chain(table_of(11)), chain(without_table(table_of(11))));
  EXPECT_EQ(chain(table_of(11)), (Rows{{2, 4, 6}, {8, 10, 2}, {4}}));
}

}  // namespace
}  // namespace tutti::data
