// The main job with a command line: what `./dev run` starts. The model is that of fashion_mnist.cpp.
//   train_fashion_mnist --replicas 2 --epochs 2 --batch 64
// Prints the bar of each epoch (one line an epoch where there is no terminal) and at the end
//   Eval loss: …, Eval accuracy: …
// Ctrl-C ends after the step under way, evaluates nothing and leaves the terminal as it was; a second one ends at once.
#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <tutti/tutti.h>

namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
using tutti::Tensor;

volatile std::sig_atomic_t g_interrupted = 0;

/// Stops the training when the user asked for it.
struct StopOnInterrupt : keras::callbacks::Callback {
  void on_train_batch_end(int64_t, const keras::Logs&) override { model()->stop_training = g_interrupted != 0; }
  bool needs_batch_logs() const override { return false; }
};

keras::Sequential make_model() {
  return keras::Sequential({
      layers::Conv2D(32, 3, {.activation = "relu", .input_shape = {28, 28, 1}}),
      layers::MaxPooling2D(),
      layers::Flatten(),
      layers::Dense(64, {.activation = "relu"}),
      layers::Dense(10),
  });
}

int train(int replicas, int64_t epochs, int64_t batch, const std::string& save_to) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("cpu:" + std::to_string(i));
  tutti::distribute::MirroredStrategy strategy({.devices = devices});
  std::cout << strategy.summary();

  const auto fashion = tutti::datasets::fashion_mnist();
  const auto scale = [](Tensor image, Tensor label) { return std::tuple(image.to(at::kFloat) / 255, label); };
  const int64_t global_batch = batch * strategy.num_replicas_in_sync();
  auto training = tutti::data::from_tensor_slices(fashion.train.images, fashion.train.labels)
                      .map(scale)
                      .cache()
                      .shuffle(10000)
                      .batch(global_batch);
  auto test = tutti::data::from_tensor_slices(fashion.test.images, fashion.test.labels).map(scale).batch(global_batch);

  auto scope = strategy.scope();
  keras::Sequential model = make_model();
  model.compile({.optimizer = keras::optimizers::Adam({.learning_rate = 1e-3}),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.summary();
  model.fit(training, {.epochs = epochs, .callbacks = {keras::callbacks::make(StopOnInterrupt())}, .validation_data = test});
  if (g_interrupted != 0) {
    std::cout << "Interrupted; nothing was saved.\n";
    return 130;
  }
  auto result = model.evaluate(test, {.verbose = 0});
  std::cout << "Eval loss: " << result["loss"] << ", Eval accuracy: " << result["accuracy"] << "\n";
  if (!save_to.empty()) model.save(save_to);
  return 0;
}

int main(int argc, char** argv) {
  CLI::App app("Trains a small CNN on Fashion-MNIST with mirrored CPU replicas");
  int replicas = 2;
  int64_t epochs = 2;
  int64_t batch = 64;
  std::string save_to;
  app.add_option("--replicas", replicas, "mirrored CPU replicas")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the training images")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", batch, "images of one replica in a step")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--save", save_to, "file for the trained model, e.g. fashion_mnist.tutti");
  CLI11_PARSE(app, argc, argv);

  struct sigaction action = {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  action.sa_flags = SA_RESETHAND;  // the second Ctrl-C has its usual effect
  sigaction(SIGINT, &action, nullptr);
  try {
    return train(replicas, epochs, batch, save_to);
  } catch (const std::exception& error) {
    std::cerr << "train_fashion_mnist: " << error.what() << "\n";
    return 1;
  }
}
