// InputOptions: what goes together, datasets of each replica, steps made ahead, and what the log
// says of them.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "support/expect.h"
#include "tutti/base/log.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

std::unique_ptr<MirroredStrategy> mirrored(int replicas) {
  MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}

using Numbers = std::vector<int64_t>;
using Steps = std::vector<std::vector<Numbers>>;  // [step][replica][row]

std::vector<Numbers> step_of(const PerReplica<Tensor>& parts) {
  std::vector<Numbers> step;
  for (const Tensor& part : parts.values()) {
    const Tensor rows = part.contiguous();
    step.emplace_back(rows.const_data_ptr<int64_t>(),
                      rows.const_data_ptr<int64_t>() + rows.numel());
  }
  return step;
}

Steps steps_of(const DistributedDataset<Tensor>& dataset) {
  Steps steps;
  for (const auto& parts : dataset) steps.push_back(step_of(parts));
  return steps;
}

const auto kDataset = [](const InputContext&) { return data::range(8).batch(2); };

TEST(InputOptions, Spec111_ADatasetForEachReplicaNeedsAFunction) {
  auto strategy = mirrored(2);
  EXPECT_ERROR(
      strategy->distribute_dataset(data::range(8).batch(4),
                                   {.replication_mode = InputReplicationMode::kPerReplica}),
      Unimplemented, "distribute_datasets_from_function");
}

TEST(InputOptions, Spec111_PlacingOnTheDeviceNeedsADatasetForEachReplica) {
  auto strategy = mirrored(2);
  EXPECT_ERROR(
      strategy->distribute_datasets_from_function(kDataset, {.place_dataset_on_device = true}),
      InvalidArgument, "kPerReplica");
  EXPECT_ERROR(
      strategy->distribute_dataset(data::range(8).batch(4), {.place_dataset_on_device = true}),
      InvalidArgument, "kPerReplica");
}

TEST(InputOptions, Spec111_PlacingOnTheDeviceAndFetchingExcludeEachOther) {
  auto strategy = mirrored(2);
  for (const auto& fetch : {std::optional<bool>(), std::optional<bool>(true)}) {
    EXPECT_ERROR(strategy->distribute_datasets_from_function(
                     kDataset, {.fetch_to_device = fetch,
                                .replication_mode = InputReplicationMode::kPerReplica,
                                .place_dataset_on_device = true}),
                 InvalidArgument, "fetch_to_device");
  }
  EXPECT_EQ(steps_of(strategy->distribute_datasets_from_function(
                         kDataset, {.fetch_to_device = false,
                                    .replication_mode = InputReplicationMode::kPerReplica,
                                    .place_dataset_on_device = true}))
                .size(),
            4u);
}

TEST(InputOptions, Spec111_ANegativeBufferIsRefused) {
  auto strategy = mirrored(2);
  EXPECT_ERROR(
      strategy->distribute_dataset(data::range(8).batch(4), {.per_replica_buffer_size = -1}),
      InvalidArgument, "per_replica_buffer_size -1");
  EXPECT_ERROR(
      strategy->distribute_datasets_from_function(kDataset, {.per_replica_buffer_size = -2}),
      InvalidArgument, "per_replica_buffer_size -2");
}

TEST(InputOptions, Spec73_WithAndWithoutFetchingTheValuesAreTheSame) {
  auto strategy = mirrored(2);
  const auto dataset = data::range(6).batch(4);
  EXPECT_EQ(steps_of(strategy->distribute_dataset(dataset, {.fetch_to_device = false})),
            steps_of(strategy->distribute_dataset(dataset)));
}

TEST(PerReplicaMode, CallsTheFunctionOnceForEachReplicaWithItsContext) {
  auto strategy = mirrored(3);
  std::vector<std::string> contexts;
  auto dataset = strategy->distribute_datasets_from_function(
      [&](const InputContext& context) {
        EXPECT_EQ(context.num_replicas_in_sync(), 3);
        contexts.push_back(context.to_string());
        return data::range(8).batch(2);
      },
      {.replication_mode = InputReplicationMode::kPerReplica});
  EXPECT_EQ(contexts, (std::vector<std::string>{"InputContext(input pipeline id 0, total: 3)",
                                                "InputContext(input pipeline id 1, total: 3)",
                                                "InputContext(input pipeline id 2, total: 3)"}));
  EXPECT_EQ(steps_of(dataset)[1], (std::vector<Numbers>{{2, 3}, {2, 3}, {2, 3}}));
  EXPECT_EQ(dataset.cardinality(), 4);
}

TEST(PerReplicaMode, ReplicasThatShardByTheirContextReadDisjointRows) {
  auto strategy = mirrored(2);
  EXPECT_EQ(steps_of(strategy->distribute_datasets_from_function(
                [](const InputContext& context) {
                  return data::range(7)
                      .shard(context.num_input_pipelines(), context.input_pipeline_id())
                      .batch(2);
                },
                {.replication_mode = InputReplicationMode::kPerReplica})),
            (Steps{{{0, 2}, {1, 3}}, {{4, 6}, {5}}}));
}

