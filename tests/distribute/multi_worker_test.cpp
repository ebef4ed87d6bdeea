// What several workers do together that one does not: agreeing, failing, beginning and ending.

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "support/workers.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::on_workers;
using testing::throws_saying;
using Made = std::shared_ptr<Strategy>;

int worker_of(const Strategy& strategy) {
  return strategy.first_replica_id() / strategy.num_local_replicas();
}
Tensor number(double value) { return at::scalar_tensor(value, at::kFloat); }
int id() { return get_replica_context()->replica_id_in_sync_group(); }

// ---- being one of several

TEST(MultiWorker, Spec125_IdsAreGlobalAndLocalOnesBeginAtZeroOnEachWorker) {
  on_workers(2, 2, [](const Made& strategy) {
    const int first = 2 * worker_of(*strategy);
    EXPECT_EQ(strategy->num_replicas_in_sync(), 4);
    EXPECT_EQ(strategy->num_local_replicas(), 2);
    EXPECT_EQ(strategy->first_replica_id(), first);
    const auto ids =
        strategy->run([] { return std::pair(id(), get_replica_context()->local_replica_id()); });
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(ids.first[static_cast<std::size_t>(r)], first + r);
      EXPECT_EQ(ids.second[static_cast<std::size_t>(r)], r);
    }
  });
}

TEST(MultiWorker, AloneItIsAMirroredStrategyWithoutACommunicator) {
  MultiWorkerMirroredStrategy strategy({.communication_options = {.timeout_seconds = 30}}, nullptr);
  EXPECT_EQ(strategy.workers(), nullptr);
  EXPECT_EQ(strategy.num_replicas_in_sync(), strategy.num_local_replicas());
  EXPECT_EQ(strategy.communication_options().timeout_seconds, 30);
  EXPECT_EQ(strategy.input_context().num_input_pipelines(), 1);
}

TEST(MultiWorker, TheSummaryNamesTheWorkersAndTheChief) {
  on_workers(2, 1, [](const Made& strategy) {
    const std::string text = strategy->summary();
    EXPECT_NE(text.find("2 replicas on 2 workers"), std::string::npos) << text;
    EXPECT_EQ(text.find("the chief, on") != std::string::npos, worker_of(*strategy) == 0) << text;
    EXPECT_NE(text.find("CollectiveAllReduce"), std::string::npos) << text;
  });
}

TEST(MultiWorker, Spec132_AHundredAllReducesOfChangingShapesAreRight) {
  on_workers(2, 2, [](const Made& strategy) {
    strategy->run([] {
      for (int i = 0; i < 100; ++i) {
        const Tensor sum = get_replica_context()->all_reduce(
            "SUM", at::full({1 + i % 7, 1 + i % 3}, id() + i, at::kFloat));
        EXPECT_TENSOR_EQ(sum, at::full({1 + i % 7, 1 + i % 3}, 6 + 4 * i, at::kFloat));
      }
    });
  });
}

TEST(MultiWorker, WorkersWithDifferentNumbersOfReplicasAreRefusedOnAll) {
  auto group = collectives::find_backend("in_process").make_local_group(2);
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      auto own = std::make_shared<WorkerGroup>(std::move(group[w]));
      std::vector<std::string> devices{"cpu:0"};
      if (w == 1) devices.push_back("cpu:1");
      EXPECT_TRUE(throws_saying<InvalidArgument>(
          [&] { MultiWorkerMirroredStrategy({.devices = devices}, own); },
          {"one of 1 replicas", "one of 2 replicas", "worker 1"}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- variables

TEST(MultiWorkerVariables, BeginAsTheChiefs) {
  on_workers(2, 2, [](const Made& strategy) {
    auto scope = strategy->scope();
    const Variable v(at::full({2}, 1.0F + static_cast<float>(worker_of(*strategy))));
    for (const Tensor& component : v.components()) EXPECT_TENSOR_EQ(component, at::ones({2}));
    Variable inside;
    strategy->run([&] {
      const Variable made(at::full({2}, 5.0F + static_cast<float>(id())), {.name = "inside"});
      if (get_replica_context()->local_replica_id() == 0) inside = made;
    });
    EXPECT_TENSOR_EQ(inside.read_value(), at::full({2}, 5.0F));
  });
}

TEST(MultiWorkerVariables, OfDifferentProgramsAreRefusedOnAllWorkersWhichMayGoOn) {
  on_workers(3, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    const bool other = worker_of(*strategy) == 2;
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { Variable(at::ones({2}), {.name = other ? "b" : "a"}); },
        {"worker 0", "\"a\"", "worker 2", "\"b\"", "one program"}));
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { Variable(at::ones({other ? 3 : 2}), {.name = "a"}); },
                                       {"(2,)", "(3,)", "synchronization AUTO, aggregation NONE"}));
    EXPECT_TENSOR_EQ(strategy->reduce("SUM", number(1)), number(3));
  });
}

