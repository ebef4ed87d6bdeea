// sparse_batch.

#include "data/elements.h"

namespace tutti::data {
namespace {

Tensor ramp(const Tensor& x) { return at::arange(x.item<int64_t>(), at::kLong); }

TEST(SparseBatch, HasEveryEntryAtItsRowAndPlace) {
  Rows indices, values, sizes;
  const auto batches = range(1, 6).map(ramp).sparse_batch(2, {4 + 1});
  EXPECT_EQ(batches.cardinality(), 3);
  for (const Tensor& batch : batches) {
    EXPECT_TRUE(batch.is_sparse() && batch.is_coalesced());
    indices.push_back(numbers_of(batch.indices().t()));
    values.push_back(numbers_of(batch.values()));
    sizes.push_back(batch.sizes().vec());
  }
  EXPECT_EQ(sizes, (Rows{{2, 5}, {2, 5}, {1, 5}}));
  EXPECT_EQ(values[0], (Numbers{0, 0, 1})) << "zeros are entries too";
  EXPECT_EQ(indices[0], (Numbers{0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(values[2], (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(indices[2], (Numbers{0, 0, 0, 1, 0, 2, 0, 3, 0, 4}));
}

TEST(SparseBatch, IsAsWideAsTheLargestOfTheBatchWhereThatIsUnknown) {
  const auto batches = range(1, 5)
                           .map([](const Tensor& x) {
                             return at::ones({x.item<int64_t>(), 2}) * x.to(at::kFloat);
                           })
                           .sparse_batch(2, {-1, 3});
  Rows sizes;
  for (const Tensor& batch : batches) sizes.push_back(batch.sizes().vec());
  EXPECT_EQ(sizes, (Rows{{2, 2, 3}, {2, 4, 3}}));
  const Tensor first = batches.iterator().get_next().to_dense();
  EXPECT_TENSOR_EQ(
      first,
      at::tensor({1., 1., 0., 0., 0., 0., 2., 2., 0., 2., 2., 0.}, at::kFloat).reshape({2, 2, 3}));
  EXPECT_EQ(cat(batches.element_spec()), "TensorSpec(shape=(None, None, 3), dtype=float32)");
}

TEST(SparseBatch, OfScalarsAndOfEmptyRowsIsOne) {
  const Tensor scalars = range(3).sparse_batch(3, {}).get_single_element();
  EXPECT_EQ(numbers_of(scalars.to_dense()), (Numbers{0, 1, 2}));
  const Tensor rows = range(2).map(ramp).sparse_batch(2, {3}).get_single_element();
  EXPECT_EQ(numbers_of(rows.indices()), (Numbers{1, 0}));
  EXPECT_EQ(rows.sizes(), at::IntArrayRef({2, 3}));
}

TEST(SparseBatch, RefusesRowsThatDoNotFit) {
  EXPECT_ERROR(range(0, 6).map(ramp).sparse_batch(6, {4}).get_single_element(), InvalidArgument,
               "(5,)");
  EXPECT_ERROR(range(3).sparse_batch(2, {4}).iterator().next(), InvalidArgument,
               "expected as many dimensions");
  EXPECT_ERROR(range(3).sparse_batch(0, {}), InvalidArgument, "expected at least 1");
  EXPECT_ERROR(range(3).sparse_batch(1, {-2}), InvalidArgument, "row_shape");
  const Dataset<Nest> pairs = zip(range(3), range(3));
  EXPECT_ERROR(pairs.sparse_batch(2, {}).iterator().next(), InvalidArgument,
               "expected one dense tensor");
}

TEST(SparseBatch, PassesThroughWhatFollows) {
  const auto batches = range(1, 7).map(ramp).sparse_batch(2, {6});
  const auto sum_of = [](const Dataset<Tensor>& dataset) {
    int64_t sum = 0;
    for (const Tensor& batch : dataset) sum += at::_sparse_sum(batch).item<int64_t>();
    return sum;
  };
  const int64_t sum = 0 + 1 + 3 + 6 + 10 + 15;
  EXPECT_EQ(sum_of(batches.cache().repeat(2)), 2 * sum);
  EXPECT_EQ(sum_of(batches.shuffle(2).prefetch(kAutotune)), sum);
  auto pass = batches.iterator();
  pass.next();
  auto other = batches.iterator();
  other.restore(pass.save());
  EXPECT_EQ(numbers_of(other.get_next().values()), (Numbers{0, 1, 2, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace tutti::data