TEST(PerReplicaMode, GoesOnUntilTheLongestDatasetEnds) {
  auto strategy = mirrored(2);
  const auto uneven = [&](bool batched) {
    return strategy->distribute_datasets_from_function(
        [&](const InputContext& context) {
          const auto rows = data::range(context.input_pipeline_id() == 0 ? 1 : 3);
          return batched ? rows.batch(1) : rows;
        },
        {.replication_mode = InputReplicationMode::kPerReplica});
  };
  EXPECT_EQ(steps_of(uneven(true)), (Steps{{{0}, {0}}, {{}, {1}}, {{}, {2}}}));
  EXPECT_EQ(uneven(true).cardinality(), 3);
  EXPECT_EQ(steps_of(uneven(false)), (Steps{{{0}, {0}}})) << "no batch axis: dropped";
  EXPECT_EQ(uneven(false).cardinality(), 1);
}

TEST(PerReplicaMode, HasTheWidestSpecOfItsDatasets) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_datasets_from_function(
      [](const InputContext& context) {
        return data::from_tensor_slices(at::zeros({4, context.input_pipeline_id() + 2}))
            .batch(2, {.drop_remainder = true});
      },
      {.replication_mode = InputReplicationMode::kPerReplica});
  EXPECT_EQ(flatten(dataset.element_spec().replica_spec())[0].shape, (Numbers{2, -1}));
}

TEST(PerReplicaMode, WorksUnderEveryStrategyOfOneProcess) {
  const InputOptions options{.replication_mode = InputReplicationMode::kPerReplica};
  OneDeviceStrategy one("cpu:0");
  EXPECT_EQ(steps_of(one.distribute_datasets_from_function(kDataset, options)).size(), 4u);
  EXPECT_EQ(steps_of(get_strategy().distribute_datasets_from_function(kDataset, options)).size(),
            4u);
}

TEST(StepsAhead, Spec112_TheBufferDoesNotChangeValues) {
  auto strategy = mirrored(2);
  const auto expected = steps_of(strategy->distribute_dataset(data::range(23).batch(4)));
  for (int64_t buffer : {0, 1, 2, 5, 100}) {
    auto dataset =
        strategy->distribute_dataset(data::range(23).batch(4), {.per_replica_buffer_size = buffer});
    for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(steps_of(dataset), expected) << buffer;
    EXPECT_EQ(dataset.cardinality(), 6);
    auto of_function = strategy->distribute_datasets_from_function(
        kDataset,
        {.replication_mode = InputReplicationMode::kPerReplica, .per_replica_buffer_size = buffer});
    EXPECT_EQ(steps_of(of_function)[3], (std::vector<Numbers>{{6, 7}, {6, 7}}));
  }
}

/// The threads on which elements are made.
class Threads {
 public:
  Tensor operator()(const Tensor& x) {
    std::lock_guard<std::mutex> lock(mutex_);
    seen_.insert(std::this_thread::get_id());
    return x;
  }
  std::set<std::thread::id> seen() const { return seen_; }
  void forget() { seen_.clear(); }

 private:
  std::mutex mutex_;
  std::set<std::thread::id> seen_;
};

TEST(StepsAhead, OnCpuDevicesFunctionsRunAheadOnOneThreadUnlessTheBufferIsZero) {
  auto strategy = mirrored(2);
  const auto threads_with = [&](int64_t buffer) {
    Threads threads;
    const auto dataset = data::range(16).map([&](const Tensor& x) { return threads(x); }).batch(4);
    steps_of(strategy->distribute_dataset(dataset, {.per_replica_buffer_size = buffer}));
    return threads.seen();
  };
  EXPECT_EQ(threads_with(0), std::set<std::thread::id>{std::this_thread::get_id()});
  for (int64_t buffer : {1, 2}) {
    EXPECT_EQ(threads_with(buffer).count(std::this_thread::get_id()), 0u);
    EXPECT_EQ(threads_with(buffer).size(), 1u) << "one producer for all replicas";
  }
}

TEST(StepsAhead, WithOneReplicaOrReplicasOneByOneFunctionsStayOnTheCallersThread) {
  const auto threads_under = [](int replicas) {
    auto strategy = mirrored(replicas);
    Threads threads;
    const auto dataset = data::range(16).map([&](const Tensor& x) { return threads(x); }).batch(4);
    steps_of(strategy->distribute_dataset(dataset));
    return threads.seen();
  };
  const std::set<std::thread::id> here{std::this_thread::get_id()};
  EXPECT_EQ(threads_under(1), here);
  EXPECT_NE(threads_under(2), here);
  ::setenv("TUTTI_SEQUENTIAL_REPLICAS", "1", 1);
  const auto one_by_one = threads_under(2);
  ::unsetenv("TUTTI_SEQUENTIAL_REPLICAS");
  EXPECT_EQ(one_by_one, here);
}