TEST(MultiWorkerVariables, NumbersOfAutomaticNamesMayDiffer) {
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    const Variable v(at::ones({}),
                     {.name = worker_of(*strategy) == 0 ? "dense/kernel" : "dense_1/kernel"});
    EXPECT_TENSOR_EQ(v.read_value(), at::ones({}));
  });
}

TEST(MultiWorkerVariables, AssignmentsOfDifferentVariablesAreRefusedOnAll) {
  on_workers(2, 1, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable a(at::zeros({}), {.name = "a", .aggregation = VariableAggregation::kSum});
    Variable b(at::zeros({}), {.name = "b", .aggregation = VariableAggregation::kSum});
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { strategy->run([&] { (id() == 0 ? a : b).assign(number(1)); }); },
        {"assign", "\"a\"", "\"b\""}));
    strategy->run([&] { a.assign(number(1)); });
    EXPECT_TENSOR_EQ(a.read_value(), number(2));
    EXPECT_TENSOR_EQ(b.read_value(), number(0));
  });
}

TEST(MultiWorkerVariables, AMeanTakesANumberOnceAndNumbersAndTensorsTogether) {
  on_workers(2, 2, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable v(at::zeros({2}), {.name = "v", .aggregation = VariableAggregation::kMean});
    strategy->run([&] { v.assign(3); });
    EXPECT_TENSOR_EQ(v.read_value(), at::full({2}, 3.0F));
    strategy->run([&] {
      if (id() == 3) {
        v.assign(at::full({2}, 7.0F));
      } else {
        v.assign(3);
      }
    });
    EXPECT_TENSOR_EQ(v.read_value(), at::full({2}, 4.0F));
  });
}

TEST(MultiWorkerVariables, TheFirstReplicasAssignmentIsThatOfTheChief) {
  on_workers(2, 2, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable v(at::zeros({4}),
               {.name = "v", .aggregation = VariableAggregation::kOnlyFirstReplica});
    strategy->run([&] { v.assign(at::full({4}, id() + 5.0F)); });
    EXPECT_TENSOR_EQ(v.read_value(), at::full({4}, 5.0F));
    strategy->run([&] {
      v.scatter_add({at::full({1}, id() + 1.0F), at::full({1}, id(), at::kLong), {4}});
    });
    EXPECT_TENSOR_EQ(v.read_value(), at::tensor({6.F, 5.F, 5.F, 5.F}));
  });
}

TEST(MultiWorkerVariables, AnOnReadMeanDividesByAllReplicas) {
  on_workers(2, 2, [](const Made& strategy) {
    auto scope = strategy->scope();
    Variable v(at::zeros({}), {.name = "v",
                               .synchronization = VariableSynchronization::kOnRead,
                               .aggregation = VariableAggregation::kMean});
    strategy->run([&] { v.assign(number(id())); });
    EXPECT_TENSOR_EQ(v.read_value(), number(1.5));
    const WorkerGroup::LocalReads local(strategy->workers());
    EXPECT_TENSOR_EQ(v.read_value(), number(0.5 + 2 * worker_of(*strategy)));
  });
}

// ---- failing

TEST(MultiWorkerFailure, TheOthersGetTheMessageOfTheOneThatFailedAndAllMayGoOn) {
  on_workers(3, 2, [](const Made& strategy) {
    const auto step = [&] {
      strategy->run([] {
        if (id() == 3) throw OutOfRange("no oil left");
        get_replica_context()->all_reduce("SUM", at::ones({2}));
      });
    };
    if (worker_of(*strategy) == 1) {
      EXPECT_TRUE(throws_saying<OutOfRange>(step, {"no oil left"}));
    } else {
      EXPECT_TRUE(throws_saying<Aborted>(step, {"worker 1 failed", "no oil left"}));
    }
    EXPECT_TENSOR_EQ(strategy->reduce("SUM", strategy->run([] { return at::ones({}); })),
                     number(6));
  });
}

TEST(MultiWorkerFailure, WorkersThatFailAlikeGoOn) {
  on_workers(2, 1, [](const Made& strategy) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(throws_saying<InvalidArgument>(
          [&] { strategy->run([] { get_replica_context()->all_gather(at::ones({}), 0); }); },
          {"all_gather", "scalar"}));
    }
    EXPECT_TENSOR_EQ(strategy->reduce("SUM", number(2)), number(4));
  });
}

