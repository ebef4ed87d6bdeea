// call_costs: what one call costs on 1, 2 and 4 warm CPU replicas, as a markdown table in
// microseconds.
// `./dev bench --work calls` pins it to the benchmark's cores.
//
// A cost is the median over groups of calls. What is called inside a replica is called many times
// within one `run` and timed on replica 0, which waits for the others in every collective.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

using distribute::ReduceOp;
using distribute::Strategy;

constexpr int kGroups = 11;
/// A megabyte of float32.
constexpr int64_t kMegabyte = (1 << 20) / 4;

template <class Call>
double seconds(int calls, Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kGroups / 2, values.end());
  return values[kGroups / 2];
}

/// Microseconds of one `call` outside replicas.
template <class Call>
double outside(int calls, Call&& call) {
  seconds(calls, call);  // warm
  std::vector<double> groups;
  for (int group = 0; group < kGroups; ++group)
    groups.push_back(seconds(calls, call) * 1e6 / calls);
  return median(groups);
}

/// Microseconds of one `call(context)` inside every replica.
template <class Call>
double inside(Strategy& strategy, int calls, Call&& call) {
  std::vector<double> groups;
  for (int group = -1; group < kGroups; ++group) {
    double group_seconds = 0;
    strategy.run([&] {
      auto* context = distribute::get_replica_context();
      const double mine = seconds(calls, [&] { call(*context); });
      if (context->replica_id_in_sync_group() == 0) group_seconds = mine;
    });
    if (group >= 0) groups.push_back(group_seconds * 1e6 / calls);  // the first one only warms
  }
  return median(groups);
}

PerReplica<Tensor> one_each(Strategy& strategy, int64_t numel) {
  return strategy.distribute_values_from_function(
      [&](distribute::ValueContext) { return numel == 0 ? at::ones({}) : at::ones({numel}); });
}

struct Row {
  std::string call;
  double microseconds;
};

struct Bench {
  Strategy& strategy;
  int calls;
  std::vector<Row> rows = {};

  int few() const { return std::max(1, calls / 20); }
  void add(const std::string& call, double microseconds) { rows.push_back({call, microseconds}); }
};

void measure_calls(Bench& bench) {
  Strategy& strategy = bench.strategy;
  const auto scalar = one_each(strategy, 0);
  const auto row = one_each(strategy, 1);
  const auto large = one_each(strategy, kMegabyte);
  bench.add("`run`, a function that does nothing",
            outside(bench.calls, [&] { strategy.run([] {}); }));
  bench.add("`reduce`, a scalar",
            outside(bench.calls, [&] { strategy.reduce(ReduceOp::kSum, scalar); }));
  bench.add("`reduce`, 1 MB",
            outside(bench.few(), [&] { strategy.reduce(ReduceOp::kSum, large); }));
  bench.add("`reduce_to` all devices, a scalar",
            outside(bench.calls, [&] { strategy.reduce_to(ReduceOp::kSum, scalar, scalar); }));
  bench.add("`reduce_to` all devices, 1 MB",
            outside(bench.few(), [&] { strategy.reduce_to(ReduceOp::kSum, large, large); }));
  bench.add("`gather`, one row each", outside(bench.calls, [&] { strategy.gather(row, 0); }));
  bench.add("`gather`, 1 MB each", outside(bench.few(), [&] { strategy.gather(large, 0); }));
}

void measure_replica_context(Bench& bench) {
  Strategy& strategy = bench.strategy;
  const Tensor scalar = at::ones({});
  const Tensor large = at::ones({kMegabyte});
  using Context = distribute::ReplicaContext;
  bench.add("`all_reduce`, a scalar", inside(strategy, bench.calls, [&](Context& context) {
              context.all_reduce(ReduceOp::kSum, scalar);
            }));
  bench.add("`all_reduce`, 1 MB", inside(strategy, bench.few(), [&](Context& context) {
              context.all_reduce(ReduceOp::kSum, large);
            }));
  bench.add("`merge_call`, a function that does nothing",
            inside(strategy, bench.calls,
                   [&](Context& context) { context.merge_call([](Strategy&) {}); }));
}

