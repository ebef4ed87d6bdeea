// The tutorial "Save and load a model using a distribution strategy": a model trained under MirroredStrategy is saved as one file,
// loaded without a strategy, loaded in another strategy where fit goes on, predicts through strategy.run on a distributed dataset,
// and becomes a layer of a new model that is trained under MirroredStrategy.
//   save_and_load_tutorial [EPOCHS]        (2, as in the tutorial)
// Every part prints whether its numbers are those of the model that was saved. Fashion-MNIST stands for MNIST.
// main is the tutorial from top to bottom, so it is long.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <tutti/tutti.h>

namespace fs = std::filesystem;
namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
namespace losses = tutti::keras::losses;
using tutti::PerReplica;
using tutti::Tensor;

struct Data {
  tutti::data::Dataset<std::tuple<Tensor, Tensor>> train;
  tutti::data::Dataset<std::tuple<Tensor, Tensor>> eval;
};

Data get_data(int64_t global_batch) {
  const auto fashion = tutti::datasets::fashion_mnist();
  const auto scale = [](Tensor image, Tensor label) { return std::tuple(image.to(at::kFloat) / 255, label); };
  return {tutti::data::from_tensor_slices(fashion.train.images, fashion.train.labels)
              .map(scale)
              .cache()
              .shuffle(10000, {.seed = 1})
              .batch(global_batch),
          tutti::data::from_tensor_slices(fashion.test.images, fashion.test.labels).map(scale).batch(global_batch)};
}

std::unique_ptr<keras::Sequential> get_model(tutti::distribute::Strategy& strategy) {
  auto scope = strategy.scope();
  auto model = std::make_unique<keras::Sequential>(std::vector<layers::Layer>{
      layers::Conv2D(32, 3, {.activation = "relu", .input_shape = {28, 28, 1}}),
      layers::MaxPooling2D(),
      layers::Flatten(),
      layers::Dense(64, {.activation = "relu"}),
      layers::Dense(10),
  });
  model->compile({.optimizer = keras::optimizers::Adam(),
                  .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                  .metrics = {"accuracy"}});
  return model;
}

const char* yes_if(bool condition) { return condition ? "yes" : "NO"; }

bool close(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 1e-4, 1e-4); }

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 2;
  const fs::path folder = fs::temp_directory_path() / ("save_and_load_" + std::to_string(getpid()));
  fs::create_directories(folder);

  // ---- Prepare the data and model
  tutti::distribute::MirroredStrategy mirrored_strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto [train_dataset, eval_dataset] = get_data(64 * mirrored_strategy.num_replicas_in_sync());

  // ---- Train the model
  auto model = get_model(mirrored_strategy);
  model->fit(train_dataset, {.epochs = epochs, .verbose = 0});

  // ---- Save the model: one file, whatever the number of replicas
  const std::string path = (folder / "my_model.tutti").string();
  model->save(path);
  const Tensor predictions_before_save = model->predict(eval_dataset, {.verbose = 0});

  // ---- Restore it without a strategy
  auto restored_model = keras::load_model(path);
  std::cout << "Loaded without a strategy, the same predictions: "
            << yes_if(close(restored_model->predict(eval_dataset, {.verbose = 0}), predictions_before_save)) << "\n";
  // It is compiled, with the state of its optimizer: fit goes on.
  std::cout << "Steps that the optimizer has made: " << restored_model->optimizer().iterations() << "\n";
  restored_model->fit(train_dataset, {.epochs = epochs, .verbose = 0});
  std::cout << "After fit: " << restored_model->optimizer().iterations() << "\n";

  // ---- Load it in another strategy, and go on
  tutti::distribute::OneDeviceStrategy another_strategy("cpu:0");
  {
    auto scope = another_strategy.scope();
    auto restored_model_ds = keras::load_model(path);
    std::cout << "Loaded in OneDeviceStrategy, the same predictions: "
              << yes_if(close(restored_model_ds->predict(eval_dataset, {.verbose = 0}), predictions_before_save)) << "\n";
    const double before = restored_model_ds->evaluate(train_dataset, {.verbose = 0})["loss"];
    restored_model_ds->fit(train_dataset, {.epochs = epochs, .verbose = 0});
    std::cout << "Its loss fell further: " << yes_if(restored_model_ds->evaluate(train_dataset, {.verbose = 0})["loss"] < before)
              << "\n";
  }

  // ---- Inference through strategy.run on a distributed dataset
  {
    auto scope = mirrored_strategy.scope();
    auto loaded = keras::load_model(path, {.compile = false});
    auto predict_dataset = eval_dataset.map([](Tensor image, Tensor) { return image; });
    std::vector<Tensor> parts;
    for (auto batch : mirrored_strategy.distribute_dataset(predict_dataset)) {
      PerReplica<Tensor> outputs = mirrored_strategy.run([&](Tensor images) { return (*loaded)(images); }, batch);
      for (const Tensor& part : mirrored_strategy.local_results(outputs)) parts.push_back(part);
    }
    std::cout << "By strategy.run on a distributed dataset, the same predictions: "
              << yes_if(close(at::cat(parts), predictions_before_save)) << "\n";

    // ---- The loaded model as a layer of a new one, trained under the strategy
    keras::Input x({28, 28, 1}, "input_x");
    keras::Functional new_model(x, layers::Dense(10)((*loaded)(x)));
    new_model.compile({.optimizer = keras::optimizers::Adam(),
                       .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                       .metrics = {"accuracy"}});
    const double before = new_model.evaluate(train_dataset, {.verbose = 0})["loss"];
    new_model.fit(train_dataset, {.epochs = epochs, .verbose = 0});
    std::cout << "As a layer of a new model, the loss fell: "
              << yes_if(new_model.evaluate(train_dataset, {.verbose = 0})["loss"] < before) << "\n";
  }

  // ---- A model of a class of one's own has no description: its weights are saved
  struct SubclassedModel : keras::Model {
    layers::Layer dense = track(layers::Dense(5));
    Tensor call(const Tensor& x, bool) override { return dense(x); }
  };
  SubclassedModel my_model, another;
  my_model(at::ones({1, 3}));
  try {
    my_model.save((folder / "own.tutti").string());
  } catch (const tutti::Unimplemented& error) {
    std::cout << "A subclassed model: save_weights instead of save\n";
  }
  const std::string weights = (folder / "own.weights.tutti").string();
  my_model.save_weights(weights);
  another.build({-1, 3});
  another.load_weights(weights);
  std::cout << "Its weights come back: " << yes_if(close(another(at::ones({1, 3})), my_model(at::ones({1, 3})))) << "\n";
  fs::remove_all(folder);
}