/// The numbers 0 to 15, without a function of the user.
class Watched : public data::Plan {
 public:
  explicit Watched(Threads& threads) : Plan({}), threads_(threads) {}
  std::string name() const override { return "watched"; }
  int64_t cardinality() const override { return 16; }
  std::unique_ptr<data::Iterator> iterator() const override {
    return std::make_unique<Pass>(threads_);
  }

 private:
  struct Pass : data::Iterator {
    explicit Pass(Threads& threads) : threads(threads) {}
    std::optional<Nest> next() override {
      if (number == 16) return std::nullopt;
      return Nest(threads(at::scalar_tensor(number++, at::kLong)));
    }
    Threads& threads;
    int64_t number = 0;
  };
  Threads& threads_;
};

TEST(StepsAhead, OnCpuDevicesRowsAreCutAheadOnlyForALargerBuffer) {
  auto strategy = mirrored(2);
  const auto threads_with = [&](int64_t buffer) {
    Threads threads;
    const auto dataset = data::Dataset<Tensor>(std::make_shared<Watched>(threads)).batch(4);
    dataset.element_spec();
    const auto distributed =
        strategy->distribute_dataset(dataset, {.per_replica_buffer_size = buffer});
    threads.forget();
    steps_of(distributed);
    return threads.seen();
  };
  const std::set<std::thread::id> own{std::this_thread::get_id()};
  EXPECT_EQ(threads_with(0), own);
  EXPECT_EQ(threads_with(1), own);
  EXPECT_EQ(threads_with(2).count(std::this_thread::get_id()), 0u);
}

TEST(StepsAhead, NoMoreThanTheBufferIsMade) {
  auto strategy = mirrored(2);
  std::atomic<int> made{0};
  auto iterator = strategy
                      ->distribute_datasets_from_function(
                          [&](const InputContext&) {
                            return data::range(1000).map([&](const Tensor& x) {
                              ++made;
                              return x;
                            });
                          },
                          {.per_replica_buffer_size = 3})
                      .iterator();
  for (int step = 0; step < 10; ++step) iterator.get_next();
  EXPECT_GE(made, 20);
  EXPECT_LE(made, 2 * (10 + 3 + 1)) << "three steps in the buffer and one in the making";
}

TEST(StepsAhead, AnErrorOfTheDatasetSurfacesInItsPlaceAndThePassGoesOn) {
  auto strategy = mirrored(2);
  auto iterator = strategy
                      ->distribute_datasets_from_function(
                          [](const InputContext&) {
                            return data::range(6).map([](const Tensor& x) {
                              if (x.item<int64_t>() == 3) throw std::runtime_error("three");
                              return x;
                            });
                          },
                          {.per_replica_buffer_size = 2})
                      .iterator();
  EXPECT_EQ(step_of(iterator.get_next()), (std::vector<Numbers>{{0}, {1}}));
  EXPECT_THROW(iterator.get_next(), std::runtime_error);
  EXPECT_EQ(step_of(iterator.get_next()), (std::vector<Numbers>{{2}, {4}}));
}

TEST(StepsAhead, AnAbandonedEndlessPassEnds) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_dataset(data::range(5).repeat().batch(4),
                                              {.per_replica_buffer_size = 4});
  for (int pass = 0; pass < 20; ++pass) {
    auto iterator = dataset.iterator();
    EXPECT_EQ(step_of(iterator.get_next()), (std::vector<Numbers>{{0, 1}, {2, 3}}));
  }
}

/// What the log says at the level `debug` while `body` runs.
template <class Body>
std::string debug_log(const Body& body) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  body();
  set_log_level(before);
  return ::testing::internal::GetCapturedStderr();
}

TEST(InputLog, UserIssue32_DebugSaysWhatEachReplicaReads) {
  auto strategy = mirrored(2);
  const std::string said =
      debug_log([&] { steps_of(strategy->distribute_dataset(data::range(100, 107).batch(4))); });
  const char* expected[] = {
      "distribute [step 0, replica 0 on cpu:0]: rows 0 to below 2 of input stream 0: int64 (2,) = "
      "100 101\n",
      "distribute [step 0, replica 1 on cpu:1]: rows 2 to below 4 of input stream 0: int64 (2,) = "
      "102 103\n",
      "distribute [step 1, replica 0 on cpu:0]: rows 4 to below 6 of input stream 0: int64 (2,) = "
      "104 105\n",
      "distribute [step 1, replica 1 on cpu:1]: rows 6 to below 7 of input stream 0: int64 (1,) = "
      "106\n"};
  for (const char* line : expected) EXPECT_NE(said.find(line), std::string::npos) << said;
}

TEST(InputLog, UserIssue32_ShowsHowAllComponentsBegin) {
  auto strategy = mirrored(2);
  const std::string said = debug_log([&] {
    const auto dataset = data::zip(data::range(40).batch(20),
                                   data::from_tensor_slices(at::arange(40) * 0.5).batch(20));
    for (const auto& step : strategy->distribute_dataset(dataset)) static_cast<void>(step);
  });
  EXPECT_NE(said.find("int64 (10,) = 10 11 12 13 14 15 16 17 …; float32 (10,) = 5 5.5 6"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace tutti::distribute
