// Rows of spec/user_issues.md that the replicas of one process can show without Keras.

#include <algorithm>
#include <atomic>
#include <functional>

#include "support/expect.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

MirroredStrategyOptions cpus(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return options;
}
int own_id() { return get_replica_context()->replica_id_in_sync_group(); }

TEST(UserIssues, Issue1_TheEndOfDataIsTheSameForAllReplicas) {
  // 7 batches for 2 replicas: the last step has one batch and an empty one, and no replica waits.
  MirroredStrategy strategy(cpus(2));
  auto dataset = strategy.distribute_datasets_from_function(
      [](const InputContext&) { return data::range(7).batch(1); });
  int64_t rows = 0, steps = 0;
  for (auto batch : dataset) {
    const auto sums = strategy.run(
        [](const Tensor& part) {
          return get_replica_context()->all_reduce(ReduceOp::kSum, at::tensor(part.size(0)));
        },
        batch);
    EXPECT_TRUE(at::equal(sums[0], sums[1]));
    rows += sums[0].item<int64_t>();
    ++steps;
  }
  EXPECT_EQ(rows, 7);
  EXPECT_EQ(steps, 4);
}

TEST(UserIssues, Issue9_ADatasetFromAFunctionEndsAndBeginsAgain) {
  MirroredStrategy strategy(cpus(2));
  auto dataset = strategy.distribute_datasets_from_function([](const InputContext& context) {
    return data::range(8).batch(context.get_per_replica_batch_size(4));
  });
  for (int pass = 0; pass < 2; ++pass) {
    int64_t steps = 0;
    for ([[maybe_unused]] auto batch : dataset) ++steps;
    EXPECT_EQ(steps, 2);
  }
}

TEST(UserIssues, Issue2_AReplicaWithoutRowsTakesPartWithWeightZero) {
  MirroredStrategy strategy(cpus(3));
  const Variable w(at::tensor(1.f));
  const auto losses = strategy.run([&] {
    const Tensor rows = own_id() == 2 ? at::zeros({0}) : at::full({2}, 3.f + 3.f * own_id());
    return nn::compute_average_loss(rows, 4);
  });
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, losses).item<float>(), 4.5f);  // (3+3+6+6) / 4
}

TEST(UserIssues, Issue13_AverageLossesAreAddedNotAveraged) {
  MirroredStrategy strategy(cpus(2));
  const auto losses = strategy.run([] {
    const Tensor rows = own_id() == 0 ? at::tensor({1.f, 2.f}) : at::tensor({3.f, 6.f});
    return nn::compute_average_loss(rows, 4);
  });
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, losses).item<float>(), 3);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kMean, losses).item<float>(), 1.5f);
}

TEST(UserIssues, Issue17_TheGradientOfAReplicaIsItsOwnUnscaled) {
  MirroredStrategy strategy(cpus(4));
  auto scope = strategy.scope();
  const Variable w(at::tensor(2.f));
  const auto gradients = strategy.run([&] {
    const float x = 1.f + static_cast<float>(own_id());
    GradientTape tape;
    const Tensor loss = w.value() * x;
    const Tensor own = tape.gradient(loss, w);
    EXPECT_FLOAT_EQ(own.item<float>(), x);
    return get_replica_context()->all_reduce(ReduceOp::kSum, own);
  });
  EXPECT_FLOAT_EQ(gradients[3].item<float>(), 10);
}

TEST(UserIssues, Issue18_DenominatorsOfTheUsersOwnAreSummedOverReplicas) {
  // Token losses (1, 2, 3) and (6): the mean is 3, the mean of means would be 4.
  MirroredStrategy strategy(cpus(2));
  const auto losses = strategy.run([] {
    const Tensor tokens = own_id() == 0 ? at::tensor({1.f, 2.f, 3.f}) : at::tensor({6.f});
    const Tensor count = get_replica_context()->all_reduce(
        ReduceOp::kSum, at::tensor(static_cast<float>(tokens.size(0))));
    return tokens.sum() / count;
  });
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, losses).item<float>(), 3);
}

std::string said_by(const std::function<void()>& work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(UserIssues, Issue7_TheStepsOfAPassAreComputedAndTheFormulaIsPrinted) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_TRUE(says(strategy.summary(), "steps: ceil(rows / global batch)")) << strategy.summary();
  const auto text = [&](const data::Dataset<Tensor>& dataset, int64_t steps) {
    const auto distributed = strategy.distribute_dataset(dataset);
    EXPECT_EQ(distributed.cardinality(), steps);
    return distributed.plan()->steps_text();
  };
  EXPECT_TRUE(says(text(data::range(7).batch(3), 3), "ceil(7 rows / 3) = 3"));
  EXPECT_TRUE(
      says(text(data::range(7).batch(3, {.drop_remainder = true}), 2), "ceil(6 rows / 3) = 2"));
  EXPECT_TRUE(says(text(data::range(3).batch(2).concatenate(data::range(3).batch(2)), 4),
                   "4, a step for each batch"));
  EXPECT_TRUE(says(text(data::range(2).batch(2).repeat(), data::kInfinite), "without end"));
  EXPECT_TRUE(says(
      text(data::range(7).filter([](const Tensor& x) { return x.item<int64_t>() > 2; }).batch(2),
           data::kUnknown),
      "unknown before a pass has ended"));
  const auto made = strategy.distribute_datasets_from_function(
      [](const InputContext&) { return data::range(5).batch(1); });
  EXPECT_EQ(made.cardinality(), 3);
  EXPECT_TRUE(says(made.plan()->steps_text(), "ceil(5 batches / 2) = 3"));
}

