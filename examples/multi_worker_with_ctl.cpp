// The tutorial "Custom training loop with Keras and MultiWorkerMirroredStrategy": a training loop by hand on every worker, with
// checkpoints from which it goes on in the middle of an epoch.
//   multi_worker_with_ctl [STEPS] [STOP_AFTER]                  one worker alone (70 steps an epoch, as in the tutorial)
//   tutti-run --workers 2 -- ./multi_worker_with_ctl [STEPS] [STOP_AFTER]
// It writes into the current folder; with STOP_AFTER it ends after so many steps in all, and the next run goes on there.
// Fashion-MNIST stands for MNIST. main is the tutorial from top to bottom, so it is long.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <tutti/tutti.h>

namespace fs = std::filesystem;
namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
using tutti::Tensor;
using tutti::Variable;
using tutti::distribute::ReduceOp;
using tutti::distribute::cluster_resolver::TFConfigClusterResolver;

const int64_t per_worker_batch_size = 64;
const int64_t num_epochs = 3;
const int64_t steps_between_checkpoints = 5;

/// What one worker reads: its shard, in batches of a replica.
auto dataset_fn(int64_t global_batch_size, const tutti::data::InputContext& input_context) {
  const int64_t batch_size = input_context.get_per_replica_batch_size(global_batch_size);
  const auto fashion = tutti::datasets::fashion_mnist();
  return tutti::data::from_tensor_slices(fashion.train.images.to(at::kFloat) / 255, fashion.train.labels)
      .shard(input_context.num_input_pipelines(), input_context.input_pipeline_id())
      .shuffle(60000, {.seed = 1})
      .repeat()
      .batch(batch_size);
}

keras::Sequential build_cnn_model() {
  const auto regularizer = keras::regularizers::L2(1e-5);
  return keras::Sequential({
      layers::Reshape({28, 28, 1}, {.input_shape = {28, 28}}),
      layers::Conv2D(32, 3, {.activation = "relu", .kernel_regularizer = regularizer}),
      layers::Flatten(),
      layers::Dense(128, {.activation = "relu", .kernel_regularizer = regularizer}),
      layers::Dense(10, {.kernel_regularizer = regularizer}),
  });
}

bool is_chief(const std::optional<std::string>& task_type, int64_t task_id, const tutti::train::ClusterSpec& cluster) {
  return !task_type || *task_type == "chief" || (*task_type == "worker" && task_id == 0 && !cluster.has_job("chief"));
}

fs::path write_filepath(const fs::path& filepath, bool chief, int64_t task_id) {
  return chief ? filepath : filepath.parent_path() / ("workertemp_" + std::to_string(task_id));
}

