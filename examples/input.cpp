// The tutorial "Distributed input": datasets cut among replicas, datasets from a function, iterators, element_spec, preprocessing
// layers, files shared out among workers, values that are no dataset.
//   input
// Prints what the tutorial prints, of long loops the first and the last step; tests/examples/input.txt has it all.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <tutti/tutti.h>

using tutti::Tensor;
using tutti::distribute::MirroredStrategy;

/// The tutorial's two virtual devices.
const std::vector<std::string> kDevices = {"cpu:0", "cpu:1"};

Tensor train_step(Tensor features, Tensor labels) { return labels - 0.3 * features; }

std::string list(const std::vector<Tensor>& tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) text += (text.empty() ? "(" : ", ") + tutti::values_to_string(tensor);
  return text + ")";
}

// ---- A loop over a plain dataset, then the same with a strategy

void plain_and_distributed() {
  const int64_t global_batch_size = 16;
  auto dataset = tutti::data::from_tensors(at::ones({1}), at::ones({1})).repeat(100).batch(global_batch_size);
  int64_t steps = 0;
  for (auto [features, labels] : dataset) {
    Tensor loss = train_step(features, labels);
    if (steps++ == 6) std::cout << "the last batch: " << tutti::to_string(loss) << "\n";
  }

  MirroredStrategy mirrored_strategy({.devices = kDevices});
  auto dist_dataset = mirrored_strategy.distribute_dataset(dataset);
  steps = 0;
  for (auto x : dist_dataset) {
    auto loss = mirrored_strategy.run(train_step, x);  // train_step trains the model using the dataset elements
    if (steps++ == 6) std::cout << "Loss is " << loss << "\n";
  }
}

// ---- tf.distribute.Strategy.experimental_distribute_dataset: batches are cut, the last one too

void rebatching(int replicas, const tutti::data::Dataset<Tensor>& dataset) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("cpu:" + std::to_string(i));
  MirroredStrategy strategy({.devices = devices});
  int64_t step = 0;
  for (auto batch : strategy.distribute_dataset(dataset)) {
    std::cout << "Batch " << ++step << " on " << replicas << " replicas: " << list(strategy.local_results(batch)) << "\n";
  }
}

void sharding() {
  tutti::data::Options options;
  options.experimental_distribute.auto_shard_policy = tutti::data::AutoShardPolicy::kData;
  auto dataset = tutti::data::from_tensors(at::ones({1}), at::ones({1})).repeat(64).batch(16).with_options(options);
  MirroredStrategy strategy({.devices = kDevices});
  std::cout << "steps with DATA sharding on one worker: " << strategy.distribute_dataset(dataset).cardinality() << "\n";
}

// ---- tf.distribute.Strategy.distribute_datasets_from_function: the function batches for one replica

void from_function() {
  const int64_t global_batch_size = 16;
  MirroredStrategy mirrored_strategy({.devices = kDevices});
  int calls = 0;
  auto dataset_fn = [&](const tutti::distribute::InputContext& input_context) {
    ++calls;
    const int64_t batch_size = input_context.get_per_replica_batch_size(global_batch_size);
    return tutti::data::from_tensors(at::ones({1}), at::ones({1}))
        .repeat(64)
        .shard(input_context.num_input_pipelines(), input_context.input_pipeline_id())
        .batch(batch_size)
        .prefetch(2);  // this adds prefetching of elements to be ready
  };
  auto dist_dataset = mirrored_strategy.distribute_datasets_from_function(dataset_fn);
  int64_t steps = 0;
  int64_t rows = 0;
  for (auto [features, labels] : dist_dataset) {
    ++steps;
    rows = mirrored_strategy.local_results(features)[0].size(0);
  }
  std::cout << "dataset_fn was called " << calls << " time; " << steps << " steps of " << rows << " rows a replica\n";
}

// ---- Distributed iterators: next, get_next_as_optional, element_spec

void iterators() {
  MirroredStrategy mirrored_strategy({.devices = kDevices});
  auto dataset = tutti::data::from_tensors(at::ones({1}), at::ones({1})).repeat(100).batch(16);
  auto dist_dataset = mirrored_strategy.distribute_dataset(dataset);
  const int num_epochs = 10;
  const int steps_per_epoch = 5;
  for (int epoch = 0; epoch < num_epochs; ++epoch) {
    auto dist_iterator = dist_dataset.iterator();  // an iterator each epoch: it starts from the beginning
    double total = 0;
    for (int step = 0; step < steps_per_epoch; ++step) {
      auto loss = mirrored_strategy.run(train_step, dist_iterator.get_next());
      total += mirrored_strategy.reduce("MEAN", loss, /*axis=*/0).mean().item<double>();
    }
    if (epoch == num_epochs - 1) std::printf("Epoch %d, Loss: %.4f\n", epoch + 1, total / steps_per_epoch);
  }

  std::cout << std::flush;
  const int steps_per_loop = 5;
  auto distributed_iterator = mirrored_strategy.distribute_dataset(tutti::data::range(9).batch(4)).iterator();
  for (int step = 0; step < steps_per_loop; ++step) {
    auto optional_data = distributed_iterator.get_next_as_optional();
    if (!optional_data.has_value()) break;
    auto per_replica_results = mirrored_strategy.run([](Tensor x) { return x; }, *optional_data);
    std::cout << list(mirrored_strategy.local_results(per_replica_results)) << "\n";
  }
  try {
    distributed_iterator.get_next();
  } catch (const tutti::OutOfRange&) {
    std::cout << "get_next at the end: OutOfRange\n";
  }
  std::cout << dist_dataset.element_spec() << "\n";
}

