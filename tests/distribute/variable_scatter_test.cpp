// Rows: scatter_add and its like, under every kind of strategy.

#include "distribute/variable_settings.h"

namespace tutti::distribute::testing {
namespace {

Variable zeros(int64_t n, Agg aggregation, at::ScalarType dtype = at::kFloat) {
  return Variable(at::zeros({n}, dtype), {.name = "table", .aggregation = aggregation});
}

IndexedSlices slices(const std::vector<double>& values, const std::vector<int64_t>& indices,
                     at::ScalarType dtype = at::kFloat) {
  return {at::tensor(values, at::kDouble).to(dtype), at::tensor(indices, at::kLong), {}};
}

class VariableScatter : public UnderEachStrategy {};
INSTANTIATE_TEST_SUITE_P(Strategies, VariableScatter, ::testing::ValuesIn(all_settings()),
                         setting_name);

/// Rows {0: 0, 1: 1} on replica 0, {1: 1, 2: 2} on every other.
IndexedSlices overlapping(at::ScalarType dtype = at::kFloat) {
  return replica_id() == 0 ? slices({0, 1}, {0, 1}, dtype) : slices({1, 2}, {1, 2}, dtype);
}

TEST_P(VariableScatter, Spec37_SubUnderMeanDividesTheValuesOfAllReplicas) {
  Variable v = zeros(3, Agg::kMean);
  const auto read = strategy_->run([&] { return v.scatter_sub(overlapping()).clone(); });
  const double n = replicas();
  const Values expected{0, -1, n == 1 ? 0 : -2 * (n - 1) / n};
  for (const Tensor& each : read.values()) EXPECT_EQ(rows(each), expected);
  for (const Tensor& each : v.components()) EXPECT_EQ(rows(each), expected);
}

TEST_P(VariableScatter, Spec38_AddUnderSumAddsTheRowsOfAllReplicas) {
  Variable v = zeros(3, Agg::kSum, at::kInt);
  strategy_->run([&] { v.scatter_add(overlapping(at::kInt)); });
  const double n = replicas();
  for (const Tensor& each : v.components()) EXPECT_EQ(rows(each), (Values{0, n, 2 * (n - 1)}));
}

TEST_P(VariableScatter, Spec39_MinMaxAndUpdateCannotBeJoined) {
  for (Agg aggregation : {Agg::kSum, Agg::kMean}) {
    Variable v = zeros(3, aggregation);
    if (v.type_name() == "Variable") {
      EXPECT_EQ(rows(v.scatter_max(slices({3}, {1}))), (Values{0, 3, 0}));
      continue;
    }
    EXPECT_ERROR(strategy_->run([&] { v.scatter_min(slices({1}, {1})); }), Unimplemented,
                 "scatter_min [table]");
    EXPECT_ERROR(strategy_->run([&] { v.scatter_max(slices({1}, {1})); }), Unimplemented,
                 "ONLY_FIRST_REPLICA");
    EXPECT_ERROR(v.scatter_update(slices({1}, {1})), Unimplemented, "scatter_update");
    EXPECT_EQ(rows(v.value()), (Values{0, 0, 0}));
  }
  Variable low(at::full({3}, 2.0), {.name = "low", .aggregation = Agg::kOnlyFirstReplica});
  Variable high = zeros(3, Agg::kOnlyFirstReplica);
  Variable set = zeros(3, Agg::kOnlyFirstReplica);
  strategy_->run([&] {
    low.scatter_min(slices({1.0 + replica_id()}, {1}));
    high.scatter_max(slices({1.0 + replica_id()}, {replica_id() % 3}));
    set.scatter_update(slices({3.0 + replica_id()}, {1}));
  });
  for (const Tensor& each : low.components()) EXPECT_EQ(rows(each), (Values{2, 1, 2}));
  for (const Tensor& each : high.components()) EXPECT_EQ(rows(each), (Values{1, 0, 0}));
  for (const Tensor& each : set.components()) EXPECT_EQ(rows(each), (Values{0, 3, 0}));
}

TEST_P(VariableScatter, Spec40_OutsideReplicasEveryComponentChanges) {
  Variable v(at::ones({3}), {.name = "v", .aggregation = Agg::kSum});
  EXPECT_EQ(rows(v.scatter_add(slices({2}, {0}))), (Values{3, 1, 1}));
  for (const Tensor& each : v.components()) EXPECT_EQ(rows(each), (Values{3, 1, 1}));
  Variable none(at::ones({3}), {.name = "none"});
  none.scatter_min(slices({0.5, 2}, {2, 1}));
  for (const Tensor& each : none.components()) EXPECT_EQ(rows(each), (Values{1, 1, 0.5}));
}

TEST_P(VariableScatter, Spec48_OnReadHasNoScatterInAnyContext) {
  Variable v(at::zeros({3}), {.name = "v", .synchronization = Sync::kOnRead});
  if (v.type_name() != "SyncOnReadVariable") {
    EXPECT_EQ(rows(v.scatter_add(slices({1}, {2}))), (Values{0, 0, 1}));
    return;
  }
  const IndexedSlices one = slices({1}, {1});
  using Method = Tensor (Variable::*)(const IndexedSlices&);
  for (Method method : {&Variable::scatter_add, &Variable::scatter_sub, &Variable::scatter_mul,
                        &Variable::scatter_div, &Variable::scatter_min, &Variable::scatter_max,
                        &Variable::scatter_update}) {
    EXPECT_ERROR((v.*method)(one), Unimplemented, "ON_READ");
    EXPECT_ERROR(strategy_->run([&] { (v.*method)(one); }), Unimplemented, "ON_READ");
  }
}

TEST_P(VariableScatter, WithoutAggregationEachReplicaChangesItsOwn) {
  Variable v = zeros(4, Agg::kNone);
  auto scatter = [&] { v.scatter_add(slices({replica_id() + 1.0, 10}, {replica_id() % 4, 3})); };
  if (is_central()) {
    EXPECT_ERROR(strategy_->run(scatter), InvalidArgument, "aggregation NONE");
    EXPECT_EQ(rows(v.value()), (Values{0, 0, 0, 0}));
    return;
  }
  strategy_->run(scatter);
  for (int id = 0; id < replicas(); ++id) {
    Values expected{0, 0, 0, 10};
    expected[static_cast<std::size_t>(id)] += id + 1;
    EXPECT_EQ(rows(v.components()[static_cast<std::size_t>(id)]), expected);
  }
}

// ---- what is the same under all strategies

Tensor table() { return at::arange(1, 9, at::kFloat).view({4, 2}); }

TEST(Scatter, DuplicatesAreAppliedOneAfterTheOther) {
  const IndexedSlices twice{
      at::tensor({2.0F, 3.0F, 4.0F, 5.0F}).view({2, 2}), at::tensor({1, 1}, at::kLong), {}};
  auto row_after = [&](Tensor (Variable::*method)(const IndexedSlices&)) {
    Variable v(table());
    (v.*method)(twice);
    EXPECT_TRUE(v.value()[0].equal(table()[0]));
    return rows(v.value()[1]);  // was 3, 4
  };
  EXPECT_EQ(row_after(&Variable::scatter_add), (Values{3 + 2 + 4, 4 + 3 + 5}));
  EXPECT_EQ(row_after(&Variable::scatter_sub), (Values{3 - 2 - 4, 4 - 3 - 5}));
  EXPECT_EQ(row_after(&Variable::scatter_mul), (Values{3 * 2 * 4, 4 * 3 * 5}));
  EXPECT_EQ(row_after(&Variable::scatter_div),
            (Values{3.0 / 2 / 4, rows(at::tensor(4.0F / 3.0F / 5.0F))[0]}));
  EXPECT_EQ(row_after(&Variable::scatter_min), (Values{2, 3}));
  EXPECT_EQ(row_after(&Variable::scatter_max), (Values{4, 5}));
  EXPECT_EQ(row_after(&Variable::scatter_update), (Values{4, 5}));
}

TEST(Scatter, DistinctRowsAreEachCombinedOnce) {
  auto after = [&](Tensor (Variable::*method)(const IndexedSlices&)) {
    Variable v(at::tensor({6, 8, 9, 7}, at::kInt));
    (v.*method)(slices({4, 2, 9}, {3, 0, 1}, at::kInt));
    return rows(v.value());
  };
  EXPECT_EQ(after(&Variable::scatter_mul), (Values{12, 72, 9, 28}));
  EXPECT_EQ(after(&Variable::scatter_div), (Values{3, 0, 9, 1}));
  EXPECT_EQ(after(&Variable::scatter_min), (Values{2, 8, 9, 4}));
  EXPECT_EQ(after(&Variable::scatter_max), (Values{6, 9, 9, 7}));
  EXPECT_EQ(after(&Variable::scatter_update), (Values{2, 9, 9, 4}));
}

TEST(Scatter, MulUnderSumMultipliesByTheRowsOfAllReplicasInTurn) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v(at::ones({2}), {.name = "v", .aggregation = Agg::kSum});
  strategy->run([&] { v.scatter_mul(slices({replica_id() + 2.0}, {1})); });
  EXPECT_EQ(rows(v.components()[0]), (Values{1, 6}));
  EXPECT_TRUE(v.is_shared());
}

TEST(Scatter, WhatDoesNotFitIsRefusedByName) {
  Variable v = zeros(3, Agg::kNone);
  EXPECT_ERROR(v.scatter_add(slices({1}, {3})), InvalidArgument, "scatter_add [table]");
  EXPECT_ERROR(v.scatter_add(slices({1}, {-1})), InvalidArgument, "-1");
  EXPECT_ERROR(v.scatter_add(slices({1, 2}, {1})), InvalidArgument, "table");
  EXPECT_ERROR(v.scatter_add(slices({1}, {1}, at::kDouble)), InvalidArgument, "float64");
  EXPECT_ERROR(v.scatter_add({at::ones({1}), at::tensor({1}, at::kLong), {4}}), InvalidArgument,
               "(4,)");
  EXPECT_ERROR(v.scatter_add(IndexedSlices{}), InvalidArgument, "without values");
  Variable count = zeros(3, Agg::kNone, at::kInt);
  EXPECT_ERROR(count.scatter_div(slices({0}, {1}, at::kInt)), InvalidArgument, "divided by 0");
  Variable flag(at::zeros({3}, at::kBool), {.name = "flag"});
  EXPECT_ERROR(flag.scatter_add(slices({1}, {1}, at::kBool)), InvalidArgument, "bool");
  EXPECT_EQ(rows(flag.scatter_update(slices({1}, {1}, at::kBool))), (Values{0, 1, 0}));
  EXPECT_EQ(rows(v.value()), (Values{0, 0, 0}));
}

TEST(Scatter, IndicesMayBeInt32AndNoRowsAreNoChange) {
  Variable v = zeros(3, Agg::kNone);
  v.scatter_add({at::ones({1}), at::tensor({2}, at::kInt), {3}});
  v.scatter_mul({at::ones({0}), at::zeros({0}, at::kLong), {3}});
  EXPECT_EQ(rows(v.value()), (Values{0, 0, 1}));
}

}  // namespace
}  // namespace tutti::distribute::testing
