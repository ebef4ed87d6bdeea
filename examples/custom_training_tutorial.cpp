// The tutorial "Custom training with tf.distribute.Strategy": Fashion-MNIST with a training and a test loop by hand, several
// ways to iterate, and a checkpoint that is restored without a strategy.
//   custom_training_tutorial [EPOCHS]        (10, as in the tutorial)
// Prints a line an epoch
//   Epoch 1, Loss: 0.51, Accuracy: 81.4, Test Loss: 0.38, Test Accuracy: 86.5
// and the accuracy after restoring, which is that of the last line.
// main is the tutorial from top to bottom, so it is long.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <tutti/tutti.h>

namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
namespace losses = tutti::keras::losses;
using tutti::PerReplica;
using tutti::Tensor;
using tutti::distribute::ReduceOp;

/// A model of convolutions and a regularizer on every kernel.
keras::Sequential create_model() {
  const auto regularizer = keras::regularizers::L2(1e-5);
  return keras::Sequential({
      layers::Conv2D(32, 3, {.activation = "relu", .kernel_regularizer = regularizer}),
      layers::MaxPooling2D(),
      layers::Conv2D(64, 3, {.activation = "relu", .kernel_regularizer = regularizer}),
      layers::MaxPooling2D(),
      layers::Flatten(),
      layers::Dense(64, {.activation = "relu", .kernel_regularizer = regularizer}),
      layers::Dense(10, {.kernel_regularizer = regularizer}),
  });
}

/// Why the loss is divided by the global batch: (2 + 3) / 4 on one replica, (4 + 5) / 4 on the other, and their sum is the mean
/// of all four. A mean over the replicas would be half of it.
void show_the_loss_of_a_global_batch(tutti::distribute::Strategy& strategy) {
  auto examples = strategy.distribute_values_from_function([](tutti::distribute::ValueContext context) {
    return at::tensor({2.0f, 3.0f}) + 2.0f * static_cast<float>(context.replica_id_in_sync_group);
  });
  auto scaled = strategy.run([](Tensor loss) { return tutti::nn::compute_average_loss(loss, 4); }, examples);
  const auto each = strategy.local_results(scaled);
  std::cout << "losses of a batch of 4: " << each[0].item<float>() << " + " << each[1].item<float>() << " = "
            << strategy.reduce(ReduceOp::kSum, scaled).item<float>() << ", not "
            << strategy.reduce(ReduceOp::kMean, scaled).item<float>() << "\n";
}

