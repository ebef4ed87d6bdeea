// Datasets of datasets, and batches by groups.

#include "data/elements.h"

namespace tutti::data {
namespace {

Rows windows(const Dataset<Dataset<Tensor>>& dataset) {
  Rows all;
  for (const Dataset<Tensor>& window : dataset) all.push_back(numbers(window));
  return all;
}

TEST(Window, GivesDatasetsOfItsSize) {
  EXPECT_EQ(windows(range(7).window(3)), (Rows{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(windows(range(7).window(3, {.drop_remainder = true})), (Rows{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(windows(range(0).window(3)), Rows{});
}

TEST(Window, MovesByItsShiftAndTakesEveryStrideth) {
  EXPECT_EQ(windows(range(7).window(3, {.shift = 2, .stride = 2})),
            (Rows{{0, 2, 4}, {2, 4, 6}, {4, 6}, {6}}));
  EXPECT_EQ(windows(range(7).window(2, {.shift = 3})), (Rows{{0, 1}, {3, 4}, {6}}));
  EXPECT_EQ(windows(range(8).window(2, {.shift = 5, .drop_remainder = true})),
            (Rows{{0, 1}, {5, 6}}));
}

TEST(Window, CountsItsWindows) {
  for (int64_t count : {0, 1, 2, 5, 6, 7, 20}) {
    for (int64_t size : {1, 2, 3}) {
      for (int64_t shift : {1, 2, 4}) {
        for (int64_t stride : {1, 2}) {
          for (bool drop : {false, true}) {
            const auto dataset = range(count).window(
                size, {.shift = shift, .stride = stride, .drop_remainder = drop});
            EXPECT_EQ(dataset.cardinality(), static_cast<int64_t>(windows(dataset).size()))
                << count << " " << size << " " << shift << " " << stride << " " << drop;
          }
        }
      }
    }
  }
  EXPECT_EQ(range(3).repeat().window(2).cardinality(), kInfinite);
}

TEST(Window, OfATupleIsATupleOfDatasets) {
  const auto pairs = zip(range(4), range(10, 14)).window(2);
  EXPECT_EQ(cat(pairs.element_spec()),
            "(DatasetSpec(TensorSpec(shape=(), dtype=int64), TensorShape([])),\n"
            " DatasetSpec(TensorSpec(shape=(), dtype=int64), TensorShape([])))");
  auto pass = pairs.iterator();
  pass.get_next();
  const std::tuple<Dataset<Tensor>, Dataset<Tensor>> second = pass.get_next();
  EXPECT_EQ(numbers(std::get<0>(second)), (Numbers{2, 3}));
  EXPECT_EQ(numbers(std::get<1>(second)), (Numbers{12, 13}));
}

TEST(Window, IsMadeIntoBatchesByFlatMap) {
  const auto series = range(6)
                          .window(3, {.shift = 1, .drop_remainder = true})
                          .flat_map([](const Dataset<Tensor>& w) { return w.batch(3); });
  EXPECT_EQ(rows(series), (Rows{{0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}}));
  EXPECT_EQ(cat(series.element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  const auto pairs = zip(range(4), range(10, 14))
                         .window(2)
                         .flat_map([](const Dataset<Tensor>& a, const Dataset<Tensor>& b) {
                           return zip(a.batch(2), b.batch(2));
                         });
  EXPECT_EQ(numbers_of(std::get<1>(pairs.iterator().get_next())), (Numbers{10, 11}));
}

TEST(Window, OfRunTimeNestsHasDatasetsOfThem) {
  const Dataset<Nest> nests = from_tensor_slices(
      Nest::map({{"a", at::arange(4)}, {"s", StringTensor{"w", "x", "y", "z"}}}));
  const Nest first = nests.window(2).iterator().get_next();
  Rows texts;
  for (const std::string& text : from_nest<Dataset<std::string>>(first["s"]))
    texts.push_back({text[0]});
  EXPECT_EQ(texts, (Rows{{'w'}, {'x'}}));
}

TEST(Window, MayBeReadAgainAndOutlivesItsPass) {
  std::vector<Dataset<Tensor>> kept;
  for (const auto& window : range(4).window(2)) kept.push_back(window);
  EXPECT_EQ(numbers(kept[1]), (Numbers{2, 3}));
  EXPECT_EQ(numbers(kept[1].repeat(2)), (Numbers{2, 3, 2, 3}));
  EXPECT_EQ(kept[1].cardinality(), 2);
}

TEST(Window, RefusesNumbersBelowOneAndBatchesOfDatasets) {
  EXPECT_ERROR(range(4).window(0), InvalidArgument, "size 0");
  EXPECT_ERROR(range(4).window(2, {.shift = 0}), InvalidArgument, "shift 0");
  EXPECT_ERROR(range(4).window(2, {.stride = 0}), InvalidArgument, "stride 0");
  EXPECT_ERROR(range(4).window(INT64_MAX, {.stride = 2}), InvalidArgument, "64 bits");
  EXPECT_ERROR(range(4).window(2).batch(2).iterator().next(), InvalidArgument, "flat_map");
}

TEST(Window, GoesOnBehindAnErrorWithWhatItHas) {
  auto pass = range(4)
                  .map([](const Tensor& x) {
                    if (x.item<int64_t>() == 1) throw DataLoss("no one");
                    return x;
                  })
                  .window(2)
                  .iterator();
  EXPECT_ERROR(pass.next(), DataLoss, "no one");
  EXPECT_EQ(numbers(pass.get_next()), (Numbers{0, 2}));
}

int64_t parity(const Tensor& x) { return x.item<int64_t>() % 2; }
Dataset<Tensor> batched(int64_t, const Dataset<Tensor>& group) { return group.batch(10); }

TEST(GroupByWindow, GathersElementsOfOneKey) {
  const auto grouped = range(10).group_by_window(parity, batched, 3);
  EXPECT_EQ(rows(grouped), (Rows{{0, 2, 4}, {1, 3, 5}, {6, 8}, {7, 9}}));
  EXPECT_EQ(grouped.cardinality(), kUnknown);
  EXPECT_EQ(cat(grouped.element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(grouped.plan()->batch_size(), 10);
}

TEST(GroupByWindow, HasAWindowSizeForEachKey) {
  const auto grouped = range(8).group_by_window([](const Tensor& x) { return x % 2; }, batched,
                                                [](int64_t key) { return key + 1; });
  EXPECT_EQ(rows(grouped), (Rows{{0}, {2}, {1, 3}, {4}, {6}, {5, 7}}));
  EXPECT_ERROR(rows(range(3).group_by_window(parity, batched, 0)), InvalidArgument,
               "window of 0 elements");
}

TEST(GroupByWindow, TellsTheReductionItsKey) {
  const auto sums = range(4).group_by_window(
      parity,
      [](int64_t key, const Dataset<Tensor>& group) {
        return group.map([key](const Tensor& x) { return x + 100 * key; });
      },
      2);
  EXPECT_EQ(numbers(sums), (Numbers{0, 2, 101, 103}));
}

Dataset<Tensor> ramps_of(const Numbers& lengths) {
  return from_tensor_slices(at::tensor(lengths)).map([](const Tensor& n) {
    return at::arange(1, n.item<int64_t>() + 1);
  });
}
int64_t length_of(const Tensor& x) { return x.numel(); }

TEST(BucketBySequenceLength, BatchesElementsOfSimilarLength) {
  const auto batches =
      ramps_of({1, 4, 2, 6, 3, 5, 2}).bucket_by_sequence_length(length_of, {3, 5}, {2, 2, 2});
  EXPECT_EQ(
      rows(batches),
      (Rows{{1, 0, 1, 2}, {1, 2, 3, 4, 1, 2, 3, 0}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 0}, {1, 2}}));
  EXPECT_EQ(cat(batches.element_spec()), "TensorSpec(shape=(None, None), dtype=int64)");
}

TEST(BucketBySequenceLength, FillsUpToTheBoundary) {
  const auto batches = ramps_of({1, 2, 4}).bucket_by_sequence_length(
      length_of, {4, 6}, {2, 1, 1},
      {.padding_values = Nest(at::scalar_tensor(-1, at::kLong)), .pad_to_bucket_boundary = true});
  EXPECT_EQ(rows(batches), (Rows{{1, -1, -1, 1, 2, -1}, {1, 2, 3, 4, -1}}));
  const auto too_long = ramps_of({6}).bucket_by_sequence_length(length_of, {4, 6}, {2, 1, 1},
                                                                {.pad_to_bucket_boundary = true});
  EXPECT_ERROR(rows(too_long), InvalidArgument, "length 6");
}

TEST(BucketBySequenceLength, KeepsOrDropsWhatIsLeftAndPadsNothingWhenAsked) {
  EXPECT_EQ(rows(ramps_of({1, 1, 1}).bucket_by_sequence_length(
                length_of, {3}, {2, 2}, {.no_padding = true, .drop_remainder = true})),
            (Rows{{1, 1}}));
  EXPECT_ERROR(rows(ramps_of({1, 2}).bucket_by_sequence_length(length_of, {3}, {2, 2},
                                                               {.no_padding = true})),
               InvalidArgument, "padded_batch");
}

TEST(BucketBySequenceLength, RefusesBucketsThatDoNotFit) {
  const auto ramps = ramps_of({1});
  EXPECT_ERROR(ramps.bucket_by_sequence_length(length_of, {3}, {2}), InvalidArgument,
               "1 batch sizes for 2 buckets");
  EXPECT_ERROR(ramps.bucket_by_sequence_length(length_of, {3, 3}, {2, 2, 2}), InvalidArgument,
               "boundaries 3, 3");
  EXPECT_ERROR(ramps.bucket_by_sequence_length(length_of, {3}, {2, 0}), InvalidArgument,
               "batches of 0");
}

TEST(RaggedBatch, KeepsElementsAsTheyAre) {
  const auto batches =
      zip(ramps_of({1, 3, 2}), from_tensor_slices(std::vector<std::string>{"a", "b", "c"}))
          .ragged_batch(2);
  EXPECT_EQ(batches.cardinality(), 2);
  EXPECT_EQ(cat(batches.element_spec()),
            "(RaggedTensorSpec(TensorShape([None, None]), int64, 1, int64),\n"
            " RaggedTensorSpec(TensorShape([None]), string, 1, int64))");
  auto pass = batches.iterator();
  const auto [tensors, texts] = pass.get_next();
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_EQ(numbers_of(tensors[1]), (Numbers{1, 2, 3}));
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(std::get<0>(pass.get_next()).size(), 1);
  EXPECT_FALSE(pass.next());
  EXPECT_EQ(range(5).ragged_batch(2, {.drop_remainder = true}).cardinality(), 2);
  EXPECT_ERROR(range(5).ragged_batch(0), InvalidArgument, "0 elements");
}

TEST(Rebatch, CutsTheStreamOfRowsAnew) {
  EXPECT_EQ(rows(range(10).batch(4).rebatch(3)), (Rows{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}}));
  EXPECT_EQ(rows(range(10).batch(4).rebatch(3, {.drop_remainder = true})),
            (Rows{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}));
  EXPECT_EQ(rows(range(10).batch(4).rebatch({2, 2, 1})),
            (Rows{{0, 1}, {2, 3}, {4}, {5, 6}, {7, 8}, {9}}));
  EXPECT_EQ(rows(range(6).batch(5).rebatch(6)), (Rows{{0, 1, 2, 3, 4, 5}}));
}

TEST(Rebatch, KnowsItsSpecAndItsBatchSize) {
  const auto batches = range(10).batch(4);
  EXPECT_EQ(cat(batches.rebatch(3).element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(cat(batches.rebatch(3, {.drop_remainder = true}).element_spec()),
            "TensorSpec(shape=(3,), dtype=int64)");
  EXPECT_EQ(batches.rebatch(3).plan()->batch_size(), 3);
  EXPECT_EQ(batches.rebatch(3).cardinality(), kUnknown);
  EXPECT_EQ(batches.repeat().rebatch(3).cardinality(), kInfinite);
}

TEST(Rebatch, RefusesSizesBelowOneRowAndElementsWithoutRows) {
  EXPECT_ERROR(range(10).batch(4).rebatch(0), InvalidArgument, "rebatch");
  EXPECT_ERROR(range(10).batch(4).rebatch(-1), InvalidArgument, "size -1");
  EXPECT_ERROR(rows(range(10).rebatch(2)), InvalidArgument, "rebatch: an element with a scalar");
}

}  // namespace
}  // namespace tutti::data
