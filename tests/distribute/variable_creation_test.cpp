// Where variables come from and what is known about them.

#include <algorithm>
#include <sstream>

#include "distribute/variable_settings.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::distribute::testing {
namespace {

class VariableCreation : public UnderEachStrategy {};
INSTANTIATE_TEST_SUITE_P(Strategies, VariableCreation, ::testing::ValuesIn(all_settings()),
                         setting_name);

TEST_P(VariableCreation, Spec27_ADeepCopyHasComponentsOfItsOwnThatAreEqual) {
  Variable v = make(Sync::kOnRead, Agg::kMean);
  if (!is_central()) strategy_->run([&] { v.assign(id_tensor()); });
  Variable copy = v.deep_copy();
  EXPECT_EQ(components(copy), components(v));
  EXPECT_EQ(copy.aggregation(), Agg::kMean);
  EXPECT_EQ(copy.name(), "v");
  EXPECT_EQ(copy.type_name(), v.type_name());
  v.assign(77);
  EXPECT_NE(components(copy)[0], 77);
}

TEST(VariableCopy, Spec27_ADeepCopyInAnotherStrategysScopeIsRefused) {
  auto strategy = mirrored(2);
  Variable v;
  {
    auto scope = strategy->scope();
    v = make(Sync::kAuto, Agg::kNone);
  }
  EXPECT_ERROR(v.deep_copy(), FailedPrecondition, "scope");
  auto other = mirrored(2);
  auto scope = other->scope();
  EXPECT_ERROR(v.deep_copy(), FailedPrecondition, "another strategy");
}

TEST(VariableCopy, ComponentsThatHadPartedPartInTheCopyAndTheOthersStayTogether) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  strategy->run([&] {
    if (replica_id() == 0) v.assign(tensor_of(5));
  });
  Variable copy = v.deep_copy();
  EXPECT_EQ(components(copy), (Values{5, 10, 10}));
  EXPECT_EQ(copy.components()[1].const_data_ptr(), copy.components()[2].const_data_ptr());
  copy.assign_add(1);
  EXPECT_EQ(components(copy), (Values{6, 11, 11}));
  EXPECT_EQ(components(v), (Values{5, 10, 10}));
}

TEST(VariableCopy, InsideARunItIsOneForAllReplicas) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  const auto copies = strategy->run([&] { return std::vector<Variable>{v.deep_copy()}; });
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_FALSE(copies[0].is_same(v));
}

TEST_P(VariableCreation, Spec34_ARandomInitialValueIsTheSameOnAllReplicas) {
  const Variable made = strategy_->run([] { return Variable(at::randn({3}), {.name = "random"}); });
  for (const Tensor& each : made.components()) EXPECT_TRUE(each.equal(made.components()[0]));
}

TEST_P(VariableCreation, Spec50_MadeInsideRunItIsOneVariableThatEveryReplicaSees) {
  // run checks that all replicas return the same one.
  Variable v = strategy_->run([] { return make(Sync::kAuto, Agg::kSum, 5); });
  strategy_->run([&] { v.assign_add(tensor_of(1)); });
  EXPECT_EQ(components(v), everywhere(5 + replicas()));
}

TEST_P(VariableCreation, Spec51_TwoOfOneNameAreTwoVariablesInTheOrderInWhichTheyWereMade) {
  const auto made = strategy_->run([] {
    Variable first(at::full({}, 1.0), {.name = "same"});
    Variable second(at::full({}, 2.0), {.name = "same"});
    return std::vector<Variable>{first, second};
  });
  EXPECT_EQ(components(made[0]), everywhere(1));
  EXPECT_EQ(components(made[1]), everywhere(2));
}

TEST_P(VariableCreation, Spec52_ComponentsAreNamedAfterTheVariableAndTheirReplica) {
  Variable v(at::zeros({}), {.name = "foo"});
  std::vector<std::string> names{"foo"};
  for (int i = 1; i < replicas() && !is_central(); ++i) names.push_back(cat("foo/replica_", i));
  EXPECT_EQ(v.component_names(), names);
  EXPECT_EQ(v.devices().size(), names.size());
}

TEST(VariableCreationOrder, OtherNumbersOnTheReplicasAreAnErrorThatNamesTheVariable) {
  auto strategy = mirrored(2);
  EXPECT_ERROR(strategy->run([] {
    Variable first(at::zeros({}), {.name = "first"});
    if (replica_id() == 0) Variable second(at::zeros({}), {.name = "second"});
  }),
               FailedPrecondition, "second");
  strategy->run([] { Variable third(at::zeros({}), {.name = "third"}); });  // all is well again
}

TEST(VariableCreationOrder, OtherNamesOnTheReplicasAreAnErrorThatNamesBoth) {
  auto strategy = mirrored(2);
  auto make_two = [] {
    Variable one(at::zeros({}), {.name = replica_id() == 0 ? "left" : "right"});
  };
  EXPECT_ERROR(strategy->run(make_two), InvalidArgument, "left");
  EXPECT_ERROR(strategy->run(make_two), InvalidArgument, "right");
}

