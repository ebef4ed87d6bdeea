#include <stdexcept>

#include "data/elements.h"

namespace tutti::data {
namespace {

TEST(Batch, StacksElements) {
  for (const auto& dataset : {range(5), table_of(5)}) {
    EXPECT_EQ(rows(dataset.batch(2)), (Rows{{0, 1}, {2, 3}, {4}}));
    EXPECT_EQ(rows(dataset.batch(9)), (Rows{{0, 1, 2, 3, 4}}));
  }
}

TEST(Batch, DropsTheRemainderWhenAsked) {
  for (const auto& dataset : {range(5), table_of(5)}) {
    EXPECT_EQ(rows(dataset.batch(2, {.drop_remainder = true})), (Rows{{0, 1}, {2, 3}}));
    EXPECT_EQ(rows(dataset.batch(9, {.drop_remainder = true})), Rows{});
  }
}

TEST(Batch, OfBatchesAddsAnAxis) {
  const auto batch = range(4).batch(2).batch(2).iterator().get_next();
  EXPECT_TENSOR_EQ(batch, at::arange(4).view({2, 2}));
}

TEST(Batch, StacksEveryComponent) {
  for (const bool slow : {false, true}) {
    auto dataset = from_tensor_slices(at::arange(6).view({3, 2}), at::arange(3));
    if (slow)
      dataset = dataset.map([](const Tensor& a, const Tensor& b) { return std::make_tuple(a, b); });
    auto [a, b] = dataset.batch(2).iterator().get_next();
    EXPECT_TENSOR_EQ(a, at::arange(4).view({2, 2}));
    EXPECT_TENSOR_EQ(b, at::arange(2));
  }
}

TEST(Batch, StacksElementsThatAreNotContiguous) {
  const Tensor wide = at::arange(6).view({3, 2});
  const auto dataset = from_tensors(wide.t()).concatenate(from_tensors(wide.t()));
  EXPECT_TENSOR_EQ(dataset.batch(2).iterator().get_next(), at::stack({wide.t(), wide.t()}));
}

TEST(Batch, StacksElementsWithoutBytes) {
  const auto dataset = from_tensors(at::zeros({0, 3})).repeat(2).batch(2);
  EXPECT_EQ(dataset.iterator().get_next().sizes(), at::IntArrayRef({2, 0, 3}));
}

TEST(Batch, IsNoViewOfTheSource) {
  const Tensor source = at::arange(4);
  from_tensor_slices(source).batch(2).iterator().get_next().fill_(9);
  EXPECT_TENSOR_EQ(source, at::arange(4));
}

TEST(Batch, KnowsItsCardinality) {
  EXPECT_EQ(range(5).batch(2).cardinality(), 3);
  EXPECT_EQ(range(5).batch(2, {.drop_remainder = true}).cardinality(), 2);
  EXPECT_EQ(range(5).repeat().batch(2).cardinality(), kInfinite);
  EXPECT_EQ(range(5).filter([](const Tensor&) { return true; }).batch(2).cardinality(), kUnknown);
}

TEST(Batch, KnowsItsRowsOnlyWhenTheRemainderIsDropped) {
  EXPECT_EQ(cat(range(5).batch(2).element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(cat(range(5).batch(2, {.drop_remainder = true}).element_spec()),
            "TensorSpec(shape=(2,), dtype=int64)");
}

TEST(Batch, RefusesASizeBelowOne) {
  EXPECT_ERROR(range(5).batch(0), InvalidArgument, "batch: 0 elements");
}

TEST(Batch, RefusesElementsOfAnotherShapeOrDtype) {
  const auto shapes = from_tensors(at::zeros({2})).concatenate(from_tensors(at::zeros({3})));
  EXPECT_ERROR(shapes.batch(2).iterator().next(), InvalidArgument,
               "TensorSpec(shape=(2,), dtype=float32) and TensorSpec(shape=(3,), dtype=float32)");
  const auto dtypes =
      range(2).map([](const Tensor& x) { return x.item<int64_t>() == 0 ? x : x.to(at::kFloat); });
  EXPECT_ERROR(dtypes.batch(2).iterator().next(), InvalidArgument, "float32");
}

TEST(Batch, RefusesElementsOfAnotherStructure) {
  const auto dataset = range(2).map(
      [](const Tensor& x) { return x.item<int64_t>() == 0 ? Nest(x) : Nest::tuple({x}); });
  EXPECT_ERROR(dataset.batch(2).iterator().next(), InvalidArgument, "* and (*,)");
}

TEST(Batch, GoesOnBehindAnException) {
  auto pass = range(5)
                  .map([](const Tensor& x) -> Tensor {
                    if (x.item<int64_t>() == 2) throw std::runtime_error("two");
                    return x;
                  })
                  .batch(2)
                  .iterator();
  EXPECT_EQ(numbers_of(pass.get_next()), (Numbers{0, 1}));
  EXPECT_ERROR(pass.next(), std::runtime_error, "two");
  EXPECT_EQ(numbers_of(pass.get_next()), (Numbers{3, 4}));
  EXPECT_FALSE(pass.next());
}

TEST(Batch, TellsItsSizeToWhatIsBuiltOnIt) {
  EXPECT_EQ(range(9).batch(3).prefetch(1).plan()->batch_size(), 3);
  EXPECT_EQ(range(9).batch(3).batch(2).plan()->batch_size(), 2);
  EXPECT_EQ(range(9).plan()->batch_size(), std::nullopt);
  EXPECT_EQ(range(9).batch(3).unbatch().plan()->batch_size(), std::nullopt);
}

TEST(Batch, OfRowsIsTheBatchOfElements) {
  const ShuffleOptions seeded{.seed = 3};
  for (int64_t size : {1, 4, 10}) {
    EXPECT_EQ(rows(table_of(10).shuffle(5, seeded).batch(size)),
              rows(without_table(table_of(10).shuffle(5, seeded)).batch(size)));
  }
}

TEST(Unbatch, GivesTheRows) {
  EXPECT_EQ(numbers(range(5).batch(2).unbatch()), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(numbers(from_tensors(at::zeros({0}))
                        .concatenate(
                            range(2).batch(2).map([](const Tensor& x) { return x.to(at::kFloat); }))
                        .unbatch()),
            (Numbers{0, 1}));
}

TEST(Unbatch, KnowsItsCardinalityWhenTheRowsAreKnown) {
  EXPECT_EQ(from_tensor_slices(at::zeros({4, 3})).unbatch().cardinality(), 12);
  EXPECT_EQ(range(5).batch(2).unbatch().cardinality(), kUnknown);
  EXPECT_EQ(range(5).batch(2, {.drop_remainder = true}).unbatch().cardinality(), 4);
  EXPECT_EQ(range(5).batch(2).repeat().unbatch().cardinality(), kInfinite);
}

TEST(Unbatch, DropsAnAxisOfTheSpec) {
  EXPECT_EQ(cat(from_tensor_slices(at::zeros({4, 3, 2})).unbatch().element_spec()),
            "TensorSpec(shape=(2,), dtype=float32)");
}

TEST(Unbatch, RefusesScalarsAndUnequalRows) {
  EXPECT_ERROR(range(5).unbatch().iterator().next(), InvalidArgument, "unbatch");
  EXPECT_ERROR(from_tensors(at::zeros({2}), at::zeros({3})).unbatch().iterator().next(),
               InvalidArgument, "2 and 3 rows");
}

Rows legacy(const Dataset<Tensor>& dataset, int num_pieces) {
  return rows(Dataset<Tensor>(legacy_rebatch(dataset.plan(), num_pieces)));
}
Rows rebatched(const Dataset<Tensor>& dataset, std::vector<int64_t> sizes) {
  return rows(Dataset<Tensor>(static_rebatch(dataset.plan(), std::move(sizes))));
}

TEST(LegacyRebatch, CutsEachBatch) {
  EXPECT_EQ(legacy(range(6).batch(4), 2), (Rows{{0, 1}, {2, 3}, {4}, {5}}));
  EXPECT_EQ(legacy(range(5).batch(5), 2), (Rows{{0, 1, 2}, {3, 4}}));
}

TEST(LegacyRebatch, GivesEmptyPiecesWhenTheRowsDoNotReach) {
  EXPECT_EQ(legacy(range(4).batch(4), 5), (Rows{{0}, {1}, {2}, {3}, {}}));
}

TEST(LegacyRebatch, KnowsItsCardinalityAndSpec) {
  const auto of = [](const Dataset<Tensor>& dataset, int pieces) {
    return legacy_rebatch(dataset.plan(), pieces);
  };
  EXPECT_EQ(of(range(6).batch(4), 2)->cardinality(), 4);
  EXPECT_EQ(of(range(6).batch(4).repeat(), 2)->cardinality(), kInfinite);
  const auto full = range(8).batch(4, {.drop_remainder = true});
  EXPECT_EQ(cat(of(full, 2)->element_spec()), "TensorSpec(shape=(2,), dtype=int64)");
  EXPECT_EQ(cat(of(full, 3)->element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
}

TEST(LegacyRebatch, RefusesScalars) {
  EXPECT_ERROR(legacy(range(4), 2), InvalidArgument, "batch()");
}

TEST(StaticRebatch, CutsTheStreamOfRowsAnew) {
  EXPECT_EQ(rebatched(range(10).batch(4), {3}), (Rows{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}}));
  EXPECT_EQ(rebatched(range(7).batch(7), {2, 1}), (Rows{{0, 1}, {2}, {3, 4}, {5}, {6}}));
}

TEST(StaticRebatch, JoinsSmallBatches) {
  EXPECT_EQ(rebatched(range(5).batch(1), {4}), (Rows{{0, 1, 2, 3}, {4}}));
}

TEST(StaticRebatch, GivesEmptyBatchesForSizeZero) {
  EXPECT_EQ(rebatched(range(3).batch(3), {1, 0}), (Rows{{0}, {}, {1}, {}, {2}}));
}

TEST(StaticRebatch, KnowsItsSpecWhenTheRowsAreKnown) {
  const auto full = range(8).batch(4, {.drop_remainder = true}).plan();
  EXPECT_EQ(cat(static_rebatch(full, {2, 2})->element_spec()),
            "TensorSpec(shape=(2,), dtype=int64)");
  EXPECT_EQ(cat(static_rebatch(full, {2, 1})->element_spec()),
            "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(static_rebatch(full, {2, 1})->cardinality(), 5);
}

TEST(StaticRebatch, RefusesSizesWithoutRows) {
  EXPECT_ERROR(rebatched(range(3).batch(3), {0, 0}), InvalidArgument, "add up to 0");
  EXPECT_ERROR(rebatched(range(3).batch(3), {}), InvalidArgument, "add up to 0");
}

TEST(StaticRebatch, RefusesANegativeSize) {
  EXPECT_ERROR(rebatched(range(3).batch(3), {3, -1}), InvalidArgument, "-1");
}

TEST(BatchSizesForWorker, GiveTheFirstReplicasTheRest) {
  EXPECT_EQ(batch_sizes_for_worker(7, 2, 2, 0), (Numbers{2, 2, 2, 1}));
  EXPECT_EQ(batch_sizes_for_worker(7, 2, 2, 1), (Numbers{2, 1, 2, 2}));
}

TEST(BatchSizesForWorker, AddUpToTheGlobalBatchInEachStep) {
  // Step s of worker w takes the sizes [s R, (s + 1) R) of its cycle.
  for (int64_t global : {1, 5, 7, 12}) {
    const int workers = 3, replicas = 2;
    for (int step = 0; step < workers; ++step) {
      int64_t sum = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const auto sizes = batch_sizes_for_worker(global, workers, replicas, worker);
        for (int i = 0; i < replicas; ++i)
          sum += sizes[static_cast<std::size_t>(step * replicas + i)];
      }
      EXPECT_EQ(sum, global);
    }
  }
}

TEST(BatchSizesForWorker, RefusesAWorkerThatIsNone) {
  EXPECT_ERROR(batch_sizes_for_worker(7, 2, 2, 2), InvalidArgument, "worker 2 of 2");
  EXPECT_ERROR(batch_sizes_for_worker(0, 2, 2, 0), InvalidArgument, "global batch 0");
}

}  // namespace
}  // namespace tutti::data
