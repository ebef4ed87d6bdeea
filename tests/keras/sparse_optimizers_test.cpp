// The optimizers with gradients of lookups: the numbers of the dense ones.

#include <gtest/gtest.h>

#include "support/expect.h"
#include "support/workers.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {
namespace {

struct Case {
  std::string name;
  Optimizer (*make)();
  bool rows_only = false;  // rows that nobody looked up keep their values and slots
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

const Case kCases[] = {
    {"SGD", [] { return Optimizer(SGD({.learning_rate = 0.1})); }, true},
    {"SGDClipnorm", [] { return Optimizer(SGD({.learning_rate = 0.1, .clipnorm = 0.5})); }, true},
    {"SGDGlobalClipnorm",
     [] { return Optimizer(SGD({.learning_rate = 0.1, .global_clipnorm = 0.5})); }, true},
    {"SGDWeightDecay", [] { return Optimizer(SGD({.learning_rate = 0.1, .weight_decay = 0.1})); }},
    {"Momentum", [] { return Optimizer(SGD({.learning_rate = 0.1, .momentum = 0.9})); }},
    {"Nesterov",
     [] { return Optimizer(SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})); }},
    {"Adam", [] { return Optimizer(Adam({.learning_rate = 0.01})); }},
    {"AdamClipnorm", [] { return Optimizer(Adam({.learning_rate = 0.01, .clipnorm = 0.5})); }},
    {"AdamW", [] { return Optimizer(AdamW({.learning_rate = 0.01})); }},
    {"RMSprop", [] { return Optimizer(RMSprop({.learning_rate = 0.01})); }},
    {"RMSpropMomentum",
     [] { return Optimizer(RMSprop({.learning_rate = 0.01, .momentum = 0.9, .centered = true})); }},
    {"Adagrad", [] { return Optimizer(Adagrad({.learning_rate = 0.1})); }, true},
    {"AdagradWeightDecay",
     [] { return Optimizer(Adagrad({.learning_rate = 0.1, .weight_decay = 0.1})); }},
    {"Adamax", [] { return Optimizer(Adamax({.learning_rate = 0.01})); }},
    {"Nadam", [] { return Optimizer(Nadam({.learning_rate = 0.01})); }},
    {"Adadelta", [] { return Optimizer(Adadelta({.learning_rate = 1})); }},
    {"Ftrl",
     [] {
       return Optimizer(Ftrl({.learning_rate = 0.1, .l2_shrinkage_regularization_strength = 0.1}));
     }},
    {"Lion", [] { return Optimizer(Lion({.learning_rate = 0.01})); }},
    {"Lamb", [] { return Optimizer(Lamb({.learning_rate = 0.01, .clipnorm = 0.5})); }},
    {"Adafactor", [] { return Optimizer(Adafactor({.learning_rate = 0.01, .clipvalue = 0.5})); }},
    {"Muon", [] { return Optimizer(Muon({.learning_rate = 0.01})); }},
    {"ScheduleFreeAdamW", [] { return Optimizer(ScheduleFreeAdamW({.learning_rate = 0.01})); }},
    {"SGDAccumulation",
     [] { return Optimizer(SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 2})); }, true},
    {"LossScale", [] { return Optimizer(LossScaleOptimizer(Adam({.learning_rate = 0.01}))); }},
};

Tensor initial() { return at::arange(20 * 3, at::kFloat).view({20, 3}) / 60; }

/// Three steps on replicas that share out the ids; with four replicas one has none in step 1.
/// The table and its slots.
std::vector<Tensor> trained_under(distribute::Strategy& strategy, const Case& test, bool lookup) {
  const int replicas = strategy.num_replicas_in_sync();
  auto scope = strategy.scope();
  Variable table(initial(), {.name = "table"});
  Optimizer optimizer = test.make();
  for (int step = 0; step < 3; ++step) {
    strategy.run([&] {
      const int replica = distribute::get_replica_context()->replica_id_in_sync_group();
      const Tensor all = at::tensor(
          step == 1 ? std::vector<int64_t>{9, 9, 2} : std::vector<int64_t>{1, 9, 1, 1, 17, 4, 9},
          at::kLong);
      const int64_t begin = all.numel() * replica / replicas;
      const int64_t end = all.numel() * (replica + 1) / replicas;
      const Tensor ids = all.narrow(0, begin, end - begin);
      GradientTape tape;
      const Tensor rows =
          lookup ? nn::embedding_lookup(table, ids) : table.value().index_select(0, ids);
      const Tensor loss = optimizer.scale_loss((rows.square() * (ids.unsqueeze(1) + 1)).sum());
      optimizer.apply_gradients({tape.gradient(loss, table)}, {table});
    });
  }
  std::vector<Tensor> results{table.read_value()};
  for (const std::string& name : optimizer.slot_names()) {
    for (const Variable& slot : optimizer.slots(name)) results.push_back(slot.read_value());
  }
  return results;
}

std::vector<Tensor> trained(const Case& test, int replicas, bool lookup) {
  distribute::MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  distribute::MirroredStrategy strategy(options);
  return trained_under(strategy, test, lookup);
}

class SparseOptimizers : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, SparseOptimizers, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(SparseOptimizers, TrainAsOnDenseGradientsWithAnyNumberOfReplicas) {
  const auto dense = trained(GetParam(), 1, false);
  for (const int replicas : {1, 2, 4}) {
    const auto sparse = trained(GetParam(), replicas, true);
    ASSERT_EQ(sparse.size(), dense.size());
    for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_TENSOR_NEAR(sparse[i], dense[i], 1e-5);
  }
}

TEST_P(SparseOptimizers, TwoWorkersTrainToTheBitsOfTwoReplicasOfOneStrategy) {
  for (const bool lookup : {false, true}) {
    const auto wanted = trained(GetParam(), 2, lookup);
    testing::on_workers(2, 1, [&](const std::shared_ptr<distribute::Strategy>& strategy) {
      const auto found = trained_under(*strategy, GetParam(), lookup);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TENSOR_EQ(found[i], wanted[i]);
    });
  }
}

TEST_P(SparseOptimizers, TwoWorkersOfTwoReplicasTrainAsFourReplicas) {
  const auto wanted = trained(GetParam(), 4, true);
  testing::on_workers(2, 2, [&](const std::shared_ptr<distribute::Strategy>& strategy) {
    const auto found = trained_under(*strategy, GetParam(), true);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TENSOR_NEAR(found[i], wanted[i], 1e-5);
  });
}

TEST_P(SparseOptimizers, RulesThatKeepNothingLeaveOtherRowsAlone) {
  // Row 4 is looked up in the first step, row 3 never.
  const auto sparse = trained(GetParam(), 2, true);
  EXPECT_FALSE(sparse[0][4].equal(initial()[4]));
  if (GetParam().rows_only) {
    EXPECT_TENSOR_EQ(sparse[0][3], initial()[3]);
  }
}

}  // namespace
}  // namespace tutti::keras::optimizers
