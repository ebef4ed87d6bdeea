// train::Checkpoint by several workers: one file for all, also for other numbers of workers, from
// which a training goes on as if it had never stopped.

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "keras/line_model.h"
#include "support/expect.h"
#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "support/workers.h"
#include "tutti/base/seed.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/train/checkpoint.h"

namespace tutti::keras {
namespace {

namespace fs = std::filesystem;
using distribute::ReduceOp;
using distribute::Strategy;
using train::Checkpoint;
using train::CheckpointManager;
using tutti::testing::on_workers;
using tutti::testing::throws_saying;
using Made = std::shared_ptr<Strategy>;
using Sync = VariableSynchronization;
using Agg = VariableAggregation;

int worker_of(const Strategy& strategy) {
  return strategy.first_replica_id() / strategy.num_local_replicas();
}
bool is_chief(const Strategy& strategy) { return worker_of(strategy) == 0; }

/// `body` by workers, or, for none, by one MirroredStrategy.
void run_as(int workers, int replicas, const std::function<void(Strategy&)>& body) {
  if (workers == 0) return body(*testing::replicas(replicas));
  on_workers(workers, replicas, [&](const Made& strategy) { body(*strategy); });
}
const std::vector<std::pair<int, int>> kLayouts{{2, 2}, {0, 1}, {0, 4}, {1, 3}, {4, 1}, {3, 2}};

class CheckpointWorkers : public tutti::testing::TemporaryFolder {
 protected:
  std::vector<std::string> names(const std::string& below = "") const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / below))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
};
using Names = std::vector<std::string>;

struct Steps {
  Variable step{at::zeros({}, at::kLong), {.trainable = false, .name = "step"}};
  Checkpoint checkpoint{{{"step", step}}};
  int64_t now() const { return step.read_value().item<int64_t>(); }
  void set(int64_t number) { step.assign(at::scalar_tensor(number, at::kLong)); }
};

TEST_F(CheckpointWorkers, AManagerOfEachWorkerKeepsOneFolder) {
  on_workers(3, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Steps steps;
    CheckpointManager manager(steps.checkpoint, path("models"), {.max_to_keep = 2});
    for (int64_t number = 1; number <= 4; ++number) {
      steps.set(number);
      EXPECT_EQ(manager.save(), path(cat("models/ckpt-", number)));
    }
    EXPECT_EQ(manager.checkpoints(), (Names{path("models/ckpt-3"), path("models/ckpt-4")}));
    steps.set(0);
    EXPECT_EQ(manager.restore_or_initialize(), path("models/ckpt-4"));
    EXPECT_EQ(steps.now(), 4);
  });
  EXPECT_EQ(names("models"), (Names{"checkpoint", "ckpt-3.tutti", "ckpt-4.tutti"}));
}

TEST_F(CheckpointWorkers, TheTutorialsFoldersOfTheOthersAreTheirOwn) {
  for (int run = 1; run <= 2; ++run) {
    on_workers(2, 1, [&](const Made& strategy) {
      auto scope = strategy->scope();
      Steps steps;
      const std::string own = is_chief(*strategy) ? path("ckpt") : path("workertemp_1");
      CheckpointManager manager(steps.checkpoint, own, {.max_to_keep = 1});
      const std::string latest = train::latest_checkpoint(path("ckpt"));
      if (!latest.empty()) steps.checkpoint.restore(latest);
      EXPECT_EQ(steps.now(), run == 1 ? 0 : 7);
      steps.set(7);
      manager.save();
      if (!is_chief(*strategy)) {
        EXPECT_EQ(train::latest_checkpoint(own), cat(own, "/ckpt-", run));
        fs::remove_all(own);
      }
      steps.set(0);
      EXPECT_EQ(manager.restore_or_initialize(),
                is_chief(*strategy) ? cat(own, "/ckpt-", run) : path(cat("ckpt/ckpt-", run)))
          << "the chief's";
      EXPECT_EQ(steps.now(), 7);
    });
    EXPECT_EQ(names(), (Names{"ckpt"}));
  }
}

