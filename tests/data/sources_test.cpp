#include <string>

#include "data/elements.h"

namespace tutti::data {
namespace {

TEST(Range, CountsFromZero) { EXPECT_EQ(numbers(range(4)), (Numbers{0, 1, 2, 3})); }

TEST(Range, HasStartStopAndStep) {
  EXPECT_EQ(numbers(range(2, 5)), (Numbers{2, 3, 4}));
  EXPECT_EQ(numbers(range(1, 8, 3)), (Numbers{1, 4, 7}));
  EXPECT_EQ(numbers(range(5, 0, -2)), (Numbers{5, 3, 1}));
}

TEST(Range, IsEmptyWhenTheStopIsNotAhead) {
  EXPECT_EQ(numbers(range(-3)), Numbers{});
  EXPECT_EQ(numbers(range(3, 3)), Numbers{});
  EXPECT_EQ(numbers(range(0, 5, -1)), Numbers{});
}

TEST(Range, KnowsItsCardinality) {
  EXPECT_EQ(range(4).cardinality(), 4);
  EXPECT_EQ(range(1, 8, 3).cardinality(), 3);
  EXPECT_EQ(range(1, 7, 3).cardinality(), 2);
  EXPECT_EQ(range(5, 0, -2).cardinality(), 3);
  EXPECT_EQ(range(-3).cardinality(), 0);
}

TEST(Range, GivesInt64Scalars) {
  EXPECT_EQ(range(1).iterator().get_next().scalar_type(), at::kLong);
  EXPECT_EQ(cat(range(4).element_spec()), "TensorSpec(shape=(), dtype=int64)");
}

TEST(Range, RefusesStepZero) { EXPECT_ERROR(range(0, 4, 0), InvalidArgument, "step 0"); }

TEST(FromTensors, GivesTheWholeOnce) {
  const auto dataset = from_tensors(at::arange(6).view({2, 3}));
  EXPECT_EQ(dataset.cardinality(), 1);
  EXPECT_EQ(rows(dataset), (Rows{{0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(2, 3), dtype=int64)");
}

TEST(FromTensors, MakesATupleOfSeveralArguments) {
  auto [a, b] = from_tensors(at::arange(2), at::arange(3)).iterator().get_next();
  EXPECT_TENSOR_EQ(a, at::arange(2));
  EXPECT_TENSOR_EQ(b, at::arange(3));
}

TEST(FromTensorSlices, SlicesAlongTheFirstAxis) {
  const auto dataset = from_tensor_slices(at::arange(6).view({3, 2}));
  EXPECT_EQ(dataset.cardinality(), 3);
  EXPECT_EQ(rows(dataset), (Rows{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(2,), dtype=int64)");
}

TEST(FromTensorSlices, SlicesEveryComponentOfATuple) {
  const auto dataset = from_tensor_slices(at::zeros({2, 3}), at::arange(2));
  int64_t number = 0;
  for (const auto& [image, label] : dataset) {
    EXPECT_EQ(image.sizes(), at::IntArrayRef({3}));
    EXPECT_EQ(label.item<int64_t>(), number++);
  }
  EXPECT_EQ(number, 2);
  EXPECT_EQ(cat(dataset.element_spec()),
            "(TensorSpec(shape=(3,), dtype=float32), TensorSpec(shape=(), dtype=int64))");
}

TEST(FromTensorSlices, SlicesMaps) {
  const std::map<std::string, Tensor> columns{{"x", at::arange(2)}, {"y", at::arange(2) * 10}};
  auto pass = from_tensor_slices(columns).iterator();
  pass.next();
  auto element = pass.get_next();
  EXPECT_EQ(element.at("x").item<int64_t>(), 1);
  EXPECT_EQ(element.at("y").item<int64_t>(), 10);
}

TEST(FromTensorSlices, RefusesScalars) {
  EXPECT_ERROR(from_tensor_slices(at::scalar_tensor(1)), InvalidArgument, "from_tensors");
}

TEST(FromTensorSlices, RefusesAnotherLength) {
  EXPECT_ERROR(from_tensor_slices(at::zeros({2, 3}), at::zeros({4})), InvalidArgument,
               "(2, 3) and (4,)");
}

TEST(FromTensorSlices, RefusesNoTensors) {
  EXPECT_ERROR(from_tensor_slices(Nest::tuple({})), InvalidArgument, "no tensors");
}

/// 0 … count - 1.
auto counter(int count) {
  return [count] {
    return [count, i = 0]() mutable -> std::optional<Tensor> {
      if (i == count) return std::nullopt;
      return at::scalar_tensor(i++, at::kLong);
    };
  };
}

TEST(FromGenerator, AsksUntilThereIsNothing) {
  EXPECT_EQ(numbers(from_generator<Tensor>(counter(3))), (Numbers{0, 1, 2}));
}

TEST(FromGenerator, StartsAnewForEachPass) {
  const auto dataset = from_generator<Tensor>(counter(3));
  EXPECT_EQ(numbers(dataset), numbers(dataset));
}

TEST(FromGenerator, IsNotAskedAgainBehindItsEnd) {
  auto calls = std::make_shared<int>(0);
  auto pass = from_generator<Tensor>([calls] {
                return [calls]() -> std::optional<Tensor> {
                  ++*calls;
                  return std::nullopt;
                };
              }).iterator();
  EXPECT_FALSE(pass.next());
  EXPECT_FALSE(pass.next());
  EXPECT_EQ(*calls, 1);
}

TEST(FromGenerator, HasUnknownCardinality) {
  EXPECT_EQ(from_generator<Tensor>(counter(3)).cardinality(), kUnknown);
}

TEST(FromGenerator, TellsItsSpecByTheFirstElementOrAsGiven) {
  EXPECT_EQ(cat(from_generator<Tensor>(counter(3)).element_spec()),
            "TensorSpec(shape=(), dtype=int64)");
  const SpecNest given = TensorSpec{{}, at::kLong, /*unknown_rank=*/true};
  EXPECT_EQ(cat(from_generator<Tensor>(counter(3), given).element_spec()),
            "TensorSpec(shape=<unknown>, dtype=int64)");
}

TEST(FromGenerator, EmptyWithoutASpecCannotTellOne) {
  EXPECT_ERROR(from_generator<Tensor>(counter(0)).element_spec(), FailedPrecondition, "empty");
}

TEST(FromGenerator, RefusesAnElementThatTheSpecDoesNotAccept) {
  const SpecNest spec = TensorSpec{{2}, at::kLong};
  EXPECT_ERROR(from_generator<Tensor>(counter(1), spec).iterator().next(), InvalidArgument,
               "TensorSpec(shape=(), dtype=int64), expected TensorSpec(shape=(2,), dtype=int64)");
}

TEST(FromGenerator, RefusesAnotherStructureThanTheSpec) {
  const SpecNest spec = SpecNest::tuple({TensorSpec{{}, at::kLong}});
  EXPECT_ERROR(from_generator<Tensor>(counter(1), spec).iterator().next(), InvalidArgument,
               "expected (*,)");
}

TEST(Dataset, CanBeIteratedTwice) {
  for (const auto& dataset : {range(3), table_of(3), range(3).batch(1).unbatch()}) {
    EXPECT_EQ(numbers(dataset), (Numbers{0, 1, 2}));
    EXPECT_EQ(numbers(dataset), (Numbers{0, 1, 2}));
  }
}

TEST(Dataset, HasIndependentIterators) {
  for (const auto& dataset : {range(3), table_of(3)}) {
    auto a = dataset.iterator();
    auto b = dataset.iterator();
    EXPECT_EQ(a.get_next().item<int64_t>(), 0);
    EXPECT_EQ(a.get_next().item<int64_t>(), 1);
    EXPECT_EQ(b.get_next().item<int64_t>(), 0);
    EXPECT_EQ(a.get_next().item<int64_t>(), 2);
    EXPECT_EQ(b.get_next().item<int64_t>(), 1);
  }
}

TEST(Dataset, StaysAtTheEnd) {
  auto pass = range(1).iterator();
  pass.next();
  EXPECT_FALSE(pass.next());
  EXPECT_FALSE(pass.next());
  EXPECT_ERROR(pass.get_next(), OutOfRange, "end of the dataset");
}

TEST(Dataset, OutlivesTheHandleItCameFrom) {
  auto pass = [] { return table_of(4).batch(2).iterator(); }();
  EXPECT_EQ(numbers_of(pass.get_next()), (Numbers{0, 1}));
  EXPECT_EQ(numbers_of(pass.get_next()), (Numbers{2, 3}));
}

TEST(Dataset, BecomesDynamic) {
  const Dataset<Nest> dynamic = zip(range(2), range(2));
  EXPECT_EQ(dynamic.iterator().get_next().structure(), "(*, *)");
}

TEST(Dataset, RefusesElementsOfAnotherType) {
  EXPECT_ERROR(Dataset<Tensor>(zip(range(2), range(2)).plan()).iterator().next(), InvalidArgument,
               "(*, *)");
}

TEST(InputContext, DividesTheGlobalBatch) {
  EXPECT_EQ(InputContext(2, 1, 4).get_per_replica_batch_size(8), 2);
  EXPECT_ERROR(InputContext(2, 1, 4).get_per_replica_batch_size(6), InvalidArgument, "multiple");
  EXPECT_ERROR(InputContext(2, 1, 4).get_per_replica_batch_size(0), InvalidArgument, "at least 1");
}

TEST(InputContext, SaysWhichPipelineOfHowManyItIs) {
  EXPECT_EQ(InputContext().to_string(), "InputContext(input pipeline id 0, total: 1)");
  EXPECT_EQ(InputContext(3, 2, 6).to_string(), "InputContext(input pipeline id 2, total: 3)");
}

TEST(InputContext, RefusesAPipelineThatIsNone) {
  EXPECT_ERROR(InputContext(2, 2, 4), InvalidArgument, "pipeline 2 of 2");
  EXPECT_ERROR(InputContext(2, -1, 4), InvalidArgument, "pipeline -1");
  EXPECT_ERROR(InputContext(0, 0, 4), InvalidArgument, "positive");
  EXPECT_ERROR(InputContext(1, 0, 0), InvalidArgument, "positive");
}

}  // namespace
}  // namespace tutti::data
