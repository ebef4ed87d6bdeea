// The guide "Distributed training with TensorFlow": strategies, Keras' fit under one, a training loop by hand under one.
//   distributed_training
// Prints, as the guide does, a variable of two replicas and losses, and that two replicas have the loss of one;
// tests/examples/distributed_training.txt has it all.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <tutti/tutti.h>

namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
using tutti::Tensor;
using tutti::distribute::MirroredStrategy;
using tutti::distribute::ReduceOp;

// ---- Types of strategies

void mirrored_strategy_and_its_reductions() {
  MirroredStrategy all_devices;  // the GPUs of the machine, else as many CPU devices as were asked for
  MirroredStrategy two_devices({.devices = {"/cpu:0", "/cpu:1"}});

  // How replicas are added up. NcclAllReduce is for GPUs.
  MirroredStrategy hierarchical_copy({
      .devices = {"/cpu:0", "/cpu:1"},
      .cross_device_ops = tutti::distribute::HierarchicalCopyAllReduce(),
  });
  MirroredStrategy to_one_device({
      .devices = {"/cpu:0", "/cpu:1"},
      .cross_device_ops = tutti::distribute::ReductionToOneDevice(),
  });
  for (MirroredStrategy* strategy : {&two_devices, &hierarchical_copy, &to_one_device}) {
    auto sums = strategy->run([] {
      auto* context = tutti::distribute::get_replica_context();
      return context->all_reduce(ReduceOp::kSum, at::scalar_tensor(context->replica_id_in_sync_group() + 1));
    });
    std::cout << "1 + 2 = " << strategy->local_results(sums)[1].item<float>() << "\n";
  }
}

void other_strategies() {
  tutti::distribute::CentralStorageStrategy central_storage_strategy({.compute_devices = {"/cpu:0", "/cpu:1"}});
  std::cout << "variables of CentralStorageStrategy: " << central_storage_strategy.extended().parameter_devices().size() << " copy\n";

  tutti::distribute::OneDeviceStrategy one_device_strategy("/cpu:0");
  std::cout << "OneDeviceStrategy: " << one_device_strategy.num_replicas_in_sync() << " replica\n";
}

void default_strategy_in_library_code() {
  // In optimizer or other library code: get the currently active strategy, whatever it is.
  tutti::distribute::Strategy& strategy = tutti::distribute::get_strategy();
  Tensor reduced_value = strategy.reduce(ReduceOp::kSum, at::scalar_tensor(1.0));  // reduce some values
  std::cout << "default strategy: " << std::boolalpha << strategy.is_default() << ", " << reduced_value.item<float>() << "\n";

  MirroredStrategy mirrored({.devices = {"/cpu:0", "/cpu:1"}});
  auto scope = mirrored.scope();  // do something interesting
  std::cout << tutti::Variable(at::scalar_tensor(1.0)) << "\n";
}

// ---- Use a strategy with Keras' fit

keras::Sequential make_model() {
  return keras::Sequential({
      layers::Dense(1, {.kernel_regularizer = keras::regularizers::L2(1e-4), .input_shape = {1}}),
  });
}

/// Loss of the last of two epochs.
double keras_fit(tutti::distribute::Strategy& strategy) {
  tutti::set_seed(1);
  auto scope = strategy.scope();
  keras::Sequential model = make_model();
  model.compile({.optimizer = "sgd", .loss = "mse"});

  auto dataset = tutti::data::from_tensors(at::ones({1}), at::ones({1})).repeat(100).batch(10);
  keras::History history = model.fit(dataset, {.epochs = 2, .verbose = 0});
  double eval_loss = model.evaluate(dataset, {.verbose = 0})["loss"];

  Tensor inputs = at::ones({100, 1}), targets = at::ones({100, 1});
  keras::History again = model.fit(inputs, targets, {.batch_size = 10, .epochs = 2, .verbose = 0});
  std::cout << "the loss falls: " << (history.history["loss"][0] > history.history["loss"][1]) << " "
            << (history.history["loss"][1] > eval_loss) << " " << (eval_loss > again.history["loss"][1]) << "\n";
  return again.history["loss"][1];
}

// ---- Use a strategy with a training loop of your own

void custom_training_loop(MirroredStrategy& mirrored_strategy, int64_t global_batch_size, double learning_rate) {
  auto scope = mirrored_strategy.scope();
  keras::Sequential model({
      layers::Dense(1, {.kernel_initializer = "ones", .kernel_regularizer = keras::regularizers::L2(1e-4), .input_shape = {1}}),
  });
  keras::optimizers::SGD optimizer({.learning_rate = learning_rate});

  auto dataset = tutti::data::from_tensors(at::ones({1}), at::ones({1})).repeat(1000).batch(global_batch_size);
  auto dist_dataset = mirrored_strategy.distribute_dataset(dataset);

  // The reduction is none: it is left to compute_average_loss below.
  keras::losses::BinaryCrossentropy loss_object({.from_logits = true, .reduction = keras::losses::Reduction::kNone});

  auto train_step = [&](Tensor features, Tensor labels) {
    tutti::GradientTape tape;
    Tensor predictions = model(features, /*training=*/true);
    Tensor per_example_loss = loss_object(labels, predictions);
    Tensor loss = tutti::nn::compute_average_loss(per_example_loss);
    for (const Tensor& model_loss : model.losses()) loss = loss + tutti::nn::scale_regularization_loss(model_loss);
    auto gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
    return loss;
  };
  auto distributed_train_step = [&](const auto& dist_inputs) {
    auto per_replica_losses = mirrored_strategy.run(train_step, dist_inputs);
    return mirrored_strategy.reduce(ReduceOp::kSum, per_replica_losses);
  };

  int64_t steps = 0;
  for (auto dist_inputs : dist_dataset) {
    Tensor loss = distributed_train_step(dist_inputs);
    if (steps++ % 25 == 0) std::printf("step %3ld, loss %.4f\n", static_cast<long>(steps), loss.item<float>());
  }

  auto iterator = dist_dataset.iterator();
  Tensor loss;
  for (int i = 0; i < 10; ++i) loss = distributed_train_step(iterator.get_next());
  std::printf("10 steps more, loss %.4f\n", loss.item<float>());
}

int main() {
  mirrored_strategy_and_its_reductions();
  other_strategies();
  default_strategy_in_library_code();

  MirroredStrategy mirrored_strategy({.devices = {"/cpu:0", "/cpu:1"}});
  double loss_of_two = keras_fit(mirrored_strategy);
  double loss_of_one = keras_fit(tutti::distribute::get_strategy());
  std::cout << "two replicas have the loss of one: " << (std::abs(loss_of_two - loss_of_one) < 1e-6) << "\n";

  // A global batch size from the number of replicas, a learning rate for it.
  const int64_t batch_size_per_replica = 5;
  const int64_t global_batch_size = batch_size_per_replica * mirrored_strategy.num_replicas_in_sync();
  const std::map<int64_t, double> learning_rates_by_batch_size = {{5, 0.1}, {10, 0.15}, {20, 0.175}};
  const double learning_rate = learning_rates_by_batch_size.at(global_batch_size);
  std::cout << "batch " << global_batch_size << ", learning rate " << learning_rate << "\n";

  custom_training_loop(mirrored_strategy, global_batch_size, learning_rate);
}