TEST_F(CheckpointWorkers, AnErrorOfTheDiskOnTheChiefIsOneOnAllAndTheNextSaveSucceeds) {
  fs::create_directories(path("models/ckpt-1.tutti/in the way"));
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Steps steps;
    CheckpointManager manager(steps.checkpoint, path("models"));
    if (is_chief(*strategy)) {
      EXPECT_THROW(manager.save(), Error);
    } else {
      EXPECT_TRUE(throws_saying<Aborted>([&] { manager.save(); }, {"worker 0 failed", "ckpt-1"}));
    }
    EXPECT_EQ(steps.checkpoint.save_counter(), 0);
    EXPECT_EQ(manager.save(2), path("models/ckpt-2"));
  });
}

TEST_F(CheckpointWorkers, WrittenAsynchronouslyAnErrorOnTheChiefComesAtTheNextCallOfAll) {
  fs::create_directories(path("models/ckpt-1.tutti/in the way"));
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Steps steps;
    CheckpointManager manager(steps.checkpoint, path("models"));
    manager.save(std::nullopt, true, {.enable_async = true});
    if (is_chief(*strategy)) {
      EXPECT_THROW(manager.save(), Error);
    } else {
      EXPECT_TRUE(throws_saying<Aborted>([&] { manager.save(); }, {"worker 0 failed", "ckpt-1"}));
    }
    steps.set(5);
    manager.save(9, true, {.enable_async = true});
    steps.set(6);
    steps.checkpoint.sync();
    steps.checkpoint.restore(path("models/ckpt-9")).assert_consumed();
    EXPECT_EQ(steps.now(), 5);
  });
}

TEST_F(CheckpointWorkers, Issue48_WhatOneWorkerDoesNotSeeIsAnErrorOnAllThatNamesIt) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Steps steps;
    const std::string saved = steps.checkpoint.save(path("ckpt"));
    const bool sees = is_chief(*strategy);
    const auto restore = [&] { steps.checkpoint.restore(sees ? saved : path("none")); };
    if (sees) {
      EXPECT_TRUE(throws_saying<Aborted>(restore, {"worker 1 failed", "none.tutti"}));
    } else {
      EXPECT_TRUE(throws_saying<NotFound>(restore, {"none.tutti"}));
    }
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { steps.checkpoint.restore(sees ? saved : ""); },
                                               {"no checkpoint", "a checkpoint"}));
    steps.checkpoint.restore(saved);
  });
}

TEST_F(CheckpointWorkers, DifferentObjectsAreAnErrorOnAll) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    const Variable a(at::zeros({})), b(at::zeros({}));
    Checkpoint::Objects objects{{"a", a}};
    if (is_chief(*strategy)) objects.emplace("b", b);
    Checkpoint checkpoint(objects);
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { checkpoint.save(path("ckpt")); },
                                               {"the objects a, b", "the objects a,"}));
  });
  EXPECT_EQ(names(), Names());
}

TEST_F(CheckpointWorkers, ADamagedLatestOneIsPassedOverByAll) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Steps steps;
    CheckpointManager manager(steps.checkpoint, path("models"));
    for (int64_t number = 1; number <= 2; ++number) {
      steps.set(number);
      manager.save();
    }
    if (is_chief(*strategy)) fs::resize_file(path("models/ckpt-2.tutti"), 90);
    manager.save(9);  // who comes here sees the file as it is now
    if (is_chief(*strategy)) fs::resize_file(path("models/ckpt-9.tutti"), 90);
    strategy->reduce(ReduceOp::kSum, at::ones({}));
    EXPECT_EQ(manager.restore_or_initialize(), path("models/ckpt-1"));
    EXPECT_EQ(steps.now(), 1);
  });
}

// ---- other numbers of workers

struct OneOfEach {
  std::map<std::string, Variable> all;
  OneOfEach() {
    for (const auto& [name, synchronization] :
         std::map<std::string, Sync>{{"write", Sync::kOnWrite}, {"read", Sync::kOnRead}}) {
      for (const auto& [kind, aggregation] : std::map<std::string, Agg>{
               {"sum", Agg::kSum}, {"mean", Agg::kMean}, {"first", Agg::kOnlyFirstReplica}})
        all.emplace(cat(name, "_", kind),
                    Variable(at::zeros({2}), {.trainable = false,
                                              .name = cat(name, "_", kind),
                                              .synchronization = synchronization,
                                              .aggregation = aggregation}));
    }
    all.emplace("count", Variable(at::zeros({}, at::kLong), {.trainable = false,
                                                             .name = "count",
                                                             .synchronization = Sync::kOnRead,
                                                             .aggregation = Agg::kSum}));
  }
  Checkpoint checkpoint() const {
    Checkpoint::Objects objects;
    for (const auto& [name, variable] : all) objects.emplace(name, variable);
    return Checkpoint(objects);
  }
};

