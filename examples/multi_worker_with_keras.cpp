// The tutorial "Multi-worker training with Keras": the same program on every worker, which TF_CONFIG tells apart.
//   multi_worker_with_keras [STEPS]                             one worker alone (70 steps an epoch, as in the tutorial)
//   tutti-run --workers 2 -- ./multi_worker_with_keras [STEPS]
// It writes into the current folder. Fashion-MNIST stands for MNIST. Every part prints whether what the tutorial shows is so.
// main is the tutorial from top to bottom, so it is long.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <tutti/tutti.h>

namespace fs = std::filesystem;
namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
using tutti::Tensor;
using tutti::data::AutoShardPolicy;
using tutti::distribute::cluster_resolver::TFConfigClusterResolver;

const int64_t per_worker_batch_size = 64;

const char* yes_if(bool condition) { return condition ? "yes" : "NO"; }

auto mnist_dataset(int64_t batch_size) {
  const auto fashion = tutti::datasets::fashion_mnist();
  // Labels of 32 bits and images of 0 to 1.
  return tutti::data::from_tensor_slices(fashion.train.images.to(at::kFloat) / 255, fashion.train.labels)
      .shuffle(60000, {.seed = 1})
      .repeat()
      .batch(batch_size);
}

auto test_dataset(int64_t batch_size) {
  const auto fashion = tutti::datasets::fashion_mnist();
  return tutti::data::from_tensor_slices(fashion.test.images.to(at::kFloat) / 255, fashion.test.labels).batch(batch_size);
}

std::unique_ptr<keras::Sequential> build_and_compile_cnn_model() {
  auto model = std::make_unique<keras::Sequential>(std::vector<layers::Layer>{
      layers::Reshape({28, 28, 1}, {.input_shape = {28, 28}}),
      layers::Conv2D(32, 3, {.activation = "relu"}),
      layers::Flatten(),
      layers::Dense(128, {.activation = "relu"}),
      layers::Dense(10),
  });
  model->compile({.optimizer = keras::optimizers::SGD({.learning_rate = 0.001}),
                  .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                  .metrics = {"accuracy"}});
  return model;
}

// The chief saves; in a cluster without a task of that type worker 0 is the chief.
bool is_chief(const std::optional<std::string>& task_type, std::optional<int64_t> task_id, const tutti::train::ClusterSpec& cluster) {
  return !task_type || *task_type == "chief" || (*task_type == "worker" && task_id == 0 && !cluster.has_job("chief"));
}

// Every worker saves, for metrics are added up over them; all but the chief into a folder that they delete.
fs::path write_filepath(const fs::path& filepath, bool chief, int64_t task_id) {
  if (chief) return filepath;
  const fs::path folder = filepath.parent_path() / ("workertemp_" + std::to_string(task_id));
  fs::create_directories(folder);
  return folder / filepath.filename();
}

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 70;
  tutti::set_seed(1);

  // The strategy comes first: it waits for the other workers. RING and NCCL are other ways to exchange gradients than AUTO.
  tutti::distribute::MultiWorkerMirroredStrategy strategy({
      .communication_options = {.timeout_seconds = 60, .implementation = tutti::collectives::CommunicationImplementation::kAuto},
  });
  const TFConfigClusterResolver resolver;
  const auto cluster = resolver.cluster_spec();
  const auto task_type = resolver.task_type();
  const int64_t task_id = resolver.task_id().value_or(0);
  const int64_t num_workers = cluster ? cluster.num_tasks("worker") : 1;
  const int64_t global_batch_size = per_worker_batch_size * num_workers;
  const bool chief = is_chief(task_type, task_id, cluster);

  // ---- Train the model
  auto multi_worker_dataset = mnist_dataset(global_batch_size).with_options({.auto_shard_policy = AutoShardPolicy::kData});
  std::unique_ptr<keras::Sequential> multi_worker_model;
  {
    auto scope = strategy.scope();  // what makes variables stands in the scope
    multi_worker_model = build_and_compile_cnn_model();
  }
  multi_worker_model->fit(multi_worker_dataset, {.epochs = 3, .steps_per_epoch = steps});

  // ---- Sharding by hand: every worker sees all data and takes what it likes. A batch is still a global one, that is
  // divided among the replicas of all workers: of 64 images each of two workers gets 32.
  auto dataset_no_auto_shard = mnist_dataset(per_worker_batch_size).with_options({.auto_shard_policy = AutoShardPolicy::kOff});
  for (auto [images, labels] : strategy.distribute_dataset(dataset_no_auto_shard)) {
    std::cout << "a global batch of " << per_worker_batch_size << " without sharding: "
              << strategy.local_results(images)[0].size(0) << " images for this replica\n";
    break;
  }

  // ---- Evaluation: all workers call it
  auto evaluated = multi_worker_model->evaluate(test_dataset(global_batch_size), {.verbose = 2, .steps = 10});

  // ---- Fault tolerance: killed and started again, fit goes on from the last backup
  const std::string backup = "backup";
  multi_worker_model->fit(multi_worker_dataset,
                          {.epochs = 2, .callbacks = {keras::callbacks::BackupAndRestore(backup)}, .steps_per_epoch = steps});
  multi_worker_model->fit(
      multi_worker_dataset,
      {.epochs = 2, .callbacks = {keras::callbacks::BackupAndRestore(backup, {.save_freq = 30})}, .steps_per_epoch = steps});
  std::cout << "steps of all trainings: " << yes_if(multi_worker_model->optimizer().iterations() == 7 * steps)
            << "\n";

  // ---- Saving and loading a model
  const fs::path model_path = fs::current_path() / "keras-model.tutti";
  const fs::path write_model_path = write_filepath(model_path, chief, task_id);
  multi_worker_model->save(write_model_path.string());
  if (!chief) fs::remove_all(write_model_path.parent_path());
  if (chief) {  // loaded without a strategy, and trained on by this worker alone
    auto loaded_model = keras::load_model(model_path.string());
    const auto images = tutti::datasets::fashion_mnist().test.images.slice(0, 0, 64).to(at::kFloat) / 255;
    const auto here = loaded_model->predict(images, {.verbose = 0});
    std::cout << "the loaded model predicts " << here.sizes() << "\n";
    loaded_model->fit(mnist_dataset(64), {.epochs = 1, .verbose = 0, .steps_per_epoch = 2});
  }

  // ---- Checkpoints
  const fs::path checkpoint_dir = fs::current_path() / "ckpt";
  tutti::train::Checkpoint checkpoint({{"model", *multi_worker_model}});
  const fs::path write_checkpoint_dir = write_filepath(checkpoint_dir, chief, task_id);
  tutti::train::CheckpointManager checkpoint_manager(checkpoint, write_checkpoint_dir.string(), {.max_to_keep = 1});
  checkpoint_manager.save();
  if (!chief) fs::remove_all(write_checkpoint_dir.parent_path());
  checkpoint.restore(tutti::train::latest_checkpoint(checkpoint_dir.string()));
  auto again = multi_worker_model->evaluate(test_dataset(global_batch_size), {.verbose = 2, .steps = 10});
  std::cout << "the restored model was trained further: " << yes_if(again["loss"] < evaluated["loss"]) << "\n";
  std::cout << "worker " << task_id << " of " << num_workers << " is done" << (chief ? ", the chief" : " (not the chief)") << std::endl;
}