int main(int argc, char** argv) {
  const int64_t num_steps_per_epoch = argc > 1 ? std::atoll(argv[1]) : 70;
  const int64_t stop_after = argc > 2 ? std::atoll(argv[2]) : -1;
  tutti::set_seed(1);

  // ---- Cluster, roles, strategy
  tutti::distribute::MultiWorkerMirroredStrategy strategy({.communication_options = {.timeout_seconds = 60}});
  const TFConfigClusterResolver resolver;
  const auto cluster = resolver.cluster_spec();
  const int64_t task_id = resolver.task_id().value_or(0);
  const int64_t num_workers = cluster ? cluster.num_tasks("worker") : 1;
  const bool chief = is_chief(resolver.task_type(), task_id, cluster);
  const int64_t global_batch_size = per_worker_batch_size * num_workers;

  // ---- What the loop needs: the model, the optimizer, the metric, where it is
  auto scope = strategy.scope();
  auto multi_worker_dataset = strategy.distribute_datasets_from_function(
      [&](const tutti::data::InputContext& input_context) { return dataset_fn(global_batch_size, input_context); });
  keras::Sequential multi_worker_model = build_cnn_model();
  keras::optimizers::RMSprop optimizer({.learning_rate = 0.001});
  keras::metrics::SparseCategoricalAccuracy train_accuracy("train_accuracy");
  keras::losses::SparseCategoricalCrossentropy loss_object({.from_logits = true, .reduction = keras::losses::Reduction::kNone});
  Variable epoch(at::scalar_tensor(0, at::kLong), {.name = "epoch"});
  Variable step_in_epoch(at::scalar_tensor(0, at::kLong), {.name = "step_in_epoch"});

  const auto train_step = [&](Tensor x, Tensor y) {
    tutti::GradientTape tape;
    Tensor predictions = multi_worker_model(x, /*training=*/true);
    Tensor loss = tutti::nn::compute_average_loss(loss_object(y, predictions), global_batch_size);
    for (const Tensor& penalty : multi_worker_model.losses()) loss = loss + tutti::nn::scale_regularization_loss(penalty);
    auto variables = multi_worker_model.trainable_variables();
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    train_accuracy.update_state(y, predictions);
    return loss;
  };

  // ---- Checkpoints: of every worker, of which the chief's is kept
  const fs::path checkpoint_dir = fs::current_path() / "ckpt_ctl";
  tutti::train::Checkpoint checkpoint({{"model", multi_worker_model},
                                       {"optimizer", optimizer},
                                       {"train_accuracy", train_accuracy},
                                       {"epoch", epoch},
                                       {"step_in_epoch", step_in_epoch}});
  const fs::path write_checkpoint_dir = write_filepath(checkpoint_dir, chief, task_id);
  tutti::train::CheckpointManager checkpoint_manager(checkpoint, write_checkpoint_dir.string(), {.max_to_keep = 1});
  const std::string latest_checkpoint = tutti::train::latest_checkpoint(checkpoint_dir.string());
  if (!latest_checkpoint.empty()) {
    checkpoint.restore(latest_checkpoint);
    std::printf("Restored: epoch %" PRId64 ", step in epoch %" PRId64 "\n", epoch.read_value().item<int64_t>(),
                step_in_epoch.read_value().item<int64_t>());
  }

  if (epoch.read_value().item<int64_t>() * num_steps_per_epoch + step_in_epoch.read_value().item<int64_t>() >=
      num_epochs * num_steps_per_epoch) {
    std::printf("already complete: %" PRId64 " epochs of %" PRId64 " steps; remove ckpt_ctl to start anew\n", num_epochs,
                num_steps_per_epoch);
    return 0;
  }

  // ---- The loop
  auto iterator = multi_worker_dataset.begin();
  int64_t steps_made = 0;
  for (int64_t e = epoch.read_value().item<int64_t>(); e < num_epochs; ++e) {
    double total_loss = 0;
    int64_t num_batches = 0;
    for (int64_t s = step_in_epoch.read_value().item<int64_t>(); s < num_steps_per_epoch; ++s) {
      auto [x, y] = *iterator;
      total_loss += strategy.reduce(ReduceOp::kSum, strategy.run(train_step, x, y)).item<double>();
      ++iterator;
      ++num_batches;
      step_in_epoch.assign(at::scalar_tensor(s + 1, at::kLong));
      const bool stop = ++steps_made == stop_after;
      if (stop || (s + 1) % steps_between_checkpoints == 0) {
        checkpoint_manager.save();
        if (!chief) fs::remove_all(write_checkpoint_dir);
      }
      if (stop) {
        std::printf("Stopped after %" PRId64 " steps\n", steps_made);
        return 0;
      }
    }
    std::printf("Epoch: %" PRId64 ", accuracy: %f, train_loss: %f.\n", e, train_accuracy.result().item<double>(),
                total_loss / static_cast<double>(std::max<int64_t>(1, num_batches)));
    std::fflush(stdout);
    train_accuracy.reset_state();
    epoch.assign(at::scalar_tensor(e + 1, at::kLong));
    step_in_epoch.assign(at::scalar_tensor(0, at::kLong));
  }
  std::printf("Steps of the optimizer: %" PRId64 "\n", optimizer.iterations());
}