TEST_F(CheckpointWorkers, Spec122_ValuesOfTwoTimesTwoReplicasComeBackInAnyNumberOfThem) {
  on_workers(2, 2, [&](const Made& strategy) {
    auto scope = strategy->scope();
    OneOfEach variables;
    strategy->run([&] {  // 1, 2, 3, 4
      const double own = distribute::get_replica_context()->replica_id_in_sync_group() + 1;
      for (const char* name : {"read_sum", "read_mean", "read_first"})
        variables.all.at(name).assign(at::full({2}, own));
      variables.all.at("count").assign(at::scalar_tensor(own * 3, at::kLong));
    });
    for (const char* name : {"write_sum", "write_mean", "write_first"})
      variables.all.at(name).assign(at::full({2}, 8.));
    variables.checkpoint().write(path("ckpt"));
  });
  for (const auto& [workers, replicas] : kLayouts) {
    SCOPED_TRACE(cat(workers, " workers of ", replicas));
    run_as(workers, replicas, [&](Strategy& strategy) {
      auto scope = strategy.scope();
      OneOfEach variables;
      variables.checkpoint().read(path("ckpt")).assert_consumed();
      const std::map<std::string, double> wanted{{"read_sum", 10},  {"read_mean", 2.5},
                                                 {"read_first", 1}, {"write_sum", 8},
                                                 {"write_mean", 8}, {"write_first", 8}};
      for (const auto& [name, value] : wanted)
        EXPECT_TENSOR_NEAR(variables.all.at(name).read_value(), at::full({2}, value), 1e-5);
      EXPECT_EQ(variables.all.at("count").read_value().item<int64_t>(), 30);
      const auto share = variables.all.at("read_sum").components()[0][0].item<double>();
      EXPECT_NEAR(share, 10. / strategy.num_replicas_in_sync(), 1e-5);
    });
  }
}

/// A training in a loop of one's own, with everything that must come back.
struct Loop {
  Strategy& strategy;
  std::unique_ptr<Sequential> model;
  optimizers::Optimizer optimizer;
  metrics::Mean loss{"loss"};
  Variable step{at::zeros({}, at::kLong), {.trainable = false, .name = "step"}};
  distribute::DistributedDataset<std::tuple<Tensor, Tensor>> data;
  distribute::DistributedDatasetIterator<std::tuple<Tensor, Tensor>> iterator;
  Checkpoint checkpoint;

  static std::unique_ptr<Sequential> net(bool dropout) {
    std::vector<layers::Layer> layers{layers::Dense(6, {.activation = "tanh", .input_shape = {3}})};
    if (dropout) layers.push_back(layers::Dropout(.3));
    layers.push_back(layers::Dense(1));
    auto made = std::make_unique<Sequential>(std::move(layers));
    std::vector<Tensor> weights;
    for (const Tensor& weight : made->get_weights())
      weights.push_back(at::arange(weight.numel(), at::kFloat).view(weight.sizes()).cos() / 2);
    made->set_weights(weights);
    return made;
  }
  static data::Dataset<std::tuple<Tensor, Tensor>> rows() {
    const Tensor x = at::arange(60, at::kFloat).view({20, 3}).sin();
    return data::from_tensor_slices(x, x.sum(1, /*keepdim=*/true))
        .shuffle(12, {.seed = 3})
        .repeat()
        .batch(8);
  }
  Loop(Strategy& strategy, bool dropout)
      : strategy(strategy),
        model(net(dropout)),
        optimizer(optimizers::Adam({.learning_rate = .02, .use_ema = true})),
        data(strategy.distribute_dataset(rows())),
        iterator(data.iterator()),
        checkpoint({{"model", *model},
                    {"optimizer", optimizer},
                    {"loss", loss},
                    {"step", step},
                    {"iterator", iterator},
                    {"random", strategy}}) {}
  void train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      strategy.run(
          [&](Tensor x, Tensor y) {
            GradientTape tape;
            const Tensor off = (*model)(x, /*training=*/true) - y;
            const Tensor mean = (off * off).sum() / 8;
            const auto variables = model->trainable_variables();
            optimizer.apply_gradients(tape.gradient(mean, variables), variables);
            loss.update_state(mean.detach());
          },
          iterator.get_next());
      step.assign_add(1);
    }
  }
  std::vector<Tensor> numbers() {
    std::vector<Tensor> all = model->get_weights();
    for (const std::string& slot : optimizer.slot_names()) {
      for (const Variable& variable : optimizer.slots(slot)) all.push_back(variable.read_value());
    }
    all.push_back(step.read_value());
    return all;
  }
};

