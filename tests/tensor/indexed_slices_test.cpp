#include "tutti/tensor/indexed_slices.h"

#include "support/expect.h"

namespace tutti {
namespace {

Tensor rows(std::vector<int64_t> indices) { return at::tensor(indices, at::kLong); }

TEST(IndexedSlices, ToDenseAddsRowsThatComeTwice) {
  const IndexedSlices slices{
      at::tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}).view({3, 2}), rows({3, 0, 3}), {4, 2}};
  EXPECT_TENSOR_EQ(slices.to_dense(),
                   at::tensor({3.f, 4.f, 0.f, 0.f, 0.f, 0.f, 6.f, 8.f}).view({4, 2}));
}

TEST(IndexedSlices, DeduplicatedHasEachRowOnceAscendingAndTheSameSum) {
  const IndexedSlices slices{at::tensor({1.f, 2.f, 3.f, 4.f}), rows({3, 0, 3, 1}), {4}};
  const IndexedSlices single = slices.deduplicated();
  EXPECT_TENSOR_EQ(single.indices, rows({0, 1, 3}));
  EXPECT_TENSOR_EQ(single.values, at::tensor({2.f, 4.f, 4.f}));
  EXPECT_EQ(single.dense_shape, slices.dense_shape);
  EXPECT_TENSOR_EQ(single.to_dense(), slices.to_dense());
}

TEST(IndexedSlices, MayBeEmpty) {
  const IndexedSlices slices{at::zeros({0, 2}, at::kDouble), rows({}), {3, 2}};
  EXPECT_TENSOR_EQ(slices.to_dense(), at::zeros({3, 2}, at::kDouble));
  EXPECT_EQ(slices.to_dense().scalar_type(), at::kDouble);
  EXPECT_EQ(slices.deduplicated().values.sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(slices.deduplicated().indices.numel(), 0);
}

TEST(IndexedSlices, LeavesItsPartsAlone) {
  const IndexedSlices slices{at::ones({2, 1}), rows({1, 1}), {2, 1}};
  slices.to_dense().add_(5);
  slices.deduplicated().values.add_(5);
  EXPECT_TENSOR_EQ(slices.values, at::ones({2, 1}));
}

TEST(IndexedSlices, RefusesPartsThatDoNotFit) {
  const Tensor values = at::ones({2, 3});
  const auto refused = [](const IndexedSlices& slices, const char* part) {
    EXPECT_ERROR(slices.check(), InvalidArgument, part);
    EXPECT_ERROR(slices.to_dense(), InvalidArgument, "expected values [n, …], int64 indices [n]");
    EXPECT_ERROR(slices.deduplicated(), InvalidArgument, "IndexedSlices: ");
  };
  refused({Tensor(), rows({0}), {4, 3}}, "values undefined");
  refused({values, Tensor(), {4, 3}}, "indices undefined");
  refused({values, rows({0, 1, 2}), {4, 3}}, "values float32 (2, 3), indices int64 (3,)");
  refused({values, rows({0, 1}).to(at::kInt), {4, 3}}, "indices int32 (2,)");
  refused({values, rows({0, 1}).view({2, 1}), {4, 3}}, "indices int64 (2, 1)");
  refused({values, rows({0, 1}), {4, 5}}, "dense shape (4, 5)");
  refused({values, rows({0, 1}), {4}}, "dense shape (4,)");
  refused({values, rows({0, 1}), {}}, "dense shape ()");
  refused({at::ones({0, 3}), rows({}), {-1, 3}}, "dense shape (None, 3)");
  refused({at::scalar_tensor(1), rows({0}), {}}, "values float32 ()");
}

TEST(IndexedSlices, RefusesIndicesOutOfRange) {
  EXPECT_ERROR((IndexedSlices{at::ones({2}), rows({1, 4}), {4}}.to_dense()), InvalidArgument,
               "IndexedSlices: indices from 1 to 4, expected 0 or more and below 4");
  EXPECT_ERROR((IndexedSlices{at::ones({2}), rows({-1, 0}), {4}}.deduplicated()), InvalidArgument,
               "indices from -1 to 0");
}

TEST(IndexedSlices, DeduplicatedAddsUpEveryFloatingDtypeAndRank) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kLong}) {
    const Tensor values = at::arange(5 * 6, at::kLong).view({5, 2, 3}).to(dtype);
    const IndexedSlices slices{values, rows({7, 2, 7, 2, 7}), {9, 2, 3}};
    const IndexedSlices single = slices.deduplicated();
    EXPECT_TENSOR_EQ(single.indices, rows({2, 7}));
    EXPECT_EQ(single.values.scalar_type(), dtype);
    EXPECT_TENSOR_EQ(single.values,
                     at::stack({values[1] + values[3], values[0] + values[2] + values[4]}));
  }
}

TEST(IndexedSlices, DeduplicatedTakesValuesThatAreStoredInAnotherOrder) {
  const Tensor values = at::arange(6, at::kFloat).view({2, 3}).t();
  const IndexedSlices slices{values, rows({1, 0, 1}), {2, 2}};
  EXPECT_TENSOR_EQ(slices.deduplicated().values, at::tensor({1.f, 4.f, 2.f, 8.f}).view({2, 2}));
}

TEST(IndexedSlices, DeduplicatedOfRowsWithoutEntriesKeepsTheRows) {
  const IndexedSlices slices{at::zeros({3, 0}), rows({1, 0, 1}), {2, 0}};
  EXPECT_EQ(slices.deduplicated().values.sizes(), at::IntArrayRef({2, 0}));
}

TEST(IndexedSlices, GoToLibTorchsSparseLayoutAndBack) {
  const IndexedSlices slices{at::tensor({1.f, 2.f, 3.f}).view({3, 1}), rows({2, 0, 2}), {4, 1}};
  const Tensor sparse = slices.to_sparse();
  EXPECT_EQ(sparse.layout(), at::kSparse);
  EXPECT_TENSOR_EQ(sparse.to_dense(), slices.to_dense());
  const IndexedSlices back = IndexedSlices::from_sparse(sparse);
  EXPECT_TENSOR_EQ(back.indices, slices.indices);
  EXPECT_TENSOR_EQ(back.values, slices.values);
  EXPECT_EQ(back.dense_shape, slices.dense_shape);
}

TEST(IndexedSlices, FromSparseRefusesOtherLayouts) {
  EXPECT_ERROR(IndexedSlices::from_sparse(at::ones({2, 2})), InvalidArgument, "layout Strided");
  EXPECT_ERROR(IndexedSlices::from_sparse(Tensor()), InvalidArgument, "undefined");
  EXPECT_ERROR(IndexedSlices::from_sparse(at::eye(2).to_sparse()), InvalidArgument,
               "2 sparse dimensions");
}

TEST(IndexedSlices, PrintTheirParts) {
  EXPECT_EQ(cat(IndexedSlices{at::tensor({1.5f, 2.f}), rows({3, 0}), {4}}),
            "IndexedSlices(indices=[3 0], values=[1.5 2. ], dense_shape=(4,))");
}

}  // namespace
}  // namespace tutti
