// The program at the front of README.md, to the letter: a CNN on Fashion-MNIST, trained on two replicas.
// Prints the bar of each epoch, and at the end the accuracy on the test images.
#include <iostream>
#include <tutti/tutti.h>

namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;

int main() {
  tutti::distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto fashion = tutti::datasets::fashion_mnist();

  auto scope = strategy.scope();  // what is made here is mirrored on both replicas
  keras::Sequential model({
      layers::Rescaling(1.0 / 255, {.input_shape = {28, 28, 1}}),
      layers::Conv2D(32, 3, {.activation = "relu"}),
      layers::MaxPooling2D(),
      layers::Flatten(),
      layers::Dense(10),
  });
  model.compile({.optimizer = keras::optimizers::Adam(),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(fashion.train.images, fashion.train.labels, {.batch_size = 128, .epochs = 2});
  std::cout << model.evaluate(fashion.test.images, fashion.test.labels)["accuracy"] << "\n";
}