/// Accuracy of the latest checkpoint in a new model, with a new optimizer, without a strategy. The model has no weights yet: it
/// takes them with the first images.
float restored_accuracy(const std::string& directory, const tutti::data::Dataset<std::tuple<Tensor, Tensor>>& test_dataset) {
  keras::metrics::SparseCategoricalAccuracy eval_accuracy("eval_accuracy");
  keras::Sequential new_model = create_model();
  keras::optimizers::Adam new_optimizer;
  tutti::train::Checkpoint checkpoint({{"optimizer", new_optimizer}, {"model", new_model}});
  checkpoint.restore(tutti::train::latest_checkpoint(directory));
  for (auto [images, labels] : test_dataset) eval_accuracy.update_state(labels, new_model(images, /*training=*/false));
  return eval_accuracy.result().item<float>();
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;

  // ---- Download the Fashion-MNIST dataset
  const auto fashion = tutti::datasets::fashion_mnist();
  const Tensor train_images = fashion.train.images.to(at::kFloat) / 255;
  const Tensor test_images = fashion.test.images.to(at::kFloat) / 255;

  // ---- Create a strategy to distribute the variables and the graph
  tutti::distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  std::cout << "Number of devices: " << strategy.num_replicas_in_sync() << "\n";

  // ---- Setup input pipeline
  const int64_t buffer_size = train_images.size(0);
  const int64_t batch_size_per_replica = 64;
  const int64_t global_batch_size = batch_size_per_replica * strategy.num_replicas_in_sync();
  auto train_dataset =
      tutti::data::from_tensor_slices(train_images, fashion.train.labels).shuffle(buffer_size).batch(global_batch_size);
  auto test_dataset = tutti::data::from_tensor_slices(test_images, fashion.test.labels).batch(global_batch_size);
  auto train_dist_dataset = strategy.distribute_dataset(train_dataset);
  auto test_dist_dataset = strategy.distribute_dataset(test_dataset);

  // ---- Create the model and the optimizer, define the loss function and the metrics, all in the strategy's scope
  const auto directory = std::filesystem::temp_directory_path() / ("training_checkpoints_" + std::to_string(getpid()));
  auto scope = strategy.scope();
  losses::SparseCategoricalCrossentropy loss_object({.from_logits = true, .reduction = losses::Reduction::kNone});
  auto compute_loss = [&](Tensor labels, Tensor predictions, const std::vector<Tensor>& model_losses) {
    Tensor per_example_loss = loss_object(labels, predictions);
    // Of labels with further axes (a class for each pixel, say) an example's loss is their mean.
    if (per_example_loss.dim() > 1) per_example_loss = per_example_loss.flatten(1).mean(1);
    Tensor loss = tutti::nn::compute_average_loss(per_example_loss);
    for (const Tensor& model_loss : model_losses) loss = loss + tutti::nn::scale_regularization_loss(model_loss);
    return loss;
  };
  keras::metrics::Mean test_loss("test_loss");
  keras::metrics::SparseCategoricalAccuracy train_accuracy("train_accuracy");
  keras::metrics::SparseCategoricalAccuracy test_accuracy("test_accuracy");
  keras::Sequential model = create_model();
  keras::optimizers::Adam optimizer({.learning_rate = 0.001});
  tutti::train::Checkpoint checkpoint({{"optimizer", optimizer}, {"model", model}});

  // ---- Training loop
  auto train_step = [&](Tensor images, Tensor labels) {
    tutti::GradientTape tape;
    Tensor predictions = model(images, /*training=*/true);
    Tensor loss = compute_loss(labels, predictions, model.losses());
    auto gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
    train_accuracy.update_state(labels, predictions);
    return loss;
  };
  auto test_step = [&](Tensor images, Tensor labels) {
    Tensor predictions = model(images, /*training=*/false);
    test_loss.update_state(loss_object(labels, predictions));
    test_accuracy.update_state(labels, predictions);
  };
  // `run` copies the model's loss to every replica; `reduce` adds what they give.
  auto distributed_train_step = [&](const auto& dataset_inputs) {
    PerReplica<Tensor> per_replica_losses = strategy.run(train_step, dataset_inputs);
    return strategy.reduce(ReduceOp::kSum, per_replica_losses).item<double>();
  };
  auto distributed_test_step = [&](const auto& dataset_inputs) { strategy.run(test_step, dataset_inputs); };

  for (int epoch = 0; epoch < epochs; ++epoch) {
    double total_loss = 0;
    int64_t num_batches = 0;
    for (auto inputs : train_dist_dataset) {
      total_loss += distributed_train_step(inputs);
      ++num_batches;
    }
    for (auto inputs : test_dist_dataset) distributed_test_step(inputs);
    if (epoch % 2 == 0 || epoch + 1 == epochs) checkpoint.save((directory / "ckpt").string());
    std::cout << "Epoch " << epoch + 1 << ", Loss: " << total_loss / num_batches
              << ", Accuracy: " << train_accuracy.result().item<float>() * 100
              << ", Test Loss: " << test_loss.result().item<float>()
              << ", Test Accuracy: " << test_accuracy.result().item<float>() * 100 << "\n";
    if (epoch + 1 < epochs) test_accuracy.reset_state();
    test_loss.reset_state();
    train_accuracy.reset_state();
  }
  const float accuracy_before = test_accuracy.result().item<float>();

  // ---- Restore the latest checkpoint and test without a strategy
  scope.exit();
  const float accuracy_after = restored_accuracy(directory.string(), test_dataset);
  std::cout << "Accuracy after restoring the saved model without strategy: " << accuracy_after * 100 << "\n"
            << "the same as before: " << std::boolalpha << (accuracy_after == accuracy_before) << "\n";
  std::filesystem::remove_all(directory);

  // ---- Alternate ways of iterating over a dataset: an iterator and ten steps
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double total_loss = 0;
    int64_t num_batches = 0;
    auto train_iter = train_dist_dataset.iterator();
    for (int step = 0; step < 10; ++step) {
      total_loss += distributed_train_step(train_iter.get_next());
      ++num_batches;
    }
    std::cout << "Epoch " << epoch + 1 << ", Loss: " << total_loss / num_batches
              << ", Accuracy: " << train_accuracy.result().item<float>() * 100 << "\n";
    train_accuracy.reset_state();
  }

  // ---- Iterating inside one function of a whole epoch
  auto distributed_train_epoch = [&](const auto& dataset) {
    double total_loss = 0;
    int64_t num_batches = 0;
    for (auto inputs : dataset) {
      total_loss += distributed_train_step(inputs);
      ++num_batches;
    }
    return total_loss / static_cast<double>(num_batches);
  };
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double train_loss = distributed_train_epoch(train_dist_dataset);
    std::cout << "Epoch " << epoch + 1 << ", Loss: " << train_loss
              << ", Accuracy: " << train_accuracy.result().item<float>() * 100 << "\n";
    train_accuracy.reset_state();
  }

  // ---- Tracking training loss across replicas
  show_the_loss_of_a_global_batch(strategy);
}
