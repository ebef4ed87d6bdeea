// The matrix of synchronization x aggregation x context x method, under every kind of strategy.

#include "distribute/variable_settings.h"

namespace tutti::distribute::testing {
namespace {

class VariableMatrix : public UnderEachStrategy {
 protected:
  /// Replicas may not assign a variable of this aggregation: one copy for all, nothing to do with
  /// several values.
  bool refuses_in_replicas(Agg aggregation) const {
    return is_central() && aggregation == Agg::kNone;
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, VariableMatrix, ::testing::ValuesIn(all_settings()),
                         setting_name);

const std::vector<Agg> kAllAggregations{Agg::kNone, Agg::kSum, Agg::kMean, Agg::kOnlyFirstReplica};

TEST_P(VariableMatrix, Spec26_AVariableHasAValueFromItsConstructorOn) {
  EXPECT_EQ(components(make(Sync::kAuto, Agg::kNone, 7)), everywhere(7));
  EXPECT_EQ(components(make(Sync::kOnRead, Agg::kSum, 7)), everywhere(7));
}

TEST_P(VariableMatrix, Spec29_NumbersAreAssignedToEveryComponentInAndOutsideReplicas) {
  for (Agg aggregation : kAllAggregations) {
    Variable v = make(Sync::kOnWrite, aggregation, 0);
    v.assign(1);
    EXPECT_EQ(components(v), everywhere(1));
    v.assign_add(1);
    v.assign_sub(-1);
    EXPECT_EQ(components(v), everywhere(3));
    if (aggregation == Agg::kSum || refuses_in_replicas(aggregation)) continue;
    strategy_->run([&] { v.assign(1); });
    EXPECT_EQ(components(v), everywhere(1));
    strategy_->run([&] { v.assign_add(1); });
    strategy_->run([&] { v.assign_sub(-1); });
    EXPECT_EQ(components(v), everywhere(3));
  }
}

TEST_P(VariableMatrix, Spec30_AnotherVariableMayBeAssigned) {
  Variable two = make(Sync::kAuto, Agg::kNone, 2);
  for (Agg aggregation : {Agg::kNone, Agg::kMean, Agg::kOnlyFirstReplica}) {
    Variable v = make(Sync::kOnWrite, aggregation, 0);
    if (!refuses_in_replicas(aggregation)) {
      strategy_->run([&] { v.assign(two); });
      EXPECT_EQ(components(v), everywhere(2));
    }
    v.assign_add(two);
    v.assign_sub(two);
    v.assign(two);
    EXPECT_EQ(components(v), everywhere(2));
  }
  Variable sum = make(Sync::kOnWrite, Agg::kSum, 0);
  if (replicas() > 1) {
    EXPECT_ERROR(strategy_->run([&] { sum.assign(two); }), InvalidArgument, "unclear whether");
    EXPECT_EQ(components(sum), everywhere(0));
  }
  strategy_->run([&] { sum.assign(two.value()); });  // a tensor of each replica
  EXPECT_EQ(components(sum), everywhere(2 * replicas()));
}

TEST_P(VariableMatrix, Spec31_APerReplicaIsAssignedPieceByPieceInsideReplicas) {
  const auto pieces =
      strategy_->distribute_values_from_function([](ValueContext) { return tensor_of(2); });
  for (const auto& [aggregation, expected] :
       {std::pair{Agg::kSum, 2.0 * replicas()}, {Agg::kMean, 2.0}, {Agg::kOnlyFirstReplica, 2.0}}) {
    Variable v = make(Sync::kOnWrite, aggregation, 0);
    strategy_->run([&] { v.assign(pieces); });
    EXPECT_EQ(components(v), everywhere(expected));
  }
}

TEST_P(VariableMatrix, APerReplicaOutsideReplicasIsRefusedUnlessItIsOneValue) {
  const auto pieces = strategy_->distribute_values_from_function(
      [](ValueContext context) { return tensor_of(context.replica_id_in_sync_group + 5); });
  for (Sync synchronization : {Sync::kOnWrite, Sync::kOnRead}) {
    for (Agg aggregation : kAllAggregations) {
      Variable v = make(synchronization, aggregation);
      if (replicas() == 1) {
        v.assign(pieces);
        EXPECT_EQ(components(v), everywhere(5));
        continue;
      }
      EXPECT_ERROR(v.assign(pieces), InvalidArgument, "PerReplica");
      EXPECT_ERROR(v.assign_add(pieces), InvalidArgument, "v");
      EXPECT_ERROR(v.assign_sub(pieces), InvalidArgument, "v");
      EXPECT_EQ(components(v), everywhere(10));
    }
  }
}

TEST_P(VariableMatrix, AMirroredValueIsOneValueOutsideReplicasAndAmbiguousUnderSumInside) {
  const Mirrored<Tensor> three(
      std::vector<Tensor>(static_cast<std::size_t>(strategy_->num_local_replicas()), tensor_of(3)));
  Variable v = make(Sync::kOnWrite, Agg::kMean);
  v.assign(three);
  strategy_->run([&] { v.assign_add(three); });
  EXPECT_EQ(components(v), everywhere(6));
  if (replicas() == 1) return;
  Variable sum = make(Sync::kOnWrite, Agg::kSum);
  EXPECT_ERROR(strategy_->run([&] { sum.assign_sub(three); }), InvalidArgument, "Mirrored");
}

TEST_P(VariableMatrix, Spec32_ReplicasReadTheirComponentAndOutsideEveryComponentIsTheValue) {
  for (Agg aggregation : kAllAggregations) {
    Variable v = make(Sync::kOnWrite, aggregation, 7);
    EXPECT_EQ(replica_reads(*strategy_, v), Values(static_cast<std::size_t>(replicas()), 7));
    EXPECT_EQ(v.read_value().item<double>(), 7);
    EXPECT_EQ(components(v), everywhere(7));
  }
}

TEST_P(VariableMatrix, Spec33_AnAssignmentOutsideTheScopeReachesEveryComponent) {
  Variable v = make(Sync::kAuto, Agg::kNone);
  scope_.exit();
  v.assign(3);
  EXPECT_EQ(components(v), everywhere(3));
  EXPECT_EQ(v.value().item<double>(), 3);
}

TEST_P(VariableMatrix, Spec35_OnlyTheFirstReplicasValueCounts) {
  Variable v = make(Sync::kOnWrite, Agg::kOnlyFirstReplica);
  strategy_->run([&] { v.assign(id_tensor()); });
  EXPECT_EQ(replica_reads(*strategy_, v), Values(static_cast<std::size_t>(replicas()), 0));
  strategy_->run([&] { v.assign(replica_id() + 4); });  // a number of each replica likewise
  EXPECT_EQ(components(v), everywhere(4));
}

TEST_P(VariableMatrix, Spec41_OnReadIsAssignedInReplicasUnderEveryAggregation) {
  if (is_central()) return;
  for (Agg aggregation : kAllAggregations) {
    Variable v = make(Sync::kOnRead, aggregation, 0);
    strategy_->run([&] {
      v.assign(id_tensor());
      v.assign_add(tensor_of(5));
      v.assign_sub(tensor_of(2));
      v.assign_add(1);
    });
    Values expected;
    for (int id = 0; id < replicas(); ++id) expected.push_back(id + 4);
    EXPECT_EQ(components(v), expected);
  }
}

TEST_P(VariableMatrix, Spec42_OnReadMeanAndFirstAreAssignedOutsideReplicas) {
  for (Agg aggregation : {Agg::kMean, Agg::kOnlyFirstReplica}) {
    Variable v = make(Sync::kOnRead, aggregation);
    EXPECT_EQ(v.assign(3).item<double>(), 3);
    v.assign_add(tensor_of(2));
    v.assign_sub(1);
    EXPECT_EQ(components(v), everywhere(4));
  }
}

TEST_P(VariableMatrix, OnReadNoneIsAssignedOutsideReplicasAndReadInsideOnly) {
  Variable v = make(Sync::kOnRead, Agg::kNone);
  EXPECT_EQ(v.assign(3).item<double>(), 3);
  v.assign_add(tensor_of(2));
  EXPECT_EQ(components(v), everywhere(5));
  EXPECT_EQ(replica_reads(*strategy_, v), Values(static_cast<std::size_t>(replicas()), 5));
  if (v.type_name() == "SyncOnReadVariable") {
    EXPECT_ERROR(v.value(), InvalidArgument, "aggregation NONE");
  } else {
    EXPECT_EQ(v.value().item<double>(), 5);
  }
}

TEST_P(VariableMatrix, Spec43_OnReadSumTakesNoDifferencesOutsideReplicas) {
  Variable v = make(Sync::kOnRead, Agg::kSum);
  if (v.type_name() != "SyncOnReadVariable") {
    v.assign_add(3);
    EXPECT_EQ(components(v), everywhere(13));
    return;
  }
  EXPECT_ERROR(v.assign_add(1), InvalidArgument, "unclear how the change is shared");
  EXPECT_ERROR(v.assign_sub(tensor_of(1)), InvalidArgument, "assign_sub [v]");
  EXPECT_EQ(components(v), everywhere(10));
  v.assign(6);
  EXPECT_EQ(components(v), everywhere(6.0 / replicas()));
  EXPECT_EQ(v.value().item<double>(), 6);
}

TEST_P(VariableMatrix, Spec44_AnIntegerNumberIsConvertedToTheVariablesDtype) {
  Variable v = make(Sync::kOnRead, Agg::kMean, 0.5);
  v.assign(2);
  EXPECT_EQ(v.dtype(), at::kFloat);
  EXPECT_EQ(components(v), everywhere(2));
  strategy_->run([&] { v.assign_add(int64_t{3}); });
  EXPECT_EQ(components(v), everywhere(5));
}

TEST_P(VariableMatrix, Spec45_OnReadIsAggregatedWhereItIsReadAcrossReplicas) {
  const double n = replicas();
  for (const auto& [aggregation, expected] : {std::pair{Agg::kSum, n * (n - 1) / 2},
                                              {Agg::kMean, (n - 1) / 2},
                                              {Agg::kOnlyFirstReplica, 0.0}}) {
    Variable v = make(Sync::kOnRead, aggregation);
    strategy_->run([&] { v.assign(id_tensor()); });
    EXPECT_EQ(v.read_value().item<double>(), expected);
    EXPECT_EQ(v.value().item<double>(), expected);
    const Tensor converted = v;
    EXPECT_EQ(converted.item<double>(), expected);
  }
}

TEST_P(VariableMatrix, Spec46_ReplicasGetTheirOwnValueOfAnOnReadVariableBack) {
  if (is_central()) return;
  Variable v = make(Sync::kOnRead, Agg::kSum);
  const auto given = strategy_->run([&] { return v.assign(id_tensor()).clone(); });
  for (int id = 0; id < replicas(); ++id)
    EXPECT_EQ(given[static_cast<std::size_t>(id)].item<double>(), id);
}

TEST_P(VariableMatrix, Spec47_ArithmeticWithAnOnReadVariableIsWithWhatIsReadThere) {
  if (is_central()) return;
  Variable v = make(Sync::kOnRead, Agg::kMean);
  strategy_->run([&] { v.assign(id_tensor()); });
  EXPECT_EQ((v + 1).item<double>(), (replicas() - 1) / 2.0 + 1);
  const auto sums = strategy_->run([&] { return v + 1; });
  for (int id = 0; id < replicas(); ++id)
    EXPECT_EQ(sums[static_cast<std::size_t>(id)].item<double>(), id + 1);
}

TEST_P(VariableMatrix, Spec49_MeanOfIntegersIsRefusedWhereVariablesAreMirrored) {
  auto make_mean = [] {
    return Variable(at::full({}, 3, at::kInt), {.name = "v", .aggregation = Agg::kMean});
  };
  if (strategy_->name() == "MirroredStrategy") {
    EXPECT_ERROR(make_mean(), InvalidArgument, "expected a floating dtype");
    return;
  }
  Variable v = make_mean();
  strategy_->run([&] { v.assign_add(2); });  // equal numbers have a mean
  EXPECT_EQ(components(v), everywhere(5));
  if (is_central()) {
    EXPECT_ERROR(strategy_->run([&] { v.assign(at::full({}, 2, at::kInt)); }), InvalidArgument,
                 "MEAN of int32");
    EXPECT_EQ(components(v), everywhere(5));
  }
}

TEST_P(VariableMatrix, Spec53_WhatNoSynchronizationOrAggregationIsIsRefused) {
  EXPECT_ERROR(make(static_cast<Sync>(9), Agg::kNone), InvalidArgument, "synchronization 9");
  EXPECT_ERROR(make(Sync::kAuto, static_cast<Agg>(9)), InvalidArgument, "aggregation 9");
  if (strategy_->name() == "MirroredStrategy") {
    EXPECT_ERROR(make(Sync::kNone, Agg::kNone), InvalidArgument, "synchronization NONE");
    EXPECT_EQ(make(Sync::kAuto, Agg::kNone).synchronization(), Sync::kOnWrite);
  } else {
    EXPECT_EQ(make(Sync::kNone, Agg::kNone).synchronization(), Sync::kNone);
    EXPECT_EQ(make(Sync::kAuto, Agg::kNone).synchronization(), Sync::kAuto);
  }
}

TEST_P(VariableMatrix, Spec56_OnReadIsNotTrainableUnlessItIsSaidSo) {
  EXPECT_FALSE(make(Sync::kOnRead, Agg::kSum).trainable());
  EXPECT_TRUE(make(Sync::kOnWrite, Agg::kNone).trainable());
  Variable said(at::zeros({}), {.trainable = true, .synchronization = Sync::kOnRead});
  EXPECT_TRUE(said.trainable());
  Variable count(at::zeros({}, at::kLong), {.trainable = true});
  EXPECT_FALSE(count.trainable());
  count.set_trainable(true);
  EXPECT_FALSE(count.trainable());
}

TEST_P(VariableMatrix, Spec68_ANumberUnderSumInsideReplicasIsAmbiguousUnlessItIsZero) {
  Variable v = make(Sync::kOnWrite, Agg::kSum);
  strategy_->run([&] { v.assign_add(0); });
  EXPECT_EQ(components(v), everywhere(10));
  if (replicas() == 1) {
    strategy_->run([&] { v.assign(5); });
    EXPECT_EQ(components(v), everywhere(5));
    return;
  }
  EXPECT_ERROR(strategy_->run([&] { v.assign(5); }), InvalidArgument, "the number 5");
  EXPECT_EQ(components(v), everywhere(10));
  strategy_->run([&] { v.assign(0); });
  EXPECT_EQ(components(v), everywhere(0));
}

TEST_P(VariableMatrix, Spec69_UnderMeanReplicasAreAveragedAndEqualNumbersAreUsedAsTheyAre) {
  const double mean_id = (replicas() - 1) / 2.0;
  Variable v = make(Sync::kOnWrite, Agg::kMean, 1);
  strategy_->run([&] { v.assign_add(id_tensor()); });
  EXPECT_EQ(components(v), everywhere(1 + mean_id));
  strategy_->run([&] { v.assign(id_tensor()); });
  EXPECT_EQ(components(v), everywhere(mean_id));
  strategy_->run([&] { v.assign(replica_id()); });  // the same as a number
  EXPECT_EQ(components(v), everywhere(mean_id));
  v.assign(1);
  strategy_->run([&] { v.assign_add(5); });
  EXPECT_EQ(components(v), everywhere(6));
}

TEST_P(VariableMatrix, Spec70_AddingOutsideReplicasReachesEveryComponent) {
  Variable v = make(Sync::kAuto, Agg::kMean, 1);
  EXPECT_EQ(v.assign_add(6).item<double>(), 7);
  EXPECT_EQ(components(v), everywhere(7));
  v.assign_add(2);
  EXPECT_EQ(components(v), everywhere(9));
}

TEST_P(VariableMatrix, Spec71_AStepCounterGoesUpByOneAndNotByTheReplicas) {
  Variable step(at::zeros({}, at::kLong),
                {.name = "global_step", .aggregation = Agg::kOnlyFirstReplica});
  strategy_->run([&] { step.assign_add(1); });
  EXPECT_EQ(components(step), everywhere(1));
}

// ---- dtypes

TEST_P(VariableMatrix, ANumberThatTheDtypeCannotHoldIsRefused) {
  Variable count(at::zeros({}, at::kInt), {.name = "count"});
  EXPECT_ERROR(count.assign(1.5), InvalidArgument, "1.5");
  EXPECT_ERROR(count.assign(int64_t{1} << 40), InvalidArgument, "int32");
  EXPECT_ERROR(count.assign(at::zeros({})), InvalidArgument, "float32");
  count.assign(4.0);
  EXPECT_EQ(components(count), everywhere(4));
  Variable large(at::zeros({}, at::kLong), {.name = "large"});
  large.assign((int64_t{1} << 53) + 1);  // through a double this would be even
  EXPECT_EQ(large.value().item<int64_t>(), (int64_t{1} << 53) + 1);
}

TEST_P(VariableMatrix, ABoolHasNoSumAndIsAssignedOtherwise) {
  Variable flag(at::ones({}, at::kBool), {.name = "flag", .aggregation = Agg::kOnlyFirstReplica});
  EXPECT_ERROR(flag.assign_add(true), InvalidArgument, "bool");
  EXPECT_ERROR(flag.assign(2), InvalidArgument, "the number 2");
  flag.assign(false);
  EXPECT_EQ(components(flag), everywhere(0));
  strategy_->run([&] { flag.assign(at::full({}, replica_id() == 0, at::kBool)); });
  EXPECT_EQ(components(flag), everywhere(1));
  if (replicas() == 1) return;
  Variable sum(at::ones({}, at::kBool), {.name = "sum", .aggregation = Agg::kSum});
  EXPECT_ERROR(strategy_->run([&] { sum.assign(at::ones({}, at::kBool)); }), InvalidArgument,
               "SUM of bool");
  Variable read(at::ones({}, at::kBool),
                {.name = "r", .synchronization = Sync::kOnRead, .aggregation = Agg::kSum});
  if (is_central()) return;
  EXPECT_ERROR(read.value(), InvalidArgument, "SUM of bool");
  EXPECT_ERROR(read.assign(true), InvalidArgument, "bool");
}

TEST_P(VariableMatrix, ATensorOfAnotherShapeOrDtypeIsRefusedBeforeReplicasMeet) {
  Variable v(at::zeros({2}), {.name = "weights", .aggregation = Agg::kSum});
  EXPECT_ERROR(strategy_->run([&] { v.assign(at::zeros({3})); }), InvalidArgument, "(3,)");
  EXPECT_ERROR(strategy_->run([&] { v.assign_add(at::zeros({2}, at::kLong)); }), InvalidArgument,
               "weights");
  EXPECT_EQ(rows(v.value()), (Values{0, 0}));
}

TEST_P(VariableMatrix, AViewOfTheVariableItselfMayBeAssigned) {
  Variable v(at::arange(4, at::kFloat).view({2, 2}), {.name = "v", .aggregation = Agg::kMean});
  v.assign(v.value().t());
  EXPECT_EQ(rows(v.value()), (Values{0, 2, 1, 3}));
  strategy_->run([&] { v.assign(v.value().t()); });
  EXPECT_EQ(rows(v.value()), (Values{0, 1, 2, 3}));
  v.assign_add(v);
  EXPECT_EQ(rows(v.value()), (Values{0, 2, 4, 6}));
}

// ---- replicas that do not make the same assignment

TEST(VariableAssign, ReplicasThatAssignDifferentVariablesGetAnErrorThatNamesBoth) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable a(at::zeros({}), {.name = "left", .aggregation = Agg::kSum});
  Variable b(at::zeros({}), {.name = "right", .aggregation = Agg::kSum});
  try {
    strategy->run([&] { (replica_id() == 0 ? a : b).assign(tensor_of(1)); });
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("left"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("right"), std::string::npos) << error.what();
  }
  EXPECT_EQ(components(a), (Values{0, 0}));
  EXPECT_EQ(components(b), (Values{0, 0}));
}

TEST(VariableAssign, ReplicasThatAssignDifferentlyGetAnErrorThatNamesBoth) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kOnWrite, Agg::kSum);
  EXPECT_ERROR(strategy->run([&] {
    if (replica_id() == 0) return static_cast<void>(v.assign_add(tensor_of(1)));
    v.assign(tensor_of(1));
  }),
               InvalidArgument, "assign_add");
}