TEST(UserIssues, Issue10_AnEmptyDatasetIsToldWhenItIsDistributed) {
  MirroredStrategy strategy(cpus(2));
  const std::string empty = said_by([&] {
    const auto dataset =
        strategy.distribute_dataset(data::range(3).batch(4, {.drop_remainder = true}));
    EXPECT_EQ(dataset.cardinality(), 0);
  });
  EXPECT_TRUE(says(empty, "the dataset has no elements")) << empty;
  MirroredStrategy wide(cpus(7));  // as no other test is: a text is said once in a process
  const std::string idle = said_by([&] { wide.distribute_dataset(data::range(8).batch(8)); });
  EXPECT_TRUE(says(idle, "a global batch of 8 gives rows to 4 of 7 replicas, in pieces of 2"))
      << idle;
  const std::string made = said_by([&] {
    strategy.distribute_datasets_from_function(
        [](const InputContext& context) {
          return data::range(1)
              .shard(context.num_input_pipelines(), context.input_pipeline_id())
              .batch(1);
        },
        {.replication_mode = InputReplicationMode::kPerReplica});
  });
  EXPECT_TRUE(says(made, "[dataset 1 of 2]: it has no elements")) << made;
  EXPECT_FALSE(says(made, "[dataset 0 of 2]")) << made;
  EXPECT_EQ(said_by([&] { strategy.distribute_dataset(data::range(4).batch(2)); }), "");
}

TEST(UserIssues, Issue19_GlobalAndReplicaBatchSizesAreBothSpelt) {
  const InputContext context(1, 0, 4);
  EXPECT_EQ(context.get_per_replica_batch_size(12), 3);
  EXPECT_EQ(context.num_replicas_in_sync(), 4);
  EXPECT_THROW(static_cast<void>(context.get_per_replica_batch_size(13)), InvalidArgument);
}

TEST(UserIssues, Issue19_BothSpellingsGiveTheSameStepsAndTheSummaryPrintsBoth) {
  MirroredStrategy strategy(cpus(2));
  const auto by_global = strategy.distribute_dataset(data::range(12).batch(4));
  const auto by_replica =
      strategy.distribute_datasets_from_function([](const InputContext& context) {
        return data::range(12).batch(context.get_per_replica_batch_size(4));
      });
  auto other = by_replica.iterator();
  for (auto batch : by_global) {
    const auto same = other.get_next();
    for (std::size_t r : {0, 1}) EXPECT_TENSOR_EQ(batch[r], same[r]);
  }
  EXPECT_FALSE(other.get_next_as_optional().has_value());
  EXPECT_TRUE(says(by_global.plan()->steps_text(),
                   "a global batch of 4, ceil(4 / 2) = 2 rows for each of 2 replicas"));
  EXPECT_TRUE(says(by_replica.plan()->steps_text(),
                   "a global batch of 2 * 2 = 4, 2 rows for each of 2 replicas"));
  EXPECT_TRUE(says(strategy.summary(), "ceil(global / 2) rows for each")) << strategy.summary();
  EXPECT_TRUE(says(strategy.summary(), "is a global one of 2 * batch")) << strategy.summary();
}

TEST(UserIssues, Issue23_AMapSeesTheBatchSizeThatWasAskedFor) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<bool> another_size{false};
  const auto dataset = data::range(8).batch(4).map([&](const Tensor& batch) {
    if (batch.size(0) != 4) another_size = true;
    return batch.reshape({4, 1});  // fails for any other size
  });
  int64_t steps = 0;
  for (auto batch : strategy.distribute_dataset(dataset)) {
    for (std::size_t r : {0, 1})
      EXPECT_TENSOR_EQ(batch[r],
                       (at::arange(2) + 4 * steps + 2 * static_cast<int64_t>(r)).reshape({2, 1}));
    ++steps;
  }
  EXPECT_EQ(steps, 2);
  EXPECT_FALSE(another_size);
}

TEST(UserIssues, Issue24_ABatchThatDoesNotDivideIsCutUnevenly) {
  MirroredStrategy strategy(cpus(2));
  auto dataset = strategy.distribute_dataset(data::range(5).batch(5));
  for (auto batch : dataset) {
    EXPECT_EQ(batch[0].size(0), 3);
    EXPECT_EQ(batch[1].size(0), 2);
  }
}

TEST(UserIssues, Issue25_ThePartsOfEveryStepAddUpToTheBatch) {
  for (int replicas : {1, 2, 3, 4}) {
    MirroredStrategy strategy(cpus(replicas));
    auto dataset = strategy.distribute_dataset(data::range(23).batch(6));
    std::vector<int64_t> sizes;
    std::vector<int64_t> seen;
    for (auto batch : dataset) {
      int64_t rows = 0;
      for (std::size_t r = 0; r < batch.size(); ++r) {
        rows += batch[r].size(0);
        for (int64_t i = 0; i < batch[r].size(0); ++i)
          seen.push_back(batch[r][i].template item<int64_t>());
      }
      sizes.push_back(rows);
    }
    EXPECT_EQ(sizes, (std::vector<int64_t>{6, 6, 6, 5}));
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
    EXPECT_EQ(seen.size(), 23u);
  }
}

TEST(UserIssues, Issue33_ReplicasDrawApartAndStartFromOneValue) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const auto weights = strategy.run([] {
    const Variable made(at::empty({8}).uniform_(0, 1, get_replica_context()->generator()));
    return std::pair(made.read_value(),
                     at::empty({8}).uniform_(0, 1, get_replica_context()->generator()));
  });
  EXPECT_TENSOR_EQ(weights.first[0], weights.first[1]);
  EXPECT_FALSE(at::equal(weights.second[0], weights.second[1]));
}

}  // namespace
}  // namespace tutti::distribute