TEST(MultiWorkerFailure, DifferentCollectivesAreRefusedOnAllByNameAndAllMayGoOn) {
  on_workers(2, 2, [](const Made& strategy) {
    const bool first = worker_of(*strategy) == 0;
    const auto step = [&] {
      strategy->run([&] {
        ReplicaContext& replica = *get_replica_context();
        if (first) {
          replica.all_reduce("SUM", at::ones({4}));
        } else {
          replica.all_reduce("SUM", at::ones({5}));
        }
      });
    };
    EXPECT_TRUE(throws_saying<InvalidArgument>(step, {"all_reduce", "(4,)", "(5,)"}));
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] {
          if (first) {
            strategy->reduce("SUM", number(1));
          } else {
            strategy->gather(at::ones({1}), 0);
          }
        },
        {"all_reduce", "all_gather"}));
    EXPECT_TENSOR_EQ(strategy->reduce("SUM", number(1)), number(2));
  });
}

TEST(MultiWorkerFailure, NestsOfOtherShapesButAsManyNumbersAreRefusedOnAll) {
  on_workers(2, 1, [](const Made& strategy) {
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] {
          strategy->run([] {
            const bool first = id() == 0;
            get_replica_context()->all_reduce(
                "SUM", std::vector{at::ones({first ? 2 : 4}), at::ones({first ? 4 : 2})});
          });
        },
        {"all_reduce", "replica 0", "replica 1", "(2,)", "(4,)"}));
  });
}

TEST(MultiWorkerFailure, AWorkerThatHasLeftIsNotWaitedFor) {
  on_workers(2, 1, [](const Made& strategy) {
    if (worker_of(*strategy) == 0) return;
    EXPECT_TRUE(
        throws_saying<Aborted>([&] { strategy->reduce("SUM", number(1)); }, {"worker 0 has left"}));
  });
}

TEST(MultiWorkerFailure, AWorkerThatDoesNotComeIsADeadline) {
  std::atomic<bool> over{false};
  on_workers(2, 1,
             [&](const Made& strategy) {
               if (worker_of(*strategy) == 0) {
                 EXPECT_TRUE(throws_saying<DeadlineExceeded>(
                     [&] { strategy->reduce("SUM", number(1)); }, {"rank 1"}));
                 over = true;
               }
               while (!over) std::this_thread::yield();
             },
             {.communication_options = {.timeout_seconds = 2}});
}

// ---- input

std::vector<std::vector<int64_t>> rows_of(Strategy& strategy,
                                          const DistributedDataset<Tensor>& dataset) {
  std::vector<std::vector<int64_t>> steps;
  for (const auto& step : dataset) {
    steps.emplace_back();
    for (const Tensor& part : strategy.local_results(step)) {
      for (int64_t i = 0; i < part.size(0); ++i) steps.back().push_back(part[i].item<int64_t>());
    }
  }
  return steps;
}

TEST(MultiWorkerInput, TheFunctionIsToldWhichWorkerItIsFor) {
  on_workers(3, 2, [](const Made& strategy) {
    strategy->distribute_datasets_from_function([&](const InputContext& context) {
      EXPECT_EQ(context.num_input_pipelines(), 3);
      EXPECT_EQ(context.input_pipeline_id(), worker_of(*strategy));
      EXPECT_EQ(context.num_replicas_in_sync(), 6);
      return data::range(6).batch(1);
    });
    EXPECT_TRUE(throws_saying<Unimplemented>(
        [&] {
          strategy->distribute_datasets_from_function(
              [](const InputContext&) { return data::range(6).batch(1); },
              {.replication_mode = InputReplicationMode::kPerReplica});
        },
        {"kPerReplica"}));
  });
}

TEST(MultiWorkerInput, EveryRowIsSeenOnceWithAnyNumberOfWorkersAndReplicas) {
  for (const auto& [workers, replicas] : std::vector<std::pair<int, int>>{{2, 1}, {2, 2}, {3, 1}}) {
    std::mutex mutex;
    std::multiset<int64_t> seen;
    std::set<std::size_t> steps;
    on_workers(workers, replicas, [&](const Made& strategy) {
      const auto rows = rows_of(*strategy, strategy->distribute_dataset(data::range(23).batch(7)));
      std::lock_guard<std::mutex> lock(mutex);
      steps.insert(rows.size());
      for (const auto& step : rows) seen.insert(step.begin(), step.end());
    });
    std::multiset<int64_t> wanted;
    for (int64_t i = 0; i < 23; ++i) wanted.insert(i);
    EXPECT_EQ(seen, wanted);
    EXPECT_EQ(steps, std::set<std::size_t>{4});
  }
}

TEST(MultiWorkerInput, Spec113_WithoutEndOrWithAsManyStepsNobodyIsAsked) {
  on_workers(2, 1, [](const Made& strategy) {
    auto endless = strategy->distribute_dataset(data::range(5).repeat().batch(4));
    auto equal = strategy->distribute_dataset(data::range(10).batch(4));
    EXPECT_EQ(endless.cardinality(), data::kInfinite);
    EXPECT_EQ(equal.cardinality(), 3);
    auto iterator = endless.iterator();
    const int64_t before = strategy->workers()->num_calls();
    for (int i = 0; i < 5; ++i) iterator.get_next();
    EXPECT_EQ(rows_of(*strategy, equal).size(), 3u);
    EXPECT_EQ(strategy->workers()->num_calls(), before);
  });
}