// ---- Caveats: results in the order of the dataset, by enumerate

void ordered_prediction() {
  MirroredStrategy mirrored_strategy({.devices = kDevices});
  const int64_t dataset_size = 24;
  const int64_t batch_size = 6;
  auto dataset = tutti::data::range(dataset_size).enumerate().batch(batch_size);
  auto dist_dataset = mirrored_strategy.distribute_dataset(dataset);
  auto predict = [](Tensor index, Tensor inputs) { return std::tuple(index, 2 * inputs); };

  std::map<int64_t, int64_t> result;
  for (auto [index, inputs] : dist_dataset) {
    auto [output_index, outputs] = mirrored_strategy.run(predict, index, inputs);
    const auto indices = mirrored_strategy.local_results(output_index);
    const auto values = mirrored_strategy.local_results(outputs);
    for (std::size_t replica = 0; replica < indices.size(); ++replica) {
      for (int64_t row = 0; row < indices[replica].size(0); ++row)
        result[indices[replica][row].item<int64_t>()] = values[replica][row].item<int64_t>();
    }
  }
  std::cout << "{";
  for (const auto& [index, value] : result) std::cout << (index == 0 ? "" : ", ") << index << ": " << value;
  std::cout << "}\n";
}

// ---- Preprocessing layers, in datasets from a function and in datasets that are cut

void preprocessing() {
  MirroredStrategy strategy({.devices = kDevices});
  auto scope = strategy.scope();
  const tutti::keras::layers::StringLookup layer({.vocabulary = {"a", "b", "c", "d", "f"}});
  const std::vector<std::string> letters = {"a", "c", "e"};
  auto preprocess = [layer](const tutti::StringTensor& input) { return layer(input); };
  auto dataset_fn = [&](const tutti::distribute::InputContext& input_context) {
    const int64_t batch_size = input_context.get_per_replica_batch_size(4);
    return tutti::data::from_tensor_slices(letters)
        .repeat()
        .batch(batch_size)
        .shard(input_context.num_input_pipelines(), input_context.input_pipeline_id())
        .map(preprocess);
  };
  auto from_function = strategy.distribute_datasets_from_function(dataset_fn).iterator();
  auto cut = strategy.distribute_dataset(tutti::data::from_tensor_slices(letters).repeat().batch(4).map(preprocess)).iterator();
  for (int i = 0; i < 3; ++i) {
    std::cout << list(strategy.local_results(from_function.get_next())) << " "
              << list(strategy.local_results(cut.get_next())) << "\n";
  }
}

// ---- Caveats: files in an order that all workers agree on, shared out before they are read

void files() {
  const auto folder = std::filesystem::temp_directory_path() / ("input_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const char* name : {"a", "b", "c", "d"}) std::ofstream(folder / (std::string(name) + ".txt")) << name << "1\n" << name << "2\n";
  for (int worker = 0; worker < 2; ++worker) {
    auto dataset = tutti::data::list_files((folder / "*.txt").string(), {.shuffle = false})
                       .shard(2, worker)
                       .interleave([](const std::string& file) { return tutti::data::text_lines({file}); }, {.cycle_length = 2})
                       .map([](const std::string& line) { return line + "!"; });
    std::cout << "worker " << worker << ":";
    for (const std::string& line : dataset) std::cout << " " << line;
    std::cout << "\n";
  }
  std::filesystem::remove_all(folder);
}

// ---- Values that are no dataset, and a dataset from a generator

void other_inputs() {
  MirroredStrategy mirrored_strategy({.devices = kDevices});
  auto value_fn = [](tutti::distribute::ValueContext ctx) { return at::scalar_tensor(ctx.replica_id_in_sync_group, at::kInt); };
  auto distributed_values = mirrored_strategy.distribute_values_from_function(value_fn);
  for (int i = 0; i < 4; ++i) {
    auto result = mirrored_strategy.run([](Tensor x) { return x; }, distributed_values);
    if (i == 3) std::cout << result << "\n";
  }

  auto input_gen = [] {
    return [count = 0]() mutable -> std::optional<Tensor> {  // it never ends
      Tensor row = at::arange(4, at::kFloat) + 4 * count;
      ++count;
      return row;
    };
  };
  auto dataset = tutti::data::from_generator<Tensor>(input_gen, tutti::SpecNest(tutti::TensorSpec{.shape = {4}}));
  auto iterator = mirrored_strategy.distribute_dataset(dataset).iterator();
  for (int i = 0; i < 4; ++i) {
    auto result = mirrored_strategy.run([](Tensor x) { return x; }, iterator.get_next());
    std::cout << list(mirrored_strategy.local_results(result)) << "\n";
  }
}

int main() {
  std::cout << "Available devices:\n";
  for (std::size_t i = 0; i < kDevices.size(); ++i) std::cout << i << ") " << kDevices[i] << "\n";
  plain_and_distributed();
  rebatching(2, tutti::data::range(6).batch(4, {.drop_remainder = false}));
  rebatching(5, tutti::data::range(4).batch(4));
  rebatching(3, tutti::data::range(8).batch(4));
  sharding();
  from_function();
  iterators();
  ordered_prediction();
  preprocessing();
  files();
  other_inputs();
}
