// train_bench --work C1 --mode loop|fit|nnmodule --data DIR: one training workload, one JSON line.
// benchmarks/run.py interleaves it with the peers. With --workers 2 it starts itself twice: a
// MultiWorkerMirroredStrategy of processes with one replica each.

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "collectives/group.h"
#include "distribute/worker_group.h"
#include "processes.h"
#include "tutti/tutti.h"
#include "workload.h"

namespace tutti::bench {
namespace {

namespace layers = keras::layers;
using Json = nlohmann::json;

at::Tensor read_tensor(const std::string& folder, const Json& entry) {
  const std::string path = folder + "/" + entry.at("file").get<std::string>();
  const auto dtype = dtype_from_name(entry.at("dtype").get<std::string>());
  at::Tensor tensor = at::empty(entry.at("shape").get<std::vector<int64_t>>(), dtype);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char*>(tensor.data_ptr()),
                 static_cast<std::streamsize>(tensor.nbytes()))) {
    throw NotFound(
        cat("read [", path, "]: fewer than ", tensor.nbytes(), " bytes; dump the workloads again"));
  }
  return tensor;
}

keras::Sequential make_model(const std::string& name) {
  if (name == "C5") {
    return keras::Sequential({
        layers::Conv2D(32, 3, {.activation = "relu", .input_shape = {28, 28, 1}}),
        layers::MaxPooling2D(),
        layers::Conv2D(64, 3, {.activation = "relu"}),
        layers::MaxPooling2D(),
        layers::Flatten(),
        layers::Dense(128, {.activation = "relu"}),
        layers::Dense(10),
    });
  }
  if (name != "C1" && name != "C2")
    throw InvalidArgument(
        cat("train_bench: workload ", name, ", expected C1, C2 or C5 in this mode"));
  const int64_t units = name == "C1" ? 512 : 2048;
  return keras::Sequential({
      layers::Dense(units, {.activation = "relu", .input_shape = {784}}),
      layers::Dense(units, {.activation = "relu"}),
      layers::Dense(10),
  });
}

PerReplica<Tensor> parts(const Workload& work, const Tensor& whole) {
  std::vector<Tensor> pieces;
  for (int r = 0; r < work.replicas; ++r)
    pieces.push_back(whole.narrow(0, r * work.batch, work.batch));
  return PerReplica<Tensor>(std::move(pieces));
}

}  // namespace

Workload read_workload(const std::string& folder, const std::string& name) {
  const std::string own = folder + "/" + name;
  std::ifstream file(own + "/manifest.json");
  if (!file)
    throw NotFound(
        cat("read [", own,
            "/manifest.json]: no such file; run benchmarks/peers/workloads.py --dump DIR"));
  const Json json = Json::parse(file);
  Workload work;
  work.name = name;
  work.batch = json.at("batch");
  work.replicas = json.at("replicas");
  work.warm = json.at("warm");
  work.steps = json.at("steps");
  work.learning_rate = json.at("lr");
  work.momentum = json.at("momentum");
  work.x = read_tensor(own, json.at("x"));
  work.y = read_tensor(own, json.at("y")).to(at::kLong).reshape({-1});
  for (const Json& weight : json.at("weights")) work.weights.push_back(read_tensor(own, weight));
  return work;
}

Measurement measure(const Workload& work, const StepFunction& step) {
  Measurement result;
  result.loss_first = step(true);
  for (int64_t i = 0; i < work.warm; ++i) step(false);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i + 1 < work.steps; ++i) step(false);
  result.loss_last = step(true);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

/// Median of 21 groups of 2,000.
double empty_run_us() {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  std::vector<double> groups;
  for (int group = 0; group < 21; ++group) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; ++i) strategy.run([] {});
    groups.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count() /
        2000);
  }
  std::nth_element(groups.begin(), groups.begin() + 10, groups.end());
  return groups[10];
}

Measurement run_loop(distribute::Strategy& strategy, const Workload& work) {
  auto scope = strategy.scope();
  keras::Sequential model = make_model(work.name);
  model.set_weights(work.weights);
  keras::optimizers::SGD optimizer(
      {.learning_rate = work.learning_rate, .momentum = work.momentum});
  keras::losses::SparseCategoricalCrossentropy loss_object(
      {.from_logits = true, .reduction = keras::losses::Reduction::kNone});
  const auto variables = model.trainable_variables();
  const auto images = parts(work, work.x);
  const auto labels = parts(work, work.y);
  const int64_t global_batch = work.batch * work.replicas * work.workers;
  auto train_step = [&](Tensor x, Tensor y) {
    GradientTape tape;
    const Tensor loss =
        nn::compute_average_loss(loss_object(y, model(x, /*training=*/true)), global_batch);
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return loss.detach();
  };
  return measure(work, [&](bool want_loss) {
    const auto losses = strategy.run(train_step, images, labels);
    return want_loss ? strategy.reduce(distribute::ReduceOp::kSum, losses).item<double>() : 0;
  });
}