TEST(MultiWorkerInput, Issue3_AWorkerWithoutDataGoesOnWithEmptyBatchesUntilAllHaveEnded) {
  on_workers(2, 2, [](const Made& strategy) {
    const bool first = worker_of(*strategy) == 0;
    // A length that nobody knows, and none at all on worker 0.
    auto dataset = strategy->distribute_datasets_from_function([&](const InputContext&) {
      return data::range(5).filter([first](const Tensor&) { return !first; }).batch(1);
    });
    EXPECT_EQ(dataset.cardinality(), data::kUnknown);
    const auto steps = rows_of(*strategy, dataset);
    ASSERT_EQ(steps.size(), 3u);
    EXPECT_EQ(steps[2].size(), first ? 0u : 1u);
    EXPECT_EQ(steps[0].size(), first ? 0u : 2u);
  });
}

TEST(MultiWorkerInput, ElementsWithoutABatchAxisEndWithTheShortestWorker) {
  on_workers(2, 1, [](const Made& strategy) {
    auto dataset = strategy->distribute_datasets_from_function([](const InputContext& context) {
      return data::range(context.input_pipeline_id() == 0 ? 5 : 3);
    });
    EXPECT_EQ(dataset.cardinality(), 3);
    int steps = 0;
    for ([[maybe_unused]] const auto& step : dataset) ++steps;
    EXPECT_EQ(steps, 3);
  });
}

TEST(MultiWorkerInput, AnErrorInOneWorkersDataReachesTheOthers) {
  on_workers(2, 1, [](const Made& strategy) {
    const bool fails = worker_of(*strategy) == 1;
    auto dataset = strategy->distribute_datasets_from_function([&](const InputContext&) {
      return data::range(6)
          .map([fails](const Tensor& x) {
            if (fails && x.item<int64_t>() == 3) throw OutOfRange("a torn page");
            return x;
          })
          .filter([](const Tensor&) { return true; })
          .batch(1);
    });
    const auto pass = [&] { rows_of(*strategy, dataset); };
    if (fails) {
      EXPECT_TRUE(throws_saying<OutOfRange>(pass, {"a torn page"}));
    } else {
      EXPECT_TRUE(throws_saying<Aborted>(pass, {"worker 1 failed", "a torn page"}));
    }
  });
}

TEST(MultiWorkerInput, AnErrorInOneWorkersDatasetFunctionReachesTheOthers) {
  on_workers(2, 1, [](const Made& strategy) {
    const bool fails = worker_of(*strategy) == 0;
    const auto distribute = [&] {
      strategy->distribute_datasets_from_function([&](const InputContext&) {
        if (fails) throw NotFound("no such folder");
        return data::range(3).batch(1);
      });
    };
    if (fails) {
      EXPECT_TRUE(throws_saying<NotFound>(distribute, {"no such folder"}));
    } else {
      EXPECT_TRUE(throws_saying<Aborted>(distribute, {"worker 0 failed", "no such folder"}));
    }
  });
}

TEST(MultiWorkerInput, ASavedPassGoesOnWhereItStood) {
  on_workers(2, 1, [](const Made& strategy) {
    const auto make = [&] {
      return strategy->distribute_datasets_from_function([](const InputContext& context) {
        return data::range(context.input_pipeline_id() == 0 ? 2 : 4).batch(1);
      });
    };
    auto first = make();
    auto iterator = first.iterator();
    for (int i = 0; i < 3; ++i) iterator.get_next();
    const Nest state = iterator.save();
    auto second = make();
    auto resumed = second.iterator();
    resumed.restore(state);
    const auto last = resumed.get_next();
    EXPECT_EQ(strategy->local_results(last)[0].size(0), worker_of(*strategy));
    EXPECT_FALSE(resumed.get_next_as_optional().has_value());
  });
}

// ---- what one Mirrored strategy gives

TEST(MultiWorker, RandomNumbersOfAReplicaAreThoseOfThatReplicaOfOneMirroredStrategy) {
  set_seed(3);
  const auto draw = [](Strategy& strategy) {
    return strategy.run([] {
      return at::rand({3}, get_replica_context()->generator(), at::TensorOptions(at::kFloat));
    });
  };
  MirroredStrategy together({.devices = {"cpu:0", "cpu:1"}});
  const PerReplica<Tensor> wanted = draw(together);
  on_workers(2, 1, [&](const Made& strategy) {
    EXPECT_TENSOR_EQ(draw(*strategy)[0], wanted[static_cast<std::size_t>(worker_of(*strategy))]);
  });
}

}  // namespace
}  // namespace tutti::distribute
