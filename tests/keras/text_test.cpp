// Lookups of words and numbers: what Keras' numbers (keras_layers_test.cpp) do not say.

#include "tutti/keras/layers/text.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "keras/line_model.h"
#include "keras/wave.h"

namespace tutti::keras::layers {
namespace {

using testing::replicas;
using Words = std::vector<std::string>;

Tensor ids(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

/// One element for each of these.
data::Dataset<StringTensor> texts(std::vector<StringTensor> elements) {
  return data::from_generator<StringTensor>([elements] {
    return [elements, next = std::size_t{0}]() mutable -> std::optional<StringTensor> {
      if (next == elements.size()) return std::nullopt;
      return elements[next++];
    };
  });
}

// ---- StringLookup

TEST(StringLookup, NumbersTheVocabularyBehindTheUnknown) {
  const StringLookup lookup({.vocabulary = {"a", "b", "c", "d", "e"}});
  EXPECT_TENSOR_EQ(lookup({"a", "c", "e", "x"}), ids({1, 3, 5, 0}));
  EXPECT_EQ(lookup.vocabulary_size(), 6);
  EXPECT_EQ(lookup.get_vocabulary(), (Words{"[UNK]", "a", "b", "c", "d", "e"}));
  EXPECT_EQ(lookup.get_vocabulary(false), (Words{"a", "b", "c", "d", "e"}));
}

TEST(StringLookup, StandsInAMap) {
  const StringLookup lookup({.vocabulary = {"a", "b", "c"}});
  std::vector<Tensor> found;
  for (const Tensor& indices :
       texts({{"a", "c"}, {"b", "nope"}}).map([&](const StringTensor& words) {
         return lookup(words);
       }))
    found.push_back(indices);
  ASSERT_EQ(found.size(), 2);
  EXPECT_TENSOR_EQ(found[0], ids({1, 3}));
  EXPECT_TENSOR_EQ(found[1], ids({2, 0}));
}

/// The labels of the parameter server tutorial: no index for the unknown.
TEST(StringLookup, RefusesTheUnknownWithoutAnIndexForIt) {
  const StringLookup lookup({.num_oov_indices = 0, .vocabulary = {"yes", "no"}});
  EXPECT_TENSOR_EQ(lookup({"yes", "no"}), ids({0, 1}));
  EXPECT_ERROR(lookup({"maybe"}), InvalidArgument, "token \"maybe\" is not in the vocabulary");
}

TEST(StringLookup, AdaptsToADatasetOfStrings) {
  const StringLookup whole, batches, first;
  whole.adapt({"b", "a", "b", "c", "b", "c"});
  batches.adapt(texts({{"b", "a", "b"}, {"c", "b", "c"}}));
  first.adapt(texts({{"b", "a", "b"}, {"c", "b", "c"}}), 1);
  EXPECT_EQ(whole.get_vocabulary(), (Words{"[UNK]", "b", "c", "a"}));
  EXPECT_EQ(batches.get_vocabulary(), whole.get_vocabulary());
  EXPECT_EQ(first.get_vocabulary(), (Words{"[UNK]", "b", "a"}));
}

TEST(StringLookup, ReadsAFile) {
  const auto path = std::filesystem::temp_directory_path() / cat("tutti_words_", getpid());
  std::ofstream(path) << "red\ngreen\nblue\n";
  const StringLookup lookup({.vocabulary_file = path.string()});
  std::filesystem::remove(path);
  EXPECT_TENSOR_EQ(lookup({"blue", "red", "grey"}), ids({3, 1, 0}));
  EXPECT_ERROR(StringLookup({.vocabulary_file = path.string()}), NotFound, "cannot be opened");
}

TEST(StringLookup, ASavedOneNeedsNoAdaptAndMayHaveOne) {
  const StringLookup lookup({.mask_token = "", .output_mode = "tf_idf"});
  lookup.adapt(StringTensor({"b", "a", "", "c", "b", "b"}, {3, 2}));
  const StringLookup again(layer_from_config("StringLookup", lookup->config()));
  const StringTensor asked({"a", "b", "x", ""}, {2, 2});
  EXPECT_TENSOR_EQ(again(asked), lookup(asked));
  EXPECT_EQ(again->config(), lookup->config());
  again.adapt({"z"});
  EXPECT_EQ(again.get_vocabulary(), (Words{"[UNK]", "z"}));
}

TEST(StringLookup, GivesTheSameInsideAndOutsideReplicas) {
  const StringLookup before({.vocabulary = {"a", "b"}});
  auto strategy = replicas(3);
  auto scope = strategy->scope();
  const StringLookup inside;
  inside.adapt({"b", "b", "a"});
  const auto found = strategy->run([&] {
    return std::pair(before({"b", "x"}), inside({"b", "a"}));
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TENSOR_EQ(found.first[i], ids({2, 0}));
    EXPECT_TENSOR_EQ(found.second[i], ids({1, 2}));
  }
  EXPECT_ERROR(strategy->run([&] { inside.adapt({"c"}); }), FailedPrecondition, "outside replicas");
}

TEST(StringLookup, SaysWhatItCannotTake) {
  EXPECT_ERROR(StringLookup()({"a"}), FailedPrecondition, "no vocabulary yet");
  EXPECT_ERROR(StringLookup({.vocabulary = {"a"}}).adapt({"b"}), InvalidArgument, "was given");
  EXPECT_ERROR(StringLookup({.vocabulary = {"a", "a"}}), InvalidArgument, "more than once");
  EXPECT_ERROR(StringLookup({.mask_token = "m", .vocabulary = {"a", "m"}}), InvalidArgument,
               "the special token \"m\"");
  EXPECT_ERROR(StringLookup({.max_tokens = 2, .vocabulary = {"a", "b"}}), InvalidArgument,
               "at most max_tokens");
  EXPECT_ERROR(StringLookup({.max_tokens = 1}), InvalidArgument, "max_tokens");
  EXPECT_ERROR(StringLookup({.pad_to_max_tokens = true}), InvalidArgument, "pad_to_max_tokens");
  EXPECT_ERROR(StringLookup({.vocabulary = {"a"}, .output_mode = "tf_idf"}), InvalidArgument,
               "one for each token");
  EXPECT_ERROR(StringLookup({.invert = true, .output_mode = "count"}), InvalidArgument, "invert");
  EXPECT_ERROR(StringLookup({.vocabulary = {"a"}, .invert = true})({"a"}), InvalidArgument,
               "expected indices");
  const Layer layer = StringLookup({.vocabulary = {"a"}});
  EXPECT_ERROR(layer(at::ones({1, 1})), InvalidArgument, "dataset.map");
  EXPECT_ERROR(StringLookup({.vocabulary = {"\xff"}})->config(), InvalidArgument, "not UTF-8");
  EXPECT_ERROR(StringLookup(Layer(Dense(1))), InvalidArgument, "StringLookup: Dense");
}

// ---- IntegerLookup

TEST(IntegerLookup, StandsInAModelAndInAMap) {
  const IntegerLookup lookup({.vocabulary = {12, 36}, .input_shape = {2}});
  Sequential model({lookup, Embedding(3, 2), Flatten()});
  EXPECT_EQ(model(ids({12, 7, 36, 12}).view({2, 2})).sizes().vec(), (Shape{2, 4}));
  const auto mapped = data::from_tensor_slices(ids({36, 1})).map([&](const Tensor& number) {
    return lookup(number);
  });
  EXPECT_TENSOR_EQ(mapped.iterator().get_next(), at::scalar_tensor(2, at::kLong));
}

TEST(IntegerLookup, AdaptsToADataset) {
  const IntegerLookup lookup;
  lookup.adapt(data::from_tensor_slices(ids({5, 7, 5, 9, 5, 7})).batch(4));
  EXPECT_EQ(lookup.get_vocabulary(), (std::vector<int64_t>{-1, 5, 7, 9}));
  EXPECT_EQ(lookup(at::empty({0, 3}, at::kLong)).sizes().vec(), (Shape{0, 3}));
  EXPECT_ERROR(IntegerLookup({.salt = {1}}), InvalidArgument, "farmhash");
}

TEST(Hashing, SaysWhatItCannotTake) {
  EXPECT_ERROR(Hashing(0), InvalidArgument, "num_bins 0");
  EXPECT_ERROR(Hashing(3, {.salt = {1, 2, 3}}), InvalidArgument, "a salt of 3");
  EXPECT_EQ(Hashing(3)(at::empty({0, 2}, at::kLong)).sizes().vec(), (Shape{0, 2}));
  EXPECT_EQ(Hashing(3)(StringTensor(Words{}, {0, 2})).sizes().vec(), (Shape{0, 2}));
}

// ---- TextVectorization

TEST(TextVectorization, AdaptsToADatasetOfTexts) {
  const TextVectorization whole, batches, lines;
  whole.adapt({"The cat!", "the dog", "a cat, the cat"});
  batches.adapt(texts({{"The cat!", "the dog"}, {"a cat, the cat"}}));
  lines.adapt(
      texts({StringTensor("The cat!"), StringTensor("the dog"), StringTensor("a cat, the cat")}));
  EXPECT_EQ(whole.get_vocabulary(), (Words{"", "[UNK]", "the", "cat", "dog", "a"}));
  EXPECT_EQ(batches.get_vocabulary(), whole.get_vocabulary());
  EXPECT_EQ(lines.get_vocabulary(), whole.get_vocabulary());
}

TEST(TextVectorization, TakesFunctionsOfTheUsersOwn) {
  TextVectorizationOptions options;
  options.vocabulary = {"a", "b"};
  options.standardize_function = [](const std::string& text) { return text + "|a"; };
  options.split_function = [](const std::string& text) { return split(text, '|'); };
  const TextVectorization layer(options);
  EXPECT_TENSOR_EQ(layer({"b|c"}), ids({3, 1, 2}).view({1, 3}));
  EXPECT_ERROR(layer->config(), Unimplemented, "functions of the user's own");
}

TEST(TextVectorization, ASavedOneNeedsNoAdapt) {
  const TextVectorization layer({.ngrams = {1, 2}, .output_mode = "tf_idf"});
  layer.adapt({"the cat", "the dog dog"});
  const TextVectorization again(layer_from_config("TextVectorization", layer->config()));
  EXPECT_TENSOR_EQ(again({"the dog", "mouse"}), layer({"the dog", "mouse"}));
}

TEST(TextVectorization, TakesNoTextsAndTextsWithoutWords) {
  const TextVectorization layer({.vocabulary = {"a"}});
  EXPECT_EQ(layer(StringTensor(Words{})).sizes().vec(), (Shape{0, 0}));
  EXPECT_EQ(layer({"", "  "}).sizes().vec(), (Shape{2, 0}));
  const TextVectorization counting({.output_mode = "count", .vocabulary = {"a"}});
  EXPECT_TENSOR_EQ(counting({"", "a a"}), at::tensor({0.f, 0.f, 0.f, 2.f}).view({2, 2}));
}

TEST(TextVectorization, ReplacesBytesThatAreNoCharacters) {
  const TextVectorization layer(
      {.standardize = "none", .split = "character", .vocabulary = {"\xEF\xBF\xBD", "\xC3\xA9"}});
  EXPECT_TENSOR_EQ(layer({"\xC3\xA9\xff\xC3"}), ids({3, 2, 2}).view({1, 3}));
}

TEST(TextVectorization, SaysWhatItCannotTake) {
  EXPECT_ERROR(TextVectorization()({"a"}), FailedPrecondition, "no vocabulary yet");
  EXPECT_ERROR(TextVectorization({.standardize = "upper"}), InvalidArgument, "standardize");
  EXPECT_ERROR(TextVectorization({.split = "comma"}), InvalidArgument, "split");
  EXPECT_ERROR(TextVectorization({.output_mode = "count", .output_sequence_length = 3}),
               InvalidArgument, "output_sequence_length");
  EXPECT_ERROR(TextVectorization({.vocabulary = {"a"}})(StringTensor({"a", "b"}, {1, 2})),
               InvalidArgument, "expected (batch) or (batch, 1)");
}

}  // namespace
}  // namespace tutti::keras::layers
