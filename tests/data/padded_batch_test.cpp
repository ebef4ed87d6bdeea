#include "data/elements.h"

namespace tutti::data {
namespace {

Dataset<Tensor> ramps(int64_t count) {
  return range(count).map([](const Tensor& i) { return at::arange(i.item<int64_t>() + 1); });
}

TEST(PaddedBatch, FillsUpToTheLongestOfTheBatch) {
  const auto dataset = ramps(5).padded_batch(2);
  EXPECT_EQ(rows(dataset), (Rows{{0, 0, 0, 1}, {0, 1, 2, 0, 0, 1, 2, 3}, {0, 1, 2, 3, 4}}));
  EXPECT_EQ(dataset.cardinality(), 3);
  EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(None, None), dtype=int64)");
}

TEST(PaddedBatch, TakesAnotherPaddingValue) {
  EXPECT_EQ(rows(ramps(3).padded_batch(3, {.padding_values = at::tensor(-1)})),
            (Rows{{0, -1, -1, 0, 1, -1, 0, 1, 2}}));
  EXPECT_ERROR(rows(ramps(3).padded_batch(3, {.padding_values = at::tensor(0.5)})), InvalidArgument,
               "float64");
  EXPECT_ERROR(ramps(3).padded_batch(3, {.padding_values = at::ones({2})}), InvalidArgument,
               "single number");
}

TEST(PaddedBatch, FillsUpToAGivenShape) {
  const auto dataset = ramps(2).padded_batch(2, {.padded_shapes = std::vector<int64_t>{4}});
  EXPECT_EQ(rows(dataset), (Rows{{0, 0, 0, 0, 0, 1, 0, 0}}));
  EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(None, 4), dtype=int64)");
}

TEST(PaddedBatch, RefusesElementsLargerThanTheShape) {
  auto pass = ramps(4).padded_batch(2, {.padded_shapes = std::vector<int64_t>{3}}).iterator();
  EXPECT_EQ(numbers_of(pass.get_next()), (Numbers{0, 0, 0, 0, 1, 0}));
  EXPECT_ERROR(pass.next(), InvalidArgument, "4 entries along axis 0");
}

TEST(PaddedBatch, RefusesShapesOfAnotherStructure) {
  EXPECT_ERROR(rows(ramps(2).padded_batch(2, {.padded_shapes = std::vector<int64_t>{3, 3}})),
               InvalidArgument, "number of dimensions");
  EXPECT_ERROR(ramps(2).padded_batch(2, {.padded_shapes = ShapeNest::tuple({})}).iterator().next(),
               InvalidArgument, "structure");
  EXPECT_ERROR(ramps(2).padded_batch(2, {.padded_shapes = std::vector<int64_t>{-2}}),
               InvalidArgument, "-1");
  EXPECT_ERROR(ramps(2).padded_batch(0), InvalidArgument, "at least 1");
}

TEST(PaddedBatch, PadsEachComponentOnItsOwn) {
  const auto dataset = range(3).map([](const Tensor& i) {
    const int64_t n = i.item<int64_t>() + 1;
    return std::tuple<Tensor, Tensor>(at::ones({n, 2}), i);
  });
  const auto [x, y] = dataset.padded_batch(3).iterator().get_next();
  EXPECT_EQ(shape_text(x.sizes()), "(3, 3, 2)");
  EXPECT_EQ(x.sum().item<float>(), 12);
  EXPECT_EQ(numbers_of(y), (Numbers{0, 1, 2}));
  PaddedBatchOptions options;
  options.padded_shapes = ShapeNest::tuple({std::vector<int64_t>{-1, 3}, std::vector<int64_t>{}});
  options.padding_values = Nest::tuple({at::tensor(7.0f), at::tensor(0)});
  const auto batches = dataset.padded_batch(2, options);
  EXPECT_EQ(numbers_of(std::get<0>(batches.iterator().get_next())),
            (Numbers{1, 1, 7, 7, 7, 7, 1, 1, 7, 1, 1, 7}));
  EXPECT_EQ(cat(batches.element_spec()),
            "(TensorSpec(shape=(None, None, 3), dtype=float32),\n TensorSpec(shape=(None,), "
            "dtype=int64))");
}

TEST(PaddedBatch, DropsTheRemainderWhenAsked) {
  const auto dataset = ramps(5).padded_batch(2, {.drop_remainder = true});
  EXPECT_EQ(dataset.cardinality(), 2);
  EXPECT_EQ(rows(dataset).size(), 2u);
  EXPECT_EQ(cat(dataset.element_spec()), "TensorSpec(shape=(2, None), dtype=int64)");
}

TEST(PaddedBatch, RefusesElementsOfDifferentRank) {
  const auto dataset =
      range(2).map([](const Tensor& i) { return i.item<int64_t>() == 0 ? i : i.reshape({1}); });
  EXPECT_ERROR(rows(dataset.padded_batch(2)), InvalidArgument, "one rank");
}

}  // namespace
}  // namespace tutti::data
