// Passes that are saved and go on elsewhere: at each place, a new pass that is restored gives
// exactly what the old one still has to give.

#include "data/iterator_state.h"

#include "data/elements.h"
#include "tutti/tensor/printing.h"

namespace tutti::data {
namespace {

std::string text_of(const Nest& element) {
  std::string text;
  if (element.kind() == NestKind::kObject) {
    for (const Nest& item : from_nest<Dataset<Nest>>(element)) text += text_of(item) + ",";
  } else if (element.items().empty()) {
    text = to_string(element);
  }
  for (const Nest& item : element.items()) text += text_of(item) + ";";
  return "<" + text + ">";
}

/// What is left of a pass; at most `most` elements of it.
std::vector<std::string> rest_of(DatasetIterator<Nest> pass, std::size_t most) {
  std::vector<std::string> all;
  while (all.size() < most) {
    auto element = pass.next();
    if (!element) break;
    all.push_back(text_of(*element));
  }
  return all;
}

template <class Element>
void expect_restorable(const Dataset<Element>& typed, std::size_t most = 100) {
  const Dataset<Nest> dataset = typed;
  for (std::size_t at = 0;; ++at) {
    auto pass = dataset.iterator();
    bool ended = false;
    for (std::size_t i = 0; i < at && !ended; ++i) ended = !pass.next();
    const Nest state = pass.save();
    auto other = dataset.iterator();
    other.restore(state);
    EXPECT_EQ(rest_of(std::move(other), most), rest_of(std::move(pass), most))
        << "behind " << at << " elements of\n"
        << dataset;
    if (ended || at == most) break;
  }
}

Dataset<Tensor> tens(const Tensor& i) {
  const int64_t from = 10 * i.item<int64_t>();
  return range(from, from + i.item<int64_t>());
}

TEST(IteratorState, OfSources) {
  expect_restorable(range(5, 0, -2));
  expect_restorable(from_tensors(at::arange(3)));
  expect_restorable(from_tensor_slices(std::vector<std::string>{"a", "b", "c"}));
  expect_restorable(counter({.start = 3, .step = 2}), 5);
  expect_restorable(random({.seed = 3}), 5);
}

TEST(IteratorState, OfFlatMap) {
  expect_restorable(range(4).flat_map(tens));
  expect_restorable(range(3).flat_map([](const Tensor&) { return range(3).flat_map(tens); }));
}

TEST(IteratorState, OfInterleave) {
  for (int64_t cycle : {1, 2, 3})
    expect_restorable(range(5).interleave(tens, {.cycle_length = cycle, .block_length = 2}));
}

TEST(IteratorState, OfWindow) {
  expect_restorable(range(7).window(3, {.shift = 2}));
  expect_restorable(range(9).window(2, {.shift = 4}));
  expect_restorable(from_tensor_slices(at::arange(5), at::arange(10, 15)).window(2));
  expect_restorable(range(6).window(3, {.shift = 1}).flat_map([](const Dataset<Tensor>& window) {
    return window.map([](const Tensor& x) { return x * 10; });
  }));
}

TEST(IteratorState, OfGroupByWindow) {
  expect_restorable(range(11).group_by_window([](const Tensor& x) { return x % 3; },
                                              [](int64_t key, const Dataset<Tensor>& group) {
                                                return group.map([key](const Tensor& x) {
                                                  return x + 100 * key;
                                                });
                                              },
                                              2));
}

TEST(IteratorState, OfDatasetsThatAreDrawnFrom) {
  const std::vector<Dataset<Tensor>> two{range(4), range(10, 16)};
  expect_restorable(sample_from_datasets(two, {.weights = {1, 2}, .seed = 3}));
  expect_restorable(choose_from_datasets(two, from_tensor_slices(at::tensor(Numbers{0, 1, 1, 0}))));
}

TEST(IteratorState, OfResampling) {
  // Each pass draws anew, so the state must carry the random numbers.
  expect_restorable(
      range(40).rejection_resample([](const Tensor& x) { return x % 2; }, {0.2, 0.8}, {.seed = 3}));
}

TEST(IteratorState, OfWhatIsCarriedAlong) {
  expect_restorable(range(5).scan(
      at::scalar_tensor(0, at::kLong),
      [](const Tensor& sum, const Tensor& x) { return std::pair(sum + x, sum + x); }));
  expect_restorable(range(5).take_while([](const Tensor& x) { return x < 3; }));
  expect_restorable(from_tensor_slices(at::tensor({1, 2, 1, 3, 2, 4})).unique());
  expect_restorable(range(4).assert_cardinality(4));
  expect_restorable(range(4).ignore_errors());
}

TEST(IteratorState, OfAnotherPipelineIsRefused) {
  auto pass = range(3).iterator();
  EXPECT_ERROR(pass.restore(from_tensor_slices(at::arange(3)).iterator().save()), DataLoss,
               "no \"value\"");
  auto slices = from_tensor_slices(at::arange(3)).iterator();
  const auto whole = [](const Tensor& row) {
    return Nest::map({{"pass", Nest::map({{"row", row}})}, {"seeds", Nest::list({})}});
  };
  EXPECT_ERROR(slices.restore(whole(at::scalar_tensor(7, at::kLong))), DataLoss, "outside 0 to 3");
  EXPECT_ERROR(slices.restore(whole(at::rand({2}))), DataLoss, "no number");
  EXPECT_ERROR(slices.restore(range(3).shuffle(2).iterator().save()), DataLoss, "");
  auto two = range(3).interleave(tens, {.cycle_length = 2}).iterator();
  EXPECT_ERROR(two.restore(range(3).interleave(tens).iterator().save()), DataLoss, "expected 2");
}

TEST(IteratorState, OfAFunctionOfTheUserCannotBeSaved) {
  const auto generated =
      from_generator<Tensor>([] { return []() -> std::optional<Tensor> { return std::nullopt; }; });
  EXPECT_ERROR(generated.iterator().save(), FailedPrecondition, "from_generator");
}

TEST(IteratorState, RandomNumbersThatWouldStandStillAreRefused) {
  RandomBits random(1);
  for (const Tensor& words : {at::zeros({4}, at::kLong), at::ones({2, 2}, at::kLong), at::ones({4}),
                              at::Tensor(at::ones({3}, at::kLong))}) {
    EXPECT_ERROR(state::set_random_bits(Nest::map({{"random", words}}), "random", random), DataLoss,
                 "no state of random numbers");
  }
  const RandomBits before = random;
  state::set_random_bits(Nest::map({{"random", state::random_bits(RandomBits(2))}}), "random",
                         random);
  EXPECT_NE(random.state(), before.state());
}

}  // namespace
}  // namespace tutti::data