TEST(VariableAssign, AReplicaThatDoesNotAssignIsAnErrorInsteadOfAHang) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kOnWrite, Agg::kMean);
  EXPECT_ERROR(strategy->run([&] {
    if (replica_id() == 1) v.assign(tensor_of(1));
  }),
               FailedPrecondition, "assign");
}

TEST(VariableAssign, ANumberOnOneReplicaAndATensorOnAnotherAreAggregated) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v(at::zeros({2}), {.name = "v", .aggregation = Agg::kMean});
  strategy->run([&] {
    if (replica_id() == 0) return static_cast<void>(v.assign(4));
    v.assign(at::tensor({2.0F, 6.0F}));
  });
  EXPECT_EQ(rows(v.value()), (Values{3, 5}));
}

TEST(VariableAssign, OnReadSumOfIntegersIsCutOutsideReplicas) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v(at::zeros({}, at::kInt),
             {.name = "v", .synchronization = Sync::kOnRead, .aggregation = Agg::kSum});
  v.assign(5);
  EXPECT_EQ(components(v), (Values{2, 2}));
  v.assign(-5);
  EXPECT_EQ(components(v), (Values{-2, -2}));
}

TEST(VariableAssign, AnOnReadVariableIsAPerReplicaTensorForASum) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable local = make(Sync::kOnRead, Agg::kSum);
  Variable v = make(Sync::kOnWrite, Agg::kSum);
  strategy->run([&] {
    local.assign(id_tensor() + 1);
    v.assign(local);
  });
  EXPECT_EQ(components(v), (Values{3, 3}));
}

TEST(VariableReduce, AMirroredVariableHasAMeanButNoSumOverReplicas) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kOnWrite, Agg::kNone, 4);
  EXPECT_EQ(strategy->reduce("MEAN", v).item<double>(), 4);
  EXPECT_ERROR(strategy->reduce("SUM", v), InvalidArgument, "SUM of the mirrored variable \"v\"");
  Variable on_read = make(Sync::kOnRead, Agg::kNone, 4);
  EXPECT_EQ(strategy->reduce("SUM", on_read).item<double>(), 8);
}

}  // namespace
}  // namespace tutti::distribute::testing
