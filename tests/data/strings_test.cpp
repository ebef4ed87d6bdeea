// Strings as elements and as components of elements.

#include <map>

#include "data/elements.h"
#include "tutti/tensor/printing.h"

namespace tutti::data {
namespace {

using Strings = std::vector<std::string>;
using Labelled = std::tuple<Tensor, std::string>;

Strings strings(const Dataset<std::string>& dataset) {
  Strings all;
  for (const std::string& element : dataset) all.push_back(element);
  return all;
}

Dataset<std::string> letters() { return from_tensor_slices(Strings{"a", "bb", "", "d", "e"}); }
Dataset<Labelled> labelled() {
  return from_tensor_slices(at::arange(5), Strings{"a", "bb", "", "d", "e"});
}

TEST(Strings, AreSlicedFromAListAndFromATensorOfStrings) {
  EXPECT_EQ(strings(letters()), (Strings{"a", "bb", "", "d", "e"}));
  EXPECT_EQ(letters().cardinality(), 5);
  EXPECT_EQ(cat(letters().element_spec()), "TensorSpec(shape=(), dtype=string)");
  const auto rows = from_tensor_slices(StringTensor({"a", "b", "c", "d"}, {2, 2}));
  EXPECT_EQ(cat(rows.element_spec()), "TensorSpec(shape=(2,), dtype=string)");
  auto pass = rows.iterator();
  pass.get_next();
  EXPECT_EQ(pass.get_next(), (StringTensor{"c", "d"}));
}

TEST(Strings, MustBeAsManyAsTheOtherComponents) {
  EXPECT_ERROR(from_tensor_slices(at::arange(3), Strings{"a"}), InvalidArgument, "(3,) and (1,)");
  EXPECT_ERROR(from_tensor_slices(StringTensor("a")), InvalidArgument, "scalar");
}

TEST(Strings, OfOneElementAreTheWholeTensor) {
  const auto one = from_tensors(std::string("x"), StringTensor{"y", "z"});
  const auto [text, row] = one.get_single_element();
  EXPECT_EQ(text, "x");
  EXPECT_EQ(row, (StringTensor{"y", "z"}));
}

TEST(Strings, AreBatchedFromTablesAndFromElements) {
  for (const auto& dataset : {labelled(), labelled().map([](const Tensor&x, const std::string&s) {
                                return std::tuple(x, s);
                              })}) {
    const auto batches = dataset.batch(2);
    EXPECT_EQ(
        cat(batches.element_spec()),
        "(TensorSpec(shape=(None,), dtype=int64),\n TensorSpec(shape=(None,), dtype=string))");
    auto pass = batches.iterator();
    pass.get_next();
    const auto [numbers, texts] = pass.get_next();
    EXPECT_EQ(numbers_of(numbers), (Numbers{2, 3}));
    EXPECT_EQ(texts, (StringTensor{"", "d"}));
    EXPECT_EQ(std::get<1>(pass.get_next()), (StringTensor{"e"}));
    EXPECT_FALSE(pass.next());
  }
}

TEST(Strings, OfDifferentShapesHaveNoBatchButAPaddedOne) {
  const auto words = range(3).map([](const Tensor& i) {
    return StringTensor(Strings(static_cast<std::size_t>(i.item<int64_t>()), "w"));
  });
  EXPECT_ERROR(words.batch(2).iterator().next(), InvalidArgument, "padded_batch");
  EXPECT_EQ(words.padded_batch(3).get_single_element(),
            StringTensor({"", "", "w", "", "w", "w"}, {3, 2}));
  EXPECT_EQ(words
                .padded_batch(3, {.padded_shapes = ShapeNest(Numbers{3}),
                                  .padding_values = Nest(StringTensor("-"))})
                .get_single_element(),
            StringTensor({"-", "-", "-", "w", "-", "-", "w", "w", "-"}, {3, 3}));
  EXPECT_ERROR(
      words.padded_batch(3, {.padding_values = Nest(at::scalar_tensor(1))}).get_single_element(),
      InvalidArgument, "padding value");
}

TEST(Strings, OfTwoAxesArePaddedAlongBoth) {
  const auto grids = from_tensors(StringTensor({"a", "b"}, {1, 2}))
                         .concatenate(from_tensors(StringTensor({"c", "d"}, {2, 1})));
  EXPECT_EQ(grids.padded_batch(2).get_single_element(),
            StringTensor({"a", "b", "", "", "c", "", "d", ""}, {2, 2, 2}));
}

TEST(Strings, PaddedBesideNumbersTakeTheirOwnValue) {
  const auto pairs = range(1, 3).map([](const Tensor& n) {
    return std::tuple(at::arange(n.item<int64_t>()),
                      StringTensor(Strings(static_cast<std::size_t>(n.item<int64_t>()), "s")));
  });
  const auto [numbers, texts] =
      pairs
          .padded_batch(2, {.padding_values =
                                Nest::tuple({at::scalar_tensor(-1, at::kLong), StringTensor("?")})})
          .get_single_element();
  EXPECT_EQ(numbers_of(numbers), (Numbers{0, -1, 0, 1}));
  EXPECT_EQ(texts, StringTensor({"s", "?", "s", "s"}, {2, 2}));
}

TEST(Strings, AreUnbatchedAndRebatched) {
  const auto batches = letters().batch(2);
  std::vector<StringTensor> rows;
  for (const StringTensor& row : batches.unbatch()) rows.push_back(row);
  ASSERT_EQ(rows.size(), 5);
  EXPECT_EQ(rows[3], StringTensor("d"));
  auto pass = batches.rebatch(3).iterator();
  EXPECT_EQ(pass.get_next(), (StringTensor{"a", "bb", ""}));
  EXPECT_EQ(pass.get_next(), (StringTensor{"d", "e"}));
}

TEST(Strings, PassThroughEveryTransformationOfOrder) {
  EXPECT_EQ(strings(letters().take(2).concatenate(letters().skip(4)).repeat(2)),
            (Strings{"a", "bb", "e", "a", "bb", "e"}));
  EXPECT_EQ(strings(letters().shard(2, 1).prefetch(1)), (Strings{"bb", "d"}));
  EXPECT_EQ(strings(letters().filter([](const std::string& s) { return s.size() == 1; })),
            (Strings{"a", "d", "e"}));
  const auto shuffled = strings(letters().shuffle(5, {.seed = 3}));
  EXPECT_TRUE(std::is_permutation(shuffled.begin(), shuffled.end(),
                                  Strings{"a", "bb", "", "d", "e"}.begin()));
  EXPECT_EQ(strings(from_tensor_slices(Strings{"x", "y", "x"}).unique()), (Strings{"x", "y"}));
  auto pass = zip(letters(), letters().skip(1)).enumerate().batch(2).iterator();
  const auto [number, both] = pass.get_next();
  EXPECT_EQ(std::get<1>(both), (StringTensor{"bb", ""}));
}

TEST(Strings, OfJoinedTablesAreBatchedAcrossTheBorder) {
  auto pass = labelled().take(1).concatenate(labelled().skip(3)).batch(2).iterator();
  EXPECT_EQ(std::get<1>(pass.get_next()), (StringTensor{"a", "d"}));
  auto shuffled = labelled().concatenate(labelled()).shuffle(10, {.seed = 1}).batch(10).iterator();
  const auto [numbers, texts] = shuffled.get_next();
  const Strings of{"a", "bb", "", "d", "e"};
  const Numbers indices = numbers_of(numbers);
  for (std::size_t i = 0; i < indices.size(); ++i)
    EXPECT_EQ(texts.values()[i], of[static_cast<std::size_t>(indices[i])]);
}

TEST(Strings, AreCachedAndShuffledBehindTheCache) {
  int made = 0;
  const auto cached = labelled()
                          .map([&made](const Tensor& x, const std::string& s) {
                            ++made;
                            return std::tuple(x, s + "!");
                          })
                          .cache();
  for (int pass = 0; pass < 3; ++pass) {
    Strings seen;
    for (const auto& [x, s] : cached.shuffle(5)) seen.push_back(s);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (Strings{"!", "a!", "bb!", "d!", "e!"}));
  }
  EXPECT_EQ(std::get<1>(cached.batch(5).get_single_element()),
            (StringTensor{"a!", "bb!", "!", "d!", "e!"}));
  EXPECT_EQ(made, 5);
}

TEST(Strings, StandInMaps) {
  using Element = std::map<std::string, std::string>;
  const auto dataset = letters().map([](const std::string& s) { return Element{{"text", s}}; });
  const auto batch = dataset.batch(2).iterator().get_next();
  EXPECT_EQ(batch.at("text"), (StringTensor{"a", "bb"}));
  EXPECT_EQ(cat(dataset.batch(2).element_spec()),
            "{'text': TensorSpec(shape=(None,), dtype=string)}");
}

TEST(Strings, AreCheckedAgainstTheSpecOfAGenerator) {
  const auto give = [](std::string text) {
    return [text] {
      return [text, done = false]() mutable -> std::optional<std::string> {
        if (done) return std::nullopt;
        done = true;
        return text;
      };
    };
  };
  EXPECT_EQ(strings(from_generator<std::string>(give("x"), TensorSpec{{}, kString})),
            (Strings{"x"}));
  EXPECT_ERROR(strings(from_generator<std::string>(give("x"), TensorSpec{{}, at::kLong})),
               InvalidArgument, "dtype=string");
}

TEST(Strings, ArePrintedAsElements) {
  const Dataset<Nest> dataset = labelled().batch(2);
  EXPECT_EQ(to_string(dataset.iterator().get_next()),
            "(Tensor([0 1], shape=(2,), dtype=int64),\n"
            " Tensor([b'a' b'bb'], shape=(2,), dtype=string))");
}

TEST(Strings, AreWrongWhereNumbersAreWanted) {
  const Dataset<Tensor> wrong(letters().plan());
  EXPECT_ERROR(wrong.iterator().next(), InvalidArgument, "strings");
  EXPECT_ERROR(Dataset<std::string>(range(2).plan()).iterator().next(), InvalidArgument, "strings");
}

}  // namespace
}  // namespace tutti::data