TEST(VariableCreationOrder, AVariableOnOneReplicaAndACollectiveOnAnotherAreAnError) {
  auto strategy = mirrored(2);
  EXPECT_ERROR(strategy->run([] {
    if (replica_id() == 0) {
      Variable one(at::zeros({}), {.name = "one"});
    } else {
      get_replica_context()->merge_call([](Strategy&) {});
    }
  }),
               InvalidArgument, "merge_call");
}

TEST(VariableCreationOrder, AWrongOptionOnAllReplicasIsTheErrorThatItIsOutside) {
  auto strategy = mirrored(2);
  EXPECT_ERROR(strategy->run([] { make(Sync::kNone, Agg::kNone); }), InvalidArgument,
               "synchronization NONE");
}

TEST(VariableColocation, Spec54_NewVariablesLiveWhereTheOthersDo) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  {
    auto colocated = strategy->colocate_vars_with(v);
    EXPECT_EQ(make(Sync::kAuto, Agg::kNone).devices(), v.devices());
  }
  scope.exit();
  Variable plain = make(Sync::kAuto, Agg::kNone);
  auto other = mirrored(2);
  auto other_scope = other->scope();
  EXPECT_ERROR((void)other->colocate_vars_with(plain), InvalidArgument, "another strategy");
  EXPECT_ERROR((void)other->colocate_vars_with(v), InvalidArgument, "another strategy");
}

TEST_P(VariableCreation, Spec55_MakingAVariableIsNotRecorded) {
  Variable source(at::full({}, 2.0), {.name = "source"});
  GradientTape tape;
  const Tensor result = source.value() * 3;
  Variable made(result, {.name = "made"});
  EXPECT_EQ(made.read_value().item<double>(), 6);
  const Tensor loss = made.value() * 1;
  EXPECT_FALSE(tape.gradient(loss, source).defined());
}

// ---- value_container

TEST_P(VariableCreation, TheContainerOfAComponentIsItsVariable) {
  Variable v = make(Sync::kAuto, Agg::kNone);
  for (const Tensor& component : strategy_->local_results(v)) {
    const auto container = strategy_->value_container(component);
    ASSERT_TRUE(std::holds_alternative<Variable>(container));
    EXPECT_TRUE(std::get<Variable>(container).is_same(v));
  }
  EXPECT_TRUE(std::get<Variable>(strategy_->value_container(v.value())).is_same(v));
  EXPECT_TRUE(strategy_->value_container(v).is_same(v));
  strategy_->run(
      [&] { EXPECT_TRUE(std::get<Variable>(strategy_->value_container(v.value())).is_same(v)); });
  const Tensor other = at::zeros({});
  EXPECT_TRUE(std::get<Tensor>(strategy_->value_container(other)).is_same(other));
}

TEST_P(VariableCreation, AComponentWhoseVariableIsGoneIsATensor) {
  Tensor component;
  {
    Variable v = make(Sync::kAuto, Agg::kNone);
    component = v.components()[0];
  }
  EXPECT_TRUE(std::holds_alternative<Tensor>(strategy_->value_container(component)));
}

TEST_P(VariableCreation, VariablesOutliveManyThatDied) {
  Variable first = make(Sync::kAuto, Agg::kNone);
  for (int i = 0; i < 500; ++i) make(Sync::kAuto, Agg::kNone);
  Variable last = make(Sync::kAuto, Agg::kNone);
  for (const Variable& each : {first, last})
    EXPECT_TRUE(std::get<Variable>(strategy_->value_container(each.value())).is_same(each));
}

// ---- types

TEST(VariableType, IsTensorFlowsClass) {
  auto type = [](Strategy& strategy, Sync synchronization) {
    auto scope = strategy.scope();
    return make(synchronization, Agg::kSum).type_name();
  };
  EXPECT_EQ(type(*mirrored(1), Sync::kAuto), "MirroredVariable");
  EXPECT_EQ(type(*mirrored(2), Sync::kOnWrite), "MirroredVariable");
  EXPECT_EQ(type(*mirrored(2), Sync::kOnRead), "SyncOnReadVariable");
  EXPECT_EQ(type(*central(2), Sync::kOnRead), "AggregatingVariable");
  EXPECT_EQ(type(*central(1), Sync::kAuto), "Variable");
  OneDeviceStrategy one("cpu:0");
  EXPECT_EQ(type(one, Sync::kOnRead), "Variable");
  EXPECT_EQ(make(Sync::kAuto, Agg::kNone).type_name(), "Variable");
}

TEST(VariableType, APrintedVariableBeginsWithIt) {
  auto strategy = central(2);
  auto scope = strategy->scope();
  EXPECT_EQ(cat(make(Sync::kAuto, Agg::kSum, 1)),
            "AggregatingVariable:{\n  0: Variable(name='v', shape=(), dtype=float32, "
            "value=1.0)\n}");
}

}  // namespace
}  // namespace tutti::distribute::testing
