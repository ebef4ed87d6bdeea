// Transformations that carry something along, and what ends a pipeline: reduce, length, empty,
// get_single_element.

#include "data/elements.h"

namespace tutti::data {
namespace {

Tensor zero() { return at::scalar_tensor(0, at::kLong); }

TEST(Scan, CarriesItsState) {
  const auto sums = range(1, 6).scan(zero(), [](const Tensor& sum, const Tensor& x) {
    return std::pair(sum + x, std::tuple(sum, sum + x));
  });
  Rows all;
  for (const auto& [before, after] : sums)
    all.push_back({before.item<int64_t>(), after.item<int64_t>()});
  EXPECT_EQ(all, (Rows{{0, 1}, {1, 3}, {3, 6}, {6, 10}, {10, 15}}));
  EXPECT_EQ(sums.cardinality(), 5);
}

TEST(Scan, BeginsEveryPassAnew) {
  const auto count =
      range(3).scan(zero(), [](const Tensor& n, const Tensor&) { return std::tuple(n + 1, n); });
  EXPECT_EQ(numbers(count), (Numbers{0, 1, 2}));
  EXPECT_EQ(numbers(count), (Numbers{0, 1, 2}));
  EXPECT_EQ(cat(count.element_spec()), "TensorSpec(shape=(), dtype=int64)");
}

TEST(Scan, RefusesAStateOfAnotherDtype) {
  const auto sums = range(3).scan(zero(), [](const Tensor& sum, const Tensor& x) {
    return std::pair((sum + x).to(at::kFloat), x);
  });
  EXPECT_ERROR(numbers(sums), InvalidArgument, "scan: the state became");
}

TEST(Scan, SpreadsATupleBehindTheState) {
  const auto dots =
      zip(range(3), range(3)).scan(zero(), [](const Tensor& sum, const Tensor& a, const Tensor& b) {
        return std::pair(sum + a * b, sum + a * b);
      });
  EXPECT_EQ(numbers(dots), (Numbers{0, 1, 5}));
}

TEST(TakeWhile, EndsAtTheFirstElementThatIsRefused) {
  const auto small = range(10).take_while([](const Tensor& x) { return (x - 4).abs() != 1; });
  EXPECT_EQ(numbers(small), (Numbers{0, 1, 2}));
  EXPECT_EQ(small.cardinality(), kUnknown);
  auto pass = small.iterator();
  while (pass.next()) {
  }
  EXPECT_FALSE(pass.next()) << "and stays there";
  EXPECT_ERROR(numbers(range(2).take_while([](const Tensor& x) { return x; })), InvalidArgument,
               "take_while: the predicate gave int64");
}

TEST(Unique, KeepsTheFirstOfEqualElements) {
  EXPECT_EQ(numbers(from_tensor_slices(at::tensor({1, 2, 1, 3, 2})).unique()), (Numbers{1, 2, 3}));
  const auto rows_of_two = from_tensor_slices(at::tensor({1, 2, 2, 1, 1, 2}).reshape({3, 2}));
  EXPECT_EQ(rows(rows_of_two.unique()), (Rows{{1, 2}, {2, 1}}));
}

TEST(Unique, RefusesFloatsAndStructures) {
  EXPECT_ERROR(numbers(from_tensor_slices(at::rand({2})).unique()), InvalidArgument, "float32");
  EXPECT_ERROR(zip(range(2), range(2)).unique().iterator().next(), InvalidArgument,
               "one component");
}

Dataset<Tensor> failing_at(int64_t where, int64_t count) {
  return range(count).map([where](const Tensor& x) {
    if (x.item<int64_t>() == where) throw DataLoss(cat("no ", where));
    return x;
  });
}

TEST(IgnoreErrors, DropsWhatThrows) {
  const auto rest = failing_at(2, 5).ignore_errors();
  EXPECT_EQ(numbers(rest), (Numbers{0, 1, 3, 4}));
  EXPECT_EQ(rest.cardinality(), kUnknown);
}

TEST(IgnoreErrors, SaysWhatItDropsWhenAsked) {
  ::testing::internal::CaptureStderr();
  numbers(failing_at(2, 5).ignore_errors({.log_warning = true}));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no 2"), std::string::npos);
}

TEST(IgnoreErrors, UserIssue61_DoesNotTurnForEverOnASourceThatStays) {
  const auto stuck = from_generator<Tensor>(
      [] { return []() -> std::optional<Tensor> { throw DataLoss("the same record"); }; });
  auto pass = stuck.ignore_errors().iterator();
  EXPECT_ERROR(pass.next(), FailedPrecondition, "the same record");
}

TEST(IgnoreErrors, MayDropEveryElementOfALongDataset) {
  const auto none = range(20000).map([](const Tensor&) -> Tensor { throw DataLoss("none"); });
  EXPECT_EQ(numbers(none.ignore_errors()), Numbers{});
}

TEST(AssertCardinality, SaysTheNumberAndChecksIt) {
  const auto even = range(8).filter([](const Tensor& x) { return x % 2 == 0; });
  EXPECT_EQ(even.assert_cardinality(4).cardinality(), 4);
  EXPECT_EQ(numbers(even.assert_cardinality(4)), (Numbers{0, 2, 4, 6}));
  auto short_of = even.assert_cardinality(5).iterator();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(short_of.next());
  EXPECT_ERROR(short_of.next(), FailedPrecondition, "only 4");
  EXPECT_FALSE(short_of.next());
  auto more = even.assert_cardinality(3).iterator();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(more.next());
  EXPECT_ERROR(more.next(), FailedPrecondition, "more");
  EXPECT_FALSE(more.next());
  EXPECT_ERROR(even.assert_cardinality(kUnknown), InvalidArgument, "-2");
}

TEST(Reduce, FoldsOnePass) {
  EXPECT_EQ(range(5).reduce(zero(), std::plus<Tensor>()).item<int64_t>(), 10);
  EXPECT_EQ(range(5).reduce(int64_t{0}, [](int64_t n, const Tensor&) { return n + 1; }), 5);
  EXPECT_EQ(range(0).reduce(7, [](int n, const Tensor&) { return n + 1; }), 7);
}

TEST(Reduce, RefusesAStateOfAnotherDtype) {
  const auto widen = [](const Tensor& sum, const Tensor& x) { return sum + x * 0.5; };
  EXPECT_ERROR(range(3).reduce(zero(), widen), InvalidArgument, "reduce: the state became");
}

TEST(Length, IsTheCardinalityWhereThereIsOne) {
  EXPECT_EQ(range(7).batch(2).length(), 4);
  EXPECT_ERROR(range(7).repeat().length(), InvalidArgument, "infinite");
  EXPECT_ERROR(range(7).filter([](const Tensor&) { return true; }).length(), InvalidArgument,
               "unknown");
}

TEST(Empty, LooksAtTheFirstElementOnlyWhereItMust) {
  EXPECT_TRUE(range(0).empty());
  EXPECT_FALSE(range(1).repeat().empty());
  EXPECT_TRUE(range(3).filter([](const Tensor&) { return false; }).empty());
  EXPECT_FALSE(range(3).filter([](const Tensor& x) { return x == 2; }).empty());
  EXPECT_TRUE(static_cast<bool>(range(0))) << "a dataset is there, with elements or without";
}

TEST(GetSingleElement, WantsExactlyOne) {
  EXPECT_EQ(from_tensors(at::scalar_tensor(5)).get_single_element().item<int64_t>(), 5);
  EXPECT_ERROR(range(0).get_single_element(), InvalidArgument, "empty");
  EXPECT_ERROR(range(2).get_single_element(), InvalidArgument, "more than one");
}

}  // namespace
}  // namespace tutti::data
