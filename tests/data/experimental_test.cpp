// data::experimental: at, pad_to_cardinality, group_by_reducer, parse_example_dataset and
// make_batched_features_dataset.

#include "tutti/data/experimental.h"

#include <algorithm>

#include "data/elements.h"
#include "support/temporary_folder.h"
#include "tutti/data/element_random.h"
#include "tutti/data/readers.h"
#include "tutti/io/example.h"
#include "tutti/io/tf_record.h"

namespace tutti::data::experimental {
namespace {

Tensor doubled(const Tensor& x) { return x * 2; }

/// Each element by its number is that of a pass.
template <class Element>
void expect_as_in_a_pass(const char* name, const Dataset<Element>& dataset, int64_t most = 50) {
  SCOPED_TRACE(name);
  int64_t index = 0;
  for (const Element& element : dataset) {
    if (index == most) return;
    const Nest found = to_nest<Element>(at(dataset, index++));
    const Nest expected = to_nest<Element>(element);
    ASSERT_TRUE(same_structure(found, expected));
    const auto a = flatten(found);
    const auto b = flatten(expected);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TENSOR_EQ(a[i], b[i]);
    EXPECT_TRUE(flatten_strings(found) == flatten_strings(expected));
  }
  EXPECT_GT(index, 0);
  EXPECT_ERROR(at(dataset, index), OutOfRange, "expected 0 to below");
}

TEST(At, GivesTheElementsOfAPass) {
  expect_as_in_a_pass("range", range(3, 20, 4));
  expect_as_in_a_pass("counter", counter({.start = 5, .step = -2}), 9);
  expect_as_in_a_pass("tensors", from_tensors(at::arange(3)));
  expect_as_in_a_pass("slices", from_tensor_slices(at::arange(6).reshape({3, 2}),
                                                   std::vector<std::string>{"a", "b", "c"}));
  expect_as_in_a_pass("map", range(5).map(doubled));
  expect_as_in_a_pass("parallel map", range(5).map(doubled, {.num_parallel_calls = 2}));
  expect_as_in_a_pass("batch", range(7).batch(3));
  expect_as_in_a_pass("batches", range(7).batch(3, {.drop_remainder = true}).map(doubled));
  expect_as_in_a_pass("take and skip", range(20).skip(4).take(5));
  expect_as_in_a_pass("shard", range(11).shard(3, 1));
  expect_as_in_a_pass("repeat", range(3).repeat(3));
  expect_as_in_a_pass("repeat without end", range(3).repeat(), 8);
  expect_as_in_a_pass("zip", zip(range(3), range(5, 9).enumerate(2)));
  expect_as_in_a_pass("concatenate", range(3).concatenate(range(7, 9)));
  expect_as_in_a_pass("what only looks on",
                      range(4).assert_cardinality(4).prefetch(2).with_options({}));
  const auto cached = range(4).map(doubled).cache();
  expect_as_in_a_pass("cache, empty and full", cached);
  expect_as_in_a_pass("cache, full", cached);
}

TEST(At, RefusesWhatOnlyAPassCanReach) {
  EXPECT_ERROR(at(range(5).shuffle(3), 0), Unimplemented, "at [shuffle]");
  EXPECT_ERROR(at(range(5).filter([](const Tensor&) { return true; }).map(doubled), 0),
               Unimplemented, "at [filter]");
  EXPECT_ERROR(at(range(5), -1), OutOfRange, "element -1, expected 0 to below 5");
  EXPECT_ERROR(at(range(5), 5), OutOfRange, "element 5");
}

TEST(At, DrawsTheSameForAnIndexAgain) {
  const auto noise = range(4).map([](const Tensor&) { return at::rand({4}, element_random()); });
  EXPECT_TENSOR_EQ(at(noise, 2), at(noise, 2));
  EXPECT_FALSE(at::equal(at(noise, 2), at(noise, 3)));
}

Dataset<std::map<std::string, Tensor>> three_maps() {
  return from_tensor_slices(
      std::map<std::string, Tensor>{{"a", at::arange(1, 4)}, {"b", at::ones({3, 2})}});
}

TEST(PadToCardinality, FillsUpWithZerosThatAreMarked) {
  const auto padded = three_maps().apply(pad_to_cardinality(5));
  EXPECT_EQ(padded.cardinality(), 5);
  Numbers a, valid;
  for (const auto& element : padded) {
    a.push_back(element.at("a").item<int64_t>());
    valid.push_back(element.at("valid").item<bool>());
    EXPECT_EQ(element.at("b").sum().item<float>(), valid.back() == 1 ? 2 : 0);
  }
  EXPECT_EQ(a, (Numbers{1, 2, 3, 0, 0}));
  EXPECT_EQ(valid, (Numbers{1, 1, 1, 0, 0}));
  const auto batches = padded.batch(5).get_single_element();
  EXPECT_EQ(batches.at("valid").scalar_type(), at::kBool);
}

TEST(PadToCardinality, FillsStringsWithEmptyOnes) {
  const Dataset<Nest> names = range(1).map([](const Tensor&) {
    return Nest::map({{"name", Nest(StringTensor({"x", "y"}))}});
  });
  std::string all;
  for (const Nest& element : names.apply(pad_to_cardinality(2, "real")))
    all += cat(element["name"].strings(), element["real"].leaf().item<bool>(), " ");
  EXPECT_EQ(all, "[b'x' b'y']1 [b'' b'']0 ");
}

TEST(PadToCardinality, OfAFullDatasetOnlyMarks) {
  EXPECT_EQ(three_maps().apply(pad_to_cardinality(3)).cardinality(), 3);
}

TEST(PadToCardinality, RefusesWhatCannotBePadded) {
  EXPECT_ERROR(three_maps().apply(pad_to_cardinality(2)), InvalidArgument, "a dataset of 3");
  EXPECT_ERROR(three_maps().repeat().apply(pad_to_cardinality(2)), InvalidArgument, "infinitely");
  EXPECT_ERROR(three_maps()
                   .filter([](const std::map<std::string, Tensor>&) { return true; })
                   .apply(pad_to_cardinality(4)),
               InvalidArgument, "say it with assert_cardinality");
  EXPECT_ERROR(three_maps().apply(pad_to_cardinality(4, "a")), InvalidArgument, "without \"a\"");
  EXPECT_ERROR(Dataset<Nest>(range(2)).apply(pad_to_cardinality(4)), InvalidArgument,
               "expected maps");
  EXPECT_ERROR(three_maps().batch(2).apply(pad_to_cardinality(4)), InvalidArgument,
               "expected a shape that is known");
}

Tensor number(int64_t value) { return at::scalar_tensor(value, at::kLong); }

auto sums_by_rest() {
  return group_by_reducer([](const Tensor& x) { return x % 3; },
                          Reducer{[](int64_t) { return number(0); },
                                  [](const Tensor& sum, const Tensor& x) { return sum + x; },
                                  [](const Tensor& sum) { return sum; }});
}

TEST(GroupByReducer, GivesOneElementAKeyInTheirOrder) {
  const auto sums = range(10, 0, -1).apply(sums_by_rest());
  EXPECT_EQ(numbers(sums), (Numbers{3 + 6 + 9, 1 + 4 + 7 + 10, 2 + 5 + 8}));
  EXPECT_EQ(numbers(sums), (Numbers{18, 22, 15})) << "each pass anew";
  EXPECT_EQ(sums.cardinality(), kUnknown);
  EXPECT_EQ(cat(sums.element_spec()), "TensorSpec(shape=(), dtype=int64)");
  EXPECT_EQ(numbers(range(0).apply(sums_by_rest())), Numbers{});
}

TEST(GroupByReducer, CarriesStatesOfSeveralParts) {
  // The mean of the second items for each sign of the first ones.
  const auto pairs = from_tensor_slices(at::tensor({-1, 1, -1, 1, 1}, at::kLong),
                                        at::tensor({1., 2., 3., 4., 6.}, at::kFloat));
  const auto means = pairs.apply(group_by_reducer(
      [](const Tensor& sign, const Tensor&) { return sign; },
      Reducer{[](int64_t key) { return std::tuple(number(key), number(0), at::zeros({})); },
              [](const std::tuple<Tensor, Tensor, Tensor>& state, const Tensor&, const Tensor& x) {
                const auto& [key, count, sum] = state;
                return std::tuple(key, count + 1, sum + x);
              },
              [](const Tensor& key, const Tensor& count, const Tensor& sum) {
                return std::pair(key, sum / count);
              }}));
  std::string text;
  for (const auto& [key, mean] : means)
    text += cat(key.item<int64_t>(), ":", mean.item<float>(), " ");
  EXPECT_EQ(text, "-1:2 1:4 ");
}

TEST(GroupByReducer, GoesOnWhereItWasSaved) {
  const Numbers whole = numbers(range(10).apply(sums_by_rest()));
  for (std::size_t at = 0; at <= whole.size(); ++at) {
    auto pass = range(10).apply(sums_by_rest()).iterator();
    for (std::size_t i = 0; i < at; ++i) pass.next();
    auto other = range(10).apply(sums_by_rest()).iterator();
    other.restore(pass.save());
    Numbers rest;
    while (auto element = other.next()) rest.push_back(element->item<int64_t>());
    EXPECT_EQ(rest, Numbers(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end()));
  }
}

TEST(GroupByReducer, RefusesStatesThatChangeTheirDtype) {
  const auto wrong = range(3).apply(
      group_by_reducer([](const Tensor&) { return 0; },
                       Reducer{[](int64_t) { return number(0); },
                               [](const Tensor& sum, const Tensor& x) { return sum + x * 0.5; },
                               [](const Tensor& sum) { return sum; }}));
  EXPECT_ERROR(numbers(wrong), InvalidArgument, "group_by_reducer: the state became");
}

TEST(GroupByReducer, GoesOnBehindAnElementThatThrows) {
  auto pass = range(6)
                  .map([](const Tensor& x) {
                    if (x.item<int64_t>() == 4) throw InvalidArgument("four");
                    return x;
                  })
                  .apply(sums_by_rest())
                  .iterator();
  EXPECT_ERROR(pass.next(), InvalidArgument, "four");
  EXPECT_EQ(pass.get_next().item<int64_t>(), 3);
  EXPECT_EQ(pass.get_next().item<int64_t>(), 1);
}

class ExampleFiles : public testing::TemporaryFolder {
 protected:
  /// Ten records: {"x": {i, i + 0.5}, "y": i, "words": i times "w"}, in two files.
  ExampleFiles() {
    for (int file = 0; file < 2; ++file) {
      io::TFRecordWriter writer(path(cat("part-", file)));
      for (int64_t i = 5 * file; i < 5 * file + 5; ++i) {
        const auto x = static_cast<float>(i);
        writer.write(train::Example({{"x", train::FloatList{{x, x + 0.5F}}},
                                     {"y", train::Int64List{{i}}},
                                     {"words", train::BytesList{std::vector<std::string>(
                                                   static_cast<std::size_t>(i), "w")}}})
                         .serialize());
      }
      writer.close();
    }
  }
  std::string pattern() const { return path("part-*"); }
  const io::FeatureConfigs features_{{"x", io::FixedLenFeature{{2}, at::kFloat}},
                                     {"y", io::FixedLenFeature{{}, at::kLong}},
                                     {"words", io::VarLenFeature{kString}}};
};

TEST_F(ExampleFiles, AreParsedABatchAtATime) {
  const auto parsed = TFRecordDataset({path("part-0"), path("part-1")})
                          .batch(4)
                          .apply(parse_example_dataset(features_, 2));
  Rows labels;
  for (const Nest& batch : parsed) {
    labels.push_back(numbers_of(batch["y"].leaf()));
    EXPECT_TENSOR_EQ(batch["x"].leaf().select(1, 1), batch["y"].leaf() + 0.5);
  }
  EXPECT_EQ(labels, (Rows{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
  EXPECT_ERROR(TFRecordDataset({path("part-0")}).batch(2).apply(parse_example_dataset({})),
               InvalidArgument, "no features");
  EXPECT_ERROR(range(3).apply(parse_example_dataset(features_)), InvalidArgument,
               "expected vectors of records");
}

TEST_F(ExampleFiles, BecomeBatchesOfFeaturesInOrder) {
  const auto batches = make_batched_features_dataset(
      pattern(), 4, features_, {.num_epochs = 1, .shuffle = false, .prefetch_buffer_size = 1});
  Rows labels;
  for (const Nest& batch : batches) {
    labels.push_back(numbers_of(batch["y"].leaf()));
    const Numbers splits = numbers_of(batch["words"]["row_splits"].leaf());
    EXPECT_EQ(splits.size(), labels.back().size() + 1);
    EXPECT_EQ(splits[1], labels.back()[0]);
  }
  EXPECT_EQ(labels, (Rows{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
}

TEST_F(ExampleFiles, BecomeFeaturesAndLabels) {
  const auto batches = make_batched_features_dataset(
      std::vector<std::string>{path("part-0"), path("part-1")}, 3, features_,
      {.label_key = "y", .num_epochs = 1, .shuffle = false, .drop_final_batch = true});
  Rows labels;
  for (const Nest& batch : batches) {
    EXPECT_EQ(batch[0].keys(), (std::vector<std::string>{"words", "x"}));
    labels.push_back(numbers_of(batch[1].leaf()));
  }
  EXPECT_EQ(labels, (Rows{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}));
}

TEST_F(ExampleFiles, AreShuffledAndRepeatedByDefault) {
  const auto batches =
      make_batched_features_dataset(pattern(), 5, features_, {.label_key = "y", .shuffle_seed = 3});
  EXPECT_EQ(batches.cardinality(), kUnknown);
  Numbers two_epochs;
  auto pass = batches.iterator();
  for (int i = 0; i < 4; ++i) {
    const Numbers labels = numbers_of(pass.get_next()[1].leaf());
    EXPECT_EQ(labels.size(), 5u);
    two_epochs.insert(two_epochs.end(), labels.begin(), labels.end());
  }
  Numbers first(two_epochs.begin(), two_epochs.begin() + 10);
  Numbers second(two_epochs.begin() + 10, two_epochs.end());
  EXPECT_NE(first, second);
  for (Numbers* epoch : {&first, &second}) {
    EXPECT_NE(*epoch, numbers(range(10)));
    std::sort(epoch->begin(), epoch->end());
    EXPECT_EQ(*epoch, numbers(range(10)));
  }
}

TEST_F(ExampleFiles, AreReadByTheReaderGivenSeveralAtOnce) {
  const auto batches = make_batched_features_dataset(
      pattern(), 10, features_,
      {.reader = [](const std::string& file) { return TFRecordDataset({file}).take(3); },
       .label_key = "y",
       .num_epochs = 1,
       .shuffle = false,
       .reader_num_threads = 2});
  EXPECT_EQ(numbers_of(batches.get_single_element()[1].leaf()), (Numbers{0, 5, 1, 6, 2, 7}));
}

TEST_F(ExampleFiles, AreRefusedWithoutFilesOrTheLabel) {
  EXPECT_ERROR(make_batched_features_dataset(path("none-*"), 4, features_), InvalidArgument,
               "no file matches");
  EXPECT_ERROR(make_batched_features_dataset(pattern(), 4, features_, {.label_key = "z"}),
               InvalidArgument, "label_key \"z\", expected one of words, x, y");
  EXPECT_ERROR(make_batched_features_dataset(pattern(), 4, {}), InvalidArgument, "no features");
  EXPECT_ERROR(make_batched_features_dataset(pattern(), 0, features_), InvalidArgument,
               "expected at least 1");
}

}  // namespace
}  // namespace tutti::data::experimental
