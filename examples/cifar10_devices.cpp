// The exercise of the course "distributed training": a convolutional network on CIFAR-10, on one device and on several, with the
// time of each.
//   cifar10_devices [EPOCHS] [DEVICES]        (2, 2)
// Reads CIFAR-10's binary files where TUTTI_DATASETS names them, else Fashion-MNIST. Prints, for each number of devices, a line
//   2 devices: loss 1.23, accuracy 0.56, 12.3 s an epoch, 4100 images/s
// and the speedup. Both runs start from the same weights and see the same batches, so the losses agree.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <tutti/tutti.h>

namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
namespace losses = tutti::keras::losses;
using tutti::Tensor;

struct Outcome {
  double loss;
  double seconds;
};

keras::Sequential create_model() {
  return keras::Sequential({
      layers::Conv2D(32, 3, {.padding = "same", .activation = "relu"}),
      layers::Conv2D(32, 3, {.activation = "relu"}),
      layers::MaxPooling2D(),
      layers::Conv2D(64, 3, {.padding = "same", .activation = "relu"}),
      layers::MaxPooling2D(),
      layers::Flatten(),
      layers::Dense(128, {.activation = "relu"}),
      layers::Dense(10),
  });
}

/// Trains on `num_devices` CPU devices and prints the line.
Outcome train(int num_devices, int epochs, const tutti::datasets::ImageDataset& data) {
  tutti::set_seed(7);
  std::vector<std::string> devices;
  for (int i = 0; i < num_devices; ++i) devices.push_back("cpu:" + std::to_string(i));
  tutti::distribute::MirroredStrategy strategy({.devices = devices});
  constexpr int64_t kGlobalBatch = 128;  // the same for any number of devices: so are the numbers
  const Tensor images = data.train.images.to(at::kFloat) / 255;
  auto dataset = tutti::data::from_tensor_slices(images, data.train.labels)
                     .shuffle(10000, {.seed = 1})
                     .batch(kGlobalBatch)
                     .prefetch(2);
  auto scope = strategy.scope();
  keras::Sequential model = create_model();
  model.compile({.optimizer = keras::optimizers::Adam({.learning_rate = 1e-3}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const auto start = std::chrono::steady_clock::now();
  const auto history = model.fit(dataset, {.epochs = epochs, .verbose = 0});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const double loss = history.history.at("loss").back();
  const double each = took.count() / epochs;
  std::cout << num_devices << (num_devices == 1 ? " device: " : " devices: ") << "loss " << loss << ", accuracy "
            << history.history.at("accuracy").back() << ", " << each << " s an epoch, "
            << std::llround(static_cast<double>(images.size(0)) / each) << " images/s\n";
  return {loss, each};
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  const int devices = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
  const bool cifar = tutti::datasets::has_cifar10();
  std::cout << (cifar ? "CIFAR-10" : "Fashion-MNIST (TUTTI_DATASETS names no CIFAR-10)") << "\n";
  const auto data = cifar ? tutti::datasets::cifar10() : tutti::datasets::fashion_mnist();
  const Outcome one = train(1, epochs, data);
  const Outcome several = train(devices, epochs, data);
  std::cout << "speedup: " << one.seconds / several.seconds << "\n"
            << "losses agree: " << (std::abs(one.loss - several.loss) <= 1e-3 * std::abs(one.loss) ? "yes" : "no") << "\n";
}
