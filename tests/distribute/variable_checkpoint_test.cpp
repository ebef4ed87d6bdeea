// What a checkpoint keeps of a variable, and how it comes back under any strategy.

#include "distribute/variable_checkpoint.h"

#include "distribute/variable_settings.h"

namespace tutti::distribute::testing {
namespace {

using tutti::internal::restore_value;
using tutti::internal::saved_value;

class VariableCheckpoint : public UnderEachStrategy {};
INSTANTIATE_TEST_SUITE_P(Strategies, VariableCheckpoint, ::testing::ValuesIn(all_settings()),
                         setting_name);

Variable vector_of(Sync synchronization, Agg aggregation) {
  return Variable(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}),
                  {.name = "v", .synchronization = synchronization, .aggregation = aggregation});
}

TEST_P(VariableCheckpoint, Spec28_WhatWasSavedComesBack) {
  for (Sync synchronization : {Sync::kOnRead, Sync::kOnWrite}) {
    for (Agg aggregation : {Agg::kSum, Agg::kMean, Agg::kOnlyFirstReplica}) {
      Variable v = vector_of(synchronization, aggregation);
      v.assign(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}));
      const Tensor saved = saved_value(v);
      v.assign(at::tensor({4.0F, 3.0F, 2.0F, 1.0F}));
      restore_value(v, saved);
      EXPECT_EQ(rows(saved), (Values{1, 2, 3, 4}));
      EXPECT_EQ(rows(v.read_value()), (Values{1, 2, 3, 4}));
    }
  }
}

TEST_P(VariableCheckpoint, Spec36_AMirroredVariableAndAPlainOneTakeEachOthersValue) {
  std::vector<Variable> variables;
  for (Agg aggregation : {Agg::kNone, Agg::kSum, Agg::kMean, Agg::kOnlyFirstReplica})
    variables.push_back(vector_of(Sync::kOnWrite, aggregation));
  scope_.exit();
  for (const Variable& v : variables) {
    Variable plain(at::zeros({4}), {.name = "plain"});
    restore_value(plain, saved_value(v));
    EXPECT_EQ(rows(plain.value()), (Values{1, 2, 3, 4}));
    plain.assign_add(1);
    restore_value(v, saved_value(plain));
    for (const Tensor& each : v.components()) EXPECT_EQ(rows(each), (Values{2, 3, 4, 5}));
  }
}

TEST_P(VariableCheckpoint, OnReadIsSavedAsItsAggregate) {
  Variable v = make(Sync::kOnRead, Agg::kSum);
  strategy_->run([&] { v.assign(id_tensor() + 1); });
  const double n = replicas();
  EXPECT_EQ(saved_value(v).item<double>(), n * (n + 1) / 2);
}

TEST_P(VariableCheckpoint, IntegersOfAnOnReadSumLoseNothing) {
  Variable v(at::zeros({6}, at::kLong),
             {.name = "v", .synchronization = Sync::kOnRead, .aggregation = Agg::kSum});
  const Tensor numbers = at::tensor(std::vector<int64_t>{5, -5, 0, 7, -1, (int64_t{1} << 53) + 1});
  restore_value(v, numbers);
  EXPECT_TRUE(saved_value(v).equal(numbers));
}

TEST(VariableCheckpointShares, TheFirstComponentsTakeTheRemainder) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  Variable v(at::zeros({}, at::kInt),
             {.name = "v", .synchronization = Sync::kOnRead, .aggregation = Agg::kSum});
  restore_value(v, at::full({}, 5, at::kInt));
  EXPECT_EQ(components(v), (Values{2, 2, 1}));
  restore_value(v, at::full({}, -5, at::kInt));
  EXPECT_EQ(components(v), (Values{-1, -2, -2}));
  Variable real = make(Sync::kOnRead, Agg::kSum);
  restore_value(real, tensor_of(6));
  EXPECT_EQ(components(real), (Values{2, 2, 2}));
}

TEST(VariableCheckpointShares, OtherNumbersOfReplicasGetSharesOfTheSameValue) {
  Tensor saved;
  {
    auto strategy = mirrored(2);
    auto scope = strategy->scope();
    Variable v = make(Sync::kOnRead, Agg::kSum);
    strategy->run([&] { v.assign(id_tensor() + 1); });
    saved = saved_value(v);
  }
  auto strategy = mirrored(4);
  auto scope = strategy->scope();
  Variable v = make(Sync::kOnRead, Agg::kSum);
  restore_value(v, saved);
  EXPECT_EQ(components(v), (Values{0.75, 0.75, 0.75, 0.75}));
}

TEST(VariableCheckpointShares, WhatCannotBeSavedOrDoesNotFitIsRefused) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  EXPECT_ERROR(saved_value(make(Sync::kOnRead, Agg::kNone)), InvalidArgument, "aggregation NONE");
  Variable v(at::zeros({2}, at::kInt),
             {.name = "v", .synchronization = Sync::kOnRead, .aggregation = Agg::kSum});
  EXPECT_ERROR(restore_value(v, at::zeros({3}, at::kInt)), InvalidArgument, "(3,)");
  EXPECT_ERROR(restore_value(v, at::zeros({2})), InvalidArgument, "float32");
  EXPECT_ERROR(strategy->run([&] { saved_value(v); }), FailedPrecondition, "inside a replica");
}

}  // namespace
}  // namespace tutti::distribute::testing
