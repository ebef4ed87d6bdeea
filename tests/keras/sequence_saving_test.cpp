// Models with layers inside layers, learned statistics and vocabularies: saved and loaded.

#include <unistd.h>

#include <filesystem>

#include "keras/line_model.h"
#include "keras/wave.h"

namespace tutti::keras::layers {
namespace {

FitOptions quiet(int64_t epochs, int64_t initial_epoch = 0) {
  FitOptions options;
  options.batch_size = 4;
  options.epochs = epochs;
  options.initial_epoch = initial_epoch;
  options.shuffle = false;
  options.verbose = 0;
  return options;
}

/// What the model becomes when it is written and read.
std::unique_ptr<Model> reloaded(const Model& model) {
  const auto path = std::filesystem::temp_directory_path() / cat("tutti_sequences_", getpid());
  model.save(path.string());
  auto again = load_model(path.string());
  std::filesystem::remove(path);
  return again;
}

TEST(SequenceSaving, ALoadedModelGoesOnAsIfThereHadBeenNoInterruption) {
  Sequential model({Embedding(7, 3, {.input_shape = {4}}),
                    TimeDistributed(Dense(3, {.activation = "tanh"})),
                    Bidirectional(LSTM(2, {.recurrent_dropout = .2, .return_sequences = true})),
                    RNN(StackedRNNCells({GRUCell(3), SimpleRNNCell(2)})), Dense(1)});
  model.compile({.optimizer = optimizers::Adam({.learning_rate = .01}), .loss = "mse"});
  const Tensor x = at::arange(32, at::kLong).remainder(7).view({8, 4}), y = wave({8, 1});
  model.fit(x, y, quiet(2));
  const auto again = reloaded(model);
  EXPECT_TENSOR_EQ(again->predict(x), model.predict(x));
  model.fit(x, y, quiet(4, 2));
  again->fit(x, y, quiet(4, 2));
  const auto expected = model.get_weights(), found = again->get_weights();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TENSOR_EQ(found[i], expected[i]);
}

TEST(SequenceSaving, StatisticsAndVocabulariesAreKept) {
  const Normalization normalization({.input_shape = {2}});
  normalization.adapt(wave({9, 2}) * 4 + 1);
  Sequential numbers({normalization, Dense(1)});
  EXPECT_TENSOR_EQ(reloaded(numbers)->predict(wave({3, 2})), numbers.predict(wave({3, 2})));
  const IntegerLookup lookup({.input_shape = {2}});
  lookup.adapt(at::tensor({12, 12, 12, 36, 36, 42}, at::kLong));
  Sequential words({lookup, Embedding(4, 2), Flatten()});
  const Tensor asked = at::tensor({12, 42, 7, 36}, at::kLong).view({2, 2});
  EXPECT_TENSOR_EQ(reloaded(words)->predict(asked), words.predict(asked));
}

}  // namespace
}  // namespace tutti::keras::layers