std::vector<Tensor> uninterrupted(int workers, int replicas, bool dropout) {
  set_seed(5);
  std::vector<Tensor> numbers;
  std::mutex mutex;
  run_as(workers, replicas, [&](Strategy& strategy) {
    auto scope = strategy.scope();
    Loop loop(strategy, dropout);
    loop.train(7);
    const auto found = loop.numbers();
    std::lock_guard<std::mutex> lock(mutex);
    if (strategy.first_replica_id() == 0) numbers = found;
  });
  return numbers;
}

TEST_F(CheckpointWorkers, ATrainingThatGoesOnHasTheBitsOfOneThatNeverStopped) {
  for (const auto& [workers, replicas] : std::vector<std::pair<int, int>>{{0, 2}, {2, 1}, {2, 2}}) {
    SCOPED_TRACE(cat(workers, " workers of ", replicas));
    const std::vector<Tensor> wanted = uninterrupted(workers, replicas, /*dropout=*/true);
    fs::remove_all(path("models"));
    set_seed(5);
    run_as(workers, replicas, [&](Strategy& strategy) {
      auto scope = strategy.scope();
      Loop loop(strategy, true);
      loop.train(3);
      CheckpointManager(loop.checkpoint, path("models")).save();
    });
    set_seed(5);
    run_as(workers, replicas, [&](Strategy& strategy) {
      auto scope = strategy.scope();
      Loop loop(strategy, true);
      CheckpointManager manager(loop.checkpoint, path("models"));
      EXPECT_TRUE(manager.restore_or_initialize());
      loop.train(4);
      const auto found = loop.numbers();
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TENSOR_EQ(found[i], wanted[i]);
    });
  }
}

TEST_F(CheckpointWorkers, OtherNumbersOfWorkersAndReplicasGoOnWithTheSameRows) {
  const std::vector<Tensor> wanted = uninterrupted(2, 2, /*dropout=*/false);
  for (const auto& [workers, replicas] : kLayouts) {
    SCOPED_TRACE(cat("from 2 workers of 2 to ", workers, " of ", replicas, " and back"));
    const auto part = [&](int workers, int replicas, int64_t steps, bool ends) {
      run_as(workers, replicas, [&](Strategy& strategy) {
        auto scope = strategy.scope();
        Loop loop(strategy, false);
        CheckpointManager manager(loop.checkpoint, path("models"));
        manager.restore_or_initialize();
        loop.train(steps);
        manager.save();
        if (!ends) return;
        const auto found = loop.numbers();
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_TENSOR_NEAR(found[i], wanted[i], 1e-5);
      });
    };
    fs::remove_all(path("models"));
    part(2, 2, 2, false);
    part(workers, replicas, 3, false);
    part(2, 2, 2, true);
  }
}

TEST_F(CheckpointWorkers, IteratorsOfWorkersHaveEachTheirPlace) {
  // Worker 0 has 4, worker 1 has 9 rows: their places differ.
  const auto made = [](Strategy& strategy) {
    return strategy.distribute_datasets_from_function([](const distribute::InputContext& context) {
      const int64_t worker = context.input_pipeline_id();
      return data::range(worker * 100, worker * 100 + (worker == 0 ? 4 : 9)).batch(2);
    });
  };
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    Steps steps;
    auto dataset = made(*strategy);
    auto iterator = dataset.iterator();
    iterator.get_next();
    Checkpoint({{"step", steps.step}, {"iterator", iterator}}).write(path("ckpt"));
    auto other = dataset.iterator();
    Checkpoint({{"step", steps.step}, {"iterator", other}}).read(path("ckpt")).assert_consumed();
    for (;;) {
      const auto wanted = iterator.get_next_as_optional();
      const auto found = other.get_next_as_optional();
      ASSERT_EQ(found.has_value(), wanted.has_value());
      if (!wanted) break;
      EXPECT_TENSOR_EQ(found->values()[0], wanted->values()[0]);
    }
  });
}

}  // namespace
}  // namespace tutti::keras
