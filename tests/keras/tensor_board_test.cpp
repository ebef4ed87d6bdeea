// TensorBoard: what stands in its event files, by the library's reader.

#include <set>

#include "keras/callback_script.h"
#include "keras/line_model.h"
#include "tutti/io/events.h"

namespace tutti::keras {
namespace {

using callbacks::TensorBoard;
using callbacks::TensorBoardOptions;
using testing::column;
using testing::Folder;
using testing::line;
using testing::still;
using testing::text_of;

/// The scalars of a folder's event files: "tag@step" and values.
std::map<std::string, double> scalars(const std::string& folder) {
  std::map<std::string, double> found;
  for (const std::string& path : io::event_files(folder)) {
    io::EventFileReader reader(path);
    while (const auto event = reader.next()) {
      for (const io::SummaryValue& value : event->values) {
        if (const auto number = value.scalar()) found[cat(value.tag, "@", event->step)] = *number;
      }
    }
  }
  return found;
}
std::set<std::string> tags(const std::string& folder, const std::string& plugin) {
  std::set<std::string> found;
  for (const std::string& path : io::event_files(folder)) {
    io::EventFileReader reader(path);
    while (const auto event = reader.next()) {
      for (const io::SummaryValue& value : event->values) {
        if (value.plugin_name == plugin) found.insert(cat(value.tag, "@", event->step));
      }
    }
  }
  return found;
}

/// Two epochs of two batches with losses 1 and 4, validated on 25.
void train(const Folder& folder, const TensorBoardOptions& options) {
  const auto model = still();
  model->optimizer();
  model->fit(column({1, 2}), column({0, 0}),
             {.batch_size = 1,
              .epochs = 2,
              .verbose = 0,
              .callbacks = {TensorBoard(folder / "logs", options)},
              .validation_data = std::pair(column({5}), column({0})),
              .shuffle = false});
}

TEST(TensorBoard, EpochsAreScalarsInTwoFolders) {
  const Folder folder;
  train(folder, {});
  EXPECT_EQ(scalars(folder / "logs/train"), (std::map<std::string, double>{
                                                {"epoch_learning_rate@0", 0},
                                                {"epoch_learning_rate@1", 0},
                                                {"epoch_loss@0", 2.5},
                                                {"epoch_loss@1", 2.5},
                                            }));
  EXPECT_EQ(scalars(folder / "logs/validation"), (std::map<std::string, double>{
                                                     {"epoch_loss@0", 25},
                                                     {"epoch_loss@1", 25},
                                                     {"evaluation_loss_vs_iterations@2", 25},
                                                     {"evaluation_loss_vs_iterations@4", 25},
                                                 }));
}

TEST(TensorBoard, UpdateFreqBatchWritesTheRunningLogs) {
  const Folder folder;
  train(folder, {.update_freq = "batch"});
  const auto found = scalars(folder / "logs/train");
  EXPECT_EQ(found.at("batch_loss@1"), 1);
  EXPECT_EQ(found.at("batch_loss@2"), 2.5);
  EXPECT_EQ(found.at("batch_loss@3"), 1);
  EXPECT_EQ(found.at("batch_loss@4"), 2.5);
}

TEST(TensorBoard, UpdateFreqOfANumberWritesEachSuchBatchOfAnEpoch) {
  const Folder folder;
  train(folder, {.update_freq = 2});
  const auto found = scalars(folder / "logs/train");
  EXPECT_EQ(found.count("batch_loss@1"), 1u);
  EXPECT_EQ(found.count("batch_loss@2"), 0u);
  EXPECT_EQ(found.count("batch_loss@3"), 1u);
}

TEST(TensorBoard, StepsPerSecondAreThoseOfBatchesAndEpochs) {
  const Folder folder;
  train(folder, {.write_steps_per_second = true});
  const auto found = scalars(folder / "logs/train");
  for (const char* tag : {"batch_steps_per_second@1", "batch_steps_per_second@4",
                          "epoch_steps_per_second@0", "epoch_steps_per_second@1"}) {
    ASSERT_EQ(found.count(tag), 1u) << tag;
    EXPECT_GT(found.at(tag), 0) << tag;
  }
}

TEST(TensorBoard, WeightsAreHistogramsAndImages) {
  const Folder folder;
  Sequential model(
      {layers::Conv2D(2, 3, {.input_shape = {4, 4, 1}}), layers::Flatten(), layers::Dense(3)});
  model.compile({.loss = "mse"});
  model.fit(
      at::ones({2, 4, 4, 1}), at::zeros({2, 3}),
      {.epochs = 3,
       .verbose = 0,
       .callbacks = {TensorBoard(folder / "logs", {.histogram_freq = 2, .write_images = true})}});
  const auto histograms = tags(folder / "logs/train", "histograms");
  const auto images = tags(folder / "logs/train", "images");
  EXPECT_EQ(histograms.size(), 2 * model.weights().size()) << "epochs 0 and 2";
  for (const Variable& weight : model.weights()) {
    EXPECT_EQ(histograms.count(cat(weight.name(), "/histogram@2")), 1u) << weight.name();
    EXPECT_EQ(images.count(cat(weight.name(), "/image@0")), 1u) << weight.name();
  }
}

TEST(TensorBoard, TheModelsSummaryIsAText) {
  const Folder folder;
  train(folder, {});
  EXPECT_EQ(tags(folder / "logs/train", "text"), (std::set<std::string>{"keras@0"}));
  const Folder without;
  train(without, {.write_graph = false});
  EXPECT_TRUE(tags(without / "logs/train", "text").empty());
}

TEST(TensorBoard, EvaluateAloneWritesItsNumbersAtTheOptimizersCount) {
  const Folder folder;
  const auto model = still();
  model->train_on_batch(column({1}), column({0}));
  const auto board = TensorBoard(folder / "logs");
  model->evaluate(column({3}), column({0}), {.verbose = 0, .callbacks = {board}});
  EXPECT_EQ(scalars(folder / "logs/validation"),
            (std::map<std::string, double>{{"evaluation_loss_vs_iterations@1", 9}}));
}

TEST(TensorBoard, EmbeddingsAreTablesForTheProjector) {
  const Folder folder;
  Sequential model(
      {layers::Embedding(3, 2, {.name = "words"}), layers::Flatten(), layers::Dense(1)});
  model.compile({.loss = "mse"});
  model.fit(at::tensor({0, 1, 2, 1}, at::kLong).view({2, 2}), at::zeros({2, 1}),
            {.verbose = 0,
             .callbacks = {TensorBoard(
                 folder / "logs",
                 {.embeddings_freq = 1, .embeddings_metadata = {{"words", "names.tsv"}}})}});
  EXPECT_EQ(text_of(folder / "logs/train/projector_config.pbtxt"),
            "embeddings {\n  tensor_name: \"words\"\n  tensor_path: \"words_embedding.tsv\"\n"
            "  metadata_path: \"names.tsv\"\n}\n");
  const std::string table = text_of(folder / "logs/train/words_embedding.tsv");
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3) << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\t'), 3) << table;
}

TEST(TensorBoard, WrongArgumentsAreRefused) {
  EXPECT_ERROR(TensorBoard("logs", {.profile_batch = 2}), Unimplemented, "profile_batch");
  EXPECT_ERROR(TensorBoard("logs", {.histogram_freq = -1}), InvalidArgument, "histogram_freq -1");
  EXPECT_ERROR(TensorBoard("logs", {.update_freq = "often"}), InvalidArgument, "\"often\"");
}

}  // namespace
}  // namespace tutti::keras
