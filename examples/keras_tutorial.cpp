// The tutorial "Distributed training with Keras": a model made and compiled in a strategy's scope, trained by fit with callbacks
// (TensorBoard, ModelCheckpoint, LearningRateScheduler and one of the user's own), evaluated from its latest weights, saved, and
// loaded without the strategy and with it.
//   keras_tutorial [EPOCHS]        (12, as in the tutorial)
// Prints a line an epoch
//   Learning rate for epoch 1 is 0.001
// then the files with weights, the evaluation of the latest ones, the curves that TensorBoard would draw, and the evaluations of
// the loaded models, which are that of the saved one. Fashion-MNIST stands for MNIST.
// main is the tutorial from top to bottom, so it is long.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <tutti/tutti.h>

namespace callbacks = tutti::keras::callbacks;
namespace fs = std::filesystem;
namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
namespace losses = tutti::keras::losses;
using tutti::Tensor;

/// Function for decaying the learning rate.
double decay(int64_t epoch) {
  if (epoch < 3) return 1e-3;
  if (epoch < 7) return 1e-4;
  return 1e-5;
}

/// Callback for printing the learning rate at the end of each epoch.
struct PrintLR : callbacks::Callback {
  void on_epoch_end(int64_t epoch, keras::Logs&) override {
    std::cout << "Learning rate for epoch " << epoch + 1 << " is " << model()->optimizer().learning_rate() << "\n";
  }
  bool needs_batch_logs() const override { return false; }
};

/// Names of the files in a folder that end so, sorted.
std::vector<std::string> files_in(const fs::path& folder, const std::string& end) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The names of the curves in the event files of a folder.
void print_curves(const fs::path& log_dir) {
  std::set<std::string> tags;
  for (const std::string& file : tutti::io::event_files(log_dir.string())) {
    tutti::io::EventFileReader reader(file);
    while (const auto event = reader.next()) {
      for (const auto& value : event->values) {
        if (value.scalar()) tags.insert(value.tag);
      }
    }
  }
  std::cout << "Curves in " << log_dir.filename().string() << ":";
  for (const std::string& tag : tags) std::cout << " " << tag;
  std::cout << "\n";
}

/// Prints the evaluation, and whether it is that of `wanted`.
void print_evaluation(const char* what, const keras::Logs& found, const keras::Logs& wanted) {
  const bool equal = std::abs(found["loss"] - wanted["loss"]) <= 1e-5 && found["accuracy"] == wanted["accuracy"];
  std::cout << what << " loss: " << found["loss"] << ", accuracy: " << found["accuracy"]
            << (equal ? ", as it was" : ", NOT as it was") << "\n";
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 12;
  const fs::path folder = fs::temp_directory_path() / ("keras_tutorial_" + std::to_string(getpid()));

  // ---- Download the dataset
  const auto fashion = tutti::datasets::fashion_mnist();

  // ---- Define the distribution strategy
  tutti::distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  std::cout << "Number of devices: " << strategy.num_replicas_in_sync() << "\n";

  // ---- Set up the input pipeline
  const int64_t buffer_size = 10000;
  const int64_t batch_size_per_replica = 64;
  const int64_t batch_size = batch_size_per_replica * strategy.num_replicas_in_sync();
  const auto scale = [](Tensor image, Tensor label) { return std::tuple(image.to(at::kFloat) / 255, label); };
  auto train_dataset = tutti::data::from_tensor_slices(fashion.train.images, fashion.train.labels)
                           .map(scale)
                           .cache()
                           .shuffle(buffer_size)
                           .batch(batch_size);
  auto eval_dataset =
      tutti::data::from_tensor_slices(fashion.test.images, fashion.test.labels).map(scale).batch(batch_size);

  // ---- Create the model and instantiate the optimizer
  auto scope = strategy.scope();
  keras::Sequential model({
      layers::Conv2D(32, 3, {.activation = "relu", .input_shape = {28, 28, 1}}),
      layers::MaxPooling2D(),
      layers::Flatten(),
      layers::Dense(64, {.activation = "relu"}),
      layers::Dense(10),
  });
  const auto loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  model.compile({.optimizer = keras::optimizers::Adam({.learning_rate = 0.001}), .loss = loss, .metrics = {"accuracy"}});
  scope.exit();

  // ---- Define the callbacks
  const fs::path checkpoint_dir = folder / "training_checkpoints";
  const std::vector<callbacks::AnyCallback> all_callbacks{
      callbacks::TensorBoard((folder / "logs").string()),
      callbacks::ModelCheckpoint((checkpoint_dir / "ckpt_{epoch:04d}.weights.tutti").string(), {.save_weights_only = true}),
      callbacks::LearningRateScheduler(decay),
      callbacks::make(PrintLR()),
  };

  // ---- Train and evaluate
  const keras::History history = model.fit(
      train_dataset, {.epochs = epochs, .verbose = 0, .callbacks = all_callbacks, .validation_data = eval_dataset});
  const auto& training_loss = history.history.at("loss");
  std::cout << "The loss fell from " << training_loss.front() << " to " << training_loss.back() << ": " << std::boolalpha
            << (training_loss.back() < training_loss.front()) << "\n";
  const keras::Logs trained = model.evaluate(eval_dataset, {.verbose = 0});

  // ---- Check the checkpoint directory, load the latest weights
  const auto checkpoints = files_in(checkpoint_dir, ".weights.tutti");
  for (const std::string& name : checkpoints) std::cout << name << "\n";
  auto forgotten = model.get_weights();
  for (Tensor& weight : forgotten) weight.zero_();
  model.set_weights(forgotten);
  model.load_weights((checkpoint_dir / checkpoints.back()).string());
  const keras::Logs eval = model.evaluate(eval_dataset, {.verbose = 0});
  std::cout << "Eval loss: " << eval["loss"] << ", Eval accuracy: " << eval["accuracy"] << "\n";
  print_evaluation("Latest weights:", eval, trained);
  print_curves(folder / "logs" / "train");
  print_curves(folder / "logs" / "validation");

  // ---- Save the model
  const std::string path = (folder / "my_model.tutti").string();
  model.save(path);

  // ---- Load the model without the strategy's scope
  {
    auto unreplicated_model = keras::load_model(path);
    unreplicated_model->compile({.optimizer = keras::optimizers::Adam(), .loss = loss, .metrics = {"accuracy"}});
    print_evaluation("Without the strategy:", unreplicated_model->evaluate(eval_dataset, {.verbose = 0}), eval);
  }
  // ---- Load it with the strategy
  {
    auto in_scope = strategy.scope();
    auto replicated_model = keras::load_model(path);
    replicated_model->compile({.optimizer = keras::optimizers::Adam(), .loss = loss, .metrics = {"accuracy"}});
    print_evaluation("With the strategy:", replicated_model->evaluate(eval_dataset, {.verbose = 0}), eval);
  }
  fs::remove_all(folder);
}