Measurement run_fit(distribute::Strategy& strategy, const Workload& work) {
  auto scope = strategy.scope();
  keras::Sequential model = make_model(work.name);
  model.set_weights(work.weights);
  model.compile({.optimizer = keras::optimizers::SGD(
                     {.learning_rate = work.learning_rate, .momentum = work.momentum}),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const auto batch = data::from_tensors(work.x, work.y);
  Measurement result;
  result.loss_first = model.fit(batch, {.verbose = 0}).history["loss"][0];
  model.fit(batch.repeat(work.warm), {.verbose = 0});
  const auto start = std::chrono::steady_clock::now();
  model.fit(batch.repeat(work.steps - 1), {.verbose = 0});
  result.loss_last = model.fit(batch, {.verbose = 0}).history["loss"][0];
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace tutti::bench

namespace {

namespace bench = tutti::bench;
namespace collectives = tutti::collectives;
namespace distribute = tutti::distribute;
using tutti::cat;

struct Worker {
  int count = 0;  // 0: no other processes
  int rank = -1;
  std::string folder;
  std::string host;
  std::string wire = "same";
};

/// A replica a worker: its rows are the rank's part of the global batch.
std::shared_ptr<distribute::Strategy> strategy_of(const Worker& worker, bench::Workload* work) {
  if (worker.count == 0) {
    std::vector<std::string> devices;
    for (int i = 0; i < work->replicas; ++i) devices.push_back(cat("cpu:", i));
    return std::make_shared<distribute::MirroredStrategy>(
        distribute::MirroredStrategyOptions{.devices = devices});
  }
  work->x = work->x.narrow(0, worker.rank * work->batch, work->batch);
  work->y = work->y.narrow(0, worker.rank * work->batch, work->batch);
  work->replicas = 1;
  work->workers = worker.count;
  auto group = std::make_shared<distribute::WorkerGroup>(collectives::make_communicator(
      {.store = std::make_shared<collectives::FileStore>(worker.folder),
       .prefix = "train_bench",
       .rank = worker.rank,
       .size = worker.count,
       .host = worker.host.empty() ? worker.host : cat(worker.host, worker.rank)}));
  distribute::MultiWorkerMirroredStrategyOptions options;
  options.devices = {"cpu:0"};
  if (worker.wire == "bfloat16")
    options.communication_options.wire_dtype = collectives::WireDtype::kBFloat16;
  return std::make_shared<distribute::MultiWorkerMirroredStrategy>(options, std::move(group));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One training workload on mirrored CPU replicas, or on workers with one each");
  std::string name, folder, mode = "loop";
  int64_t steps = 0, warm = -1;
  Worker worker;
  app.add_option("--work", name, "C1, C2, C3 or C5");
  app.add_option("--data", folder, "folder that benchmarks/peers/workloads.py wrote");
  app.add_option("--mode", mode, "loop, fit or nnmodule; empty: what a run that does nothing costs")
      ->check(CLI::IsMember({"loop", "fit", "nnmodule", "empty"}));
  app.add_option("--steps", steps, "measured steps, instead of the workload's");
  app.add_option("--warm", warm, "warm-up steps, instead of the workload's");
  app.add_option("--workers", worker.count, "processes; 0: one with all replicas")
      ->check(CLI::IsMember({0, 2}));
  app.add_option("--host", worker.host, "each worker is on a host of its own: Gloo instead of shm");
  app.add_option("--wire", worker.wire, "what gradients travel as between hosts")
      ->check(CLI::IsMember({"same", "bfloat16"}));
  app.add_option("--rank", worker.rank, "")->group("");
  app.add_option("--folder", worker.folder, "")->group("");
  CLI11_PARSE(app, argc, argv);
  if (worker.count > 0 && worker.rank < 0) return bench::start_ranks(worker.count, argc, argv);
  try {
    if (mode == "empty") {
      std::cout << bench::empty_run_us() << " us for an empty run on two warm replicas\n";
      return 0;
    }
    bench::Workload work = bench::read_workload(folder, name);
    if (steps > 0) work.steps = steps;
    if (warm >= 0) work.warm = warm;
    if (worker.count > 0 && mode == "fit")
      throw tutti::InvalidArgument(
          "train_bench: fit with workers, expected loop or nnmodule: fit would shard the batch");
    const auto strategy = strategy_of(worker, &work);
    const bench::Measurement result = mode == "loop"  ? bench::run_loop(*strategy, work)
                                      : mode == "fit" ? bench::run_fit(*strategy, work)
                                                      : bench::run_module(*strategy, work);
    if (worker.rank > 0) return 0;
    const auto rows = static_cast<double>(work.steps * work.batch * work.replicas * work.workers);
    nlohmann::json line{{"contender", cat(worker.count > 0 ? "tutti_workers_" : "tutti_", mode)},
                        {"workload", name},
                        {"samples_per_s", rows / result.seconds},
                        {"step_us", result.seconds * 1e6 / static_cast<double>(work.steps)},
                        {"loss_first", result.loss_first},
                        {"loss_last", result.loss_last}};
    std::cout << line.dump() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "train_bench: " << error.what() << "\n";
    return 1;
  }
}