void measure_variables(Bench& bench) {
  Strategy& strategy = bench.strategy;
  auto scope = strategy.scope();
  const Tensor value = at::ones({});
  using Context = distribute::ReplicaContext;
  Variable counter(at::zeros({}), {.trainable = false,
                                   .synchronization = VariableSynchronization::kOnRead,
                                   .aggregation = VariableAggregation::kSum});
  Variable summed(at::zeros({}), {.trainable = false, .aggregation = VariableAggregation::kSum});
  bench.add("`assign`, ON_READ, in a replica",
            inside(strategy, bench.calls, [&](Context&) { counter.assign(value); }));
  bench.add("`assign_add`, ON_READ, in a replica",
            inside(strategy, bench.calls, [&](Context&) { counter.assign_add(value); }));
  bench.add("`assign`, SUM, in a replica (collective)",
            inside(strategy, bench.calls, [&](Context&) { summed.assign(value); }));
  bench.add("`assign_add`, SUM, in a replica (collective)",
            inside(strategy, bench.calls, [&](Context&) { summed.assign_add(value); }));
  bench.add("`assign`, across replicas", outside(bench.calls, [&] { summed.assign(value); }));
  bench.add("`assign_add`, across replicas",
            outside(bench.calls, [&] { summed.assign_add(value); }));
}

/// A step of a model so small that what is around it is what it costs: by fit, and by a loop that
/// does the same (loss, its mean over the epoch, gradients, update). The difference is fit's own.
void measure_fit(Bench& bench) {
  Strategy& strategy = bench.strategy;
  auto scope = strategy.scope();
  keras::Sequential model({keras::layers::Dense(1, {.input_shape = {1}})});
  const keras::optimizers::Optimizer sgd = keras::optimizers::SGD({.learning_rate = 1e-3});
  model.compile({.optimizer = sgd, .loss = "mse"});
  const Tensor rows = at::ones({4 * strategy.num_replicas_in_sync(), 1});
  const auto dataset = data::from_tensors(rows, rows).repeat();

  const auto fit = [&] {
    model.fit(dataset, {.epochs = 1, .verbose = 0, .steps_per_epoch = bench.calls});
  };
  const keras::losses::MeanSquaredError loss_object({.reduction = keras::losses::Reduction::kNone});
  const keras::metrics::Mean mean;
  keras::optimizers::Optimizer optimizer = sgd;
  const auto step = [&](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor loss = nn::compute_average_loss(loss_object(y, model(x, /*training=*/true)));
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                              model.trainable_variables());
    mean.update_state(loss.detach());
  };
  const auto loop = [&] {
    auto iterator = strategy.distribute_dataset(dataset).iterator();
    for (int i = 0; i < bench.calls; ++i) {
      auto [x, y] = iterator.get_next();
      strategy.run(step, x, y);
    }
  };
  bench.add("a step of `fit`, one weight", outside(1, fit) / bench.calls);
  bench.add("the same step in a loop of one's own", outside(1, loop) / bench.calls);
}

std::vector<Row> measure(int replicas, int calls) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(cat("cpu:", i));
  distribute::MirroredStrategy strategy({.devices = devices});
  Bench bench{strategy, calls};
  measure_calls(bench);
  measure_replica_context(bench);
  measure_variables(bench);
  measure_fit(bench);
  return bench.rows;
}

void print_table(const std::vector<int>& replicas, const std::vector<std::vector<Row>>& columns) {
  std::printf("| us a call |");
  for (int count : replicas) std::printf(" %d %s |", count, count == 1 ? "replica" : "replicas");
  std::printf("\n| --- |");
  for (std::size_t i = 0; i < replicas.size(); ++i) std::printf(" ---: |");
  std::printf("\n");
  for (std::size_t r = 0; r < columns[0].size(); ++r) {
    std::printf("| %s |", columns[0][r].call.c_str());
    for (const auto& column : columns) std::printf(" %.2f |", column[r].microseconds);
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  CLI::App app("What one call costs on mirrored CPU replicas");
  std::vector<int> replicas = {1, 2, 4};
  int calls = 2000;
  app.add_option("--replicas", replicas, "numbers of replicas")->check(CLI::Range(1, 64));
  app.add_option("--calls", calls, "calls in a group; a twentieth for a megabyte")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    std::vector<std::vector<tutti::bench::Row>> columns;
    for (int count : replicas) columns.push_back(tutti::bench::measure(count, calls));
    tutti::bench::print_table(replicas, columns);
    // The last line is for benchmarks/run.py.
    nlohmann::json line{
        {"contender", "tutti_calls"}, {"workload", "calls"}, {"replicas", replicas}};
    for (std::size_t r = 0; r < columns[0].size(); ++r) {
      for (const auto& column : columns)
        line["us"][columns[0][r].call].push_back(column[r].microseconds);
    }
    std::cout << line.dump() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "call_costs: " << error.what() << "\n";
    return 1;
  }
}
