#include <gtest/gtest.h>

#include "tutti/base/text.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using Sync = VariableSynchronization;
using Agg = VariableAggregation;

std::unique_ptr<MirroredStrategy> mirrored(int replicas) {
  MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}

Variable make(Sync synchronization, Agg aggregation, double value = 10) {
  return Variable(at::scalar_tensor(value),
                  {.name = "v", .synchronization = synchronization, .aggregation = aggregation});
}

Tensor twice_id_plus_one() {
  return at::scalar_tensor(2.0 * (get_replica_context()->replica_id_in_sync_group() + 1),
                           at::kFloat);
}

std::vector<double> components(const Variable& variable) {
  std::vector<double> values;
  for (const Tensor& component : variable.components()) values.push_back(component.item<double>());
  return values;
}
using Values = std::vector<double>;

struct Row {
  Sync synchronization;
  Agg aggregation;
  Values after_add;  // components after each replica adds (id + 1) * 2
};

class ReplicaAssign : public ::testing::TestWithParam<Row> {};

TEST_P(ReplicaAssign, AddsAsTheMatrixSays) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(GetParam().synchronization, GetParam().aggregation);
  strategy->run([&] { v.assign_add(twice_id_plus_one()); });
  EXPECT_EQ(components(v), GetParam().after_add);
}

INSTANTIATE_TEST_SUITE_P(Matrix, ReplicaAssign,
                         ::testing::Values(Row{Sync::kAuto, Agg::kNone, {12, 14}},
                                           Row{Sync::kOnWrite, Agg::kSum, {16, 16}},
                                           Row{Sync::kOnWrite, Agg::kMean, {13, 13}},
                                           Row{Sync::kOnWrite, Agg::kOnlyFirstReplica, {12, 12}},
                                           Row{Sync::kOnRead, Agg::kNone, {12, 14}},
                                           Row{Sync::kOnRead, Agg::kSum, {12, 14}},
                                           Row{Sync::kOnRead, Agg::kMean, {12, 14}},
                                           Row{Sync::kOnRead, Agg::kOnlyFirstReplica, {12, 14}}));

TEST(Variable, ComponentsShareOneStorageUntilTheyMayDiffer) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  EXPECT_TRUE(v.is_shared());
  EXPECT_EQ(v.components()[0].const_data_ptr(), v.components()[1].const_data_ptr());
  v.assign(3.0);
  EXPECT_TRUE(v.is_shared());
  strategy->run([&] { v.assign(twice_id_plus_one()); });
  EXPECT_FALSE(v.is_shared());
  EXPECT_EQ(components(v), (Values{2, 4}));
}

TEST(Variable, OneReplicaThatSplitsOffLeavesTheOthersTogetherAndEachIsUpdatedOnce) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  strategy->run([&] {
    if (get_replica_context()->replica_id_in_sync_group() == 1) v.assign_add(5.0);
  });
  EXPECT_EQ(components(v), (Values{10, 15, 10}));
  v.assign_add(1.0);
  EXPECT_EQ(components(v), (Values{11, 16, 11}));
}

TEST(Variable, OneReplicaMaySplitOffWhileAnotherReads) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  for (int round = 0; round < 50; ++round) {
    Variable v(at::ones({1000}), {.name = "v"});
    auto sums = strategy->run([&] {
      if (get_replica_context()->replica_id_in_sync_group() == 0) {
        for (int i = 0; i < 3; ++i) v.assign(at::zeros({1000}));
      }
      return (v.value() * 1).sum();
    });
    EXPECT_EQ(sums[0].item<float>(), 0);
    EXPECT_EQ(sums[1].item<float>(), 1000);
  }
}

TEST(Variable, OnReadIsAggregatedAcrossReplicas) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  for (const auto& [aggregation, expected] :
       {std::pair{Agg::kSum, 26.0}, {Agg::kMean, 13.0}, {Agg::kOnlyFirstReplica, 12.0}}) {
    Variable v = make(Sync::kOnRead, aggregation);
    strategy->run([&] { v.assign_add(twice_id_plus_one()); });
    EXPECT_EQ(v.value().item<double>(), expected);
  }
  EXPECT_THROW(make(Sync::kOnRead, Agg::kNone).value(), InvalidArgument);
}

TEST(Variable, OnReadSumIsSharedOutWhenAssignedAcrossReplicas) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kOnRead, Agg::kSum);
  v.assign(7.0);
  EXPECT_EQ(components(v), (Values{3.5, 3.5}));
  EXPECT_THROW(v.assign_add(1.0), InvalidArgument);
  EXPECT_THROW(v.assign_sub(1.0), InvalidArgument);
  Variable mean = make(Sync::kOnRead, Agg::kMean);
  mean.assign_add(1.0);
  EXPECT_EQ(components(mean), (Values{11, 11}));
}

TEST(Variable, ALiteralUnderSumIsAmbiguousUnlessZero) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kOnWrite, Agg::kSum);
  EXPECT_THROW(strategy->run([&] { v.assign_add(3.0); }), InvalidArgument);
  EXPECT_EQ(components(v), (Values{10, 10}));
  strategy->run([&] { v.assign(0.0); });
  EXPECT_EQ(components(v), (Values{0, 0}));
  Variable mean = make(Sync::kOnWrite, Agg::kMean);
  strategy->run([&] { mean.assign_add(3.0); });
  EXPECT_EQ(components(mean), (Values{13, 13}));
}

TEST(Variable, CreationRefusesWhatHasNoMeaning) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  EXPECT_THROW(make(Sync::kNone, Agg::kNone), InvalidArgument);
  EXPECT_THROW(Variable(at::zeros({}, at::kLong), {.aggregation = Agg::kMean}), InvalidArgument);
  EXPECT_THROW(Variable{Tensor{}}, InvalidArgument);
  EXPECT_FALSE(make(Sync::kOnRead, Agg::kSum).trainable());
  EXPECT_TRUE(make(Sync::kAuto, Agg::kNone).trainable());
}

TEST(Variable, AssignmentChecksShapeAndDtypeBeforeItChangesAnything) {
  Variable v(at::zeros({2}), {.name = "weights"});
  EXPECT_THROW(v.assign(at::zeros({3})), InvalidArgument);
  EXPECT_THROW(v.assign(at::zeros({2}, at::kDouble)), InvalidArgument);
  try {
    v.assign(at::zeros({3}));
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("weights"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("(3,)"), std::string::npos);
  }
}

TEST(Variable, AnotherStrategysContextIsRefused) {
  auto one = mirrored(2);
  auto two = mirrored(2);
  Variable v;
  {
    auto scope = one->scope();
    v = make(Sync::kAuto, Agg::kNone);
  }
  EXPECT_EQ(v.value().item<double>(), 10);
  auto scope = two->scope();
  EXPECT_THROW(v.value(), FailedPrecondition);
  EXPECT_THROW(v.assign(1.0), FailedPrecondition);
}

TEST(Variable, AfterItsStrategyItIsAnErrorAndNotACrash) {
  Variable v;
  {
    auto strategy = mirrored(2);
    auto scope = strategy->scope();
    v = make(Sync::kAuto, Agg::kNone);
  }
  EXPECT_THROW(v.value(), FailedPrecondition);
}

TEST(Variable, MadeInsideARunItIsOneForAllReplicas) {
  auto strategy = mirrored(3);
  std::vector<Variable> made(3);
  strategy->run([&] {
    const auto id = static_cast<std::size_t>(get_replica_context()->replica_id_in_sync_group());
    made[id] = Variable(at::scalar_tensor(static_cast<double>(id) + 5), {.name = "inside"});
  });
  EXPECT_TRUE(made[0].is_same(made[2]));
  EXPECT_EQ(components(made[1]), (Values{5, 5, 5}));
}

TEST(Variable, PrintsItsComponents) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  EXPECT_EQ(cat(make(Sync::kAuto, Agg::kNone, 1)),
            "MirroredVariable:{\n  0: Variable(name='v', shape=(), dtype=float32, value=1.0),\n"
            "  1: Variable(name='v/replica_1', shape=(), dtype=float32, value=1.0)\n}");
  EXPECT_EQ(cat(make(Sync::kOnRead, Agg::kSum, 1)).substr(0, 18), "SyncOnReadVariable");
}

// ---- tape
// ----------------------------------------------------------------------------------------------------------------------

TEST(Tape, GradientsOfSharedWeightsStayApart) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable w(at::ones({3}), {.name = "w"});
  auto gradients = strategy->run([&] {
    GradientTape tape;
    return tape.gradient((w.value() * twice_id_plus_one()).sum(), w);
  });
  EXPECT_TRUE(gradients[0].equal(at::full({3}, 2.0)));
  EXPECT_TRUE(gradients[1].equal(at::full({3}, 4.0)));
}

TEST(Tape, UnconnectedVariablesHaveNoGradient) {
  Variable used(at::ones({})), unused(at::ones({}));
  GradientTape tape;
  auto gradients = tape.gradient(used.value() * 3, std::vector<Variable>{used, unused});
  EXPECT_EQ(gradients[0].item<double>(), 3);
  EXPECT_FALSE(gradients[1].defined());
}

TEST(Tape, TwoTapesOverOneForwardBothWork) {
  Variable w(at::full({}, 2.0));
  GradientTape outer;
  GradientTape inner;
  const Tensor loss = w.value() * w.value();
  EXPECT_EQ(inner.gradient(loss, w).item<double>(), 4);
  EXPECT_EQ(outer.gradient(loss, w).item<double>(), 4);
}

TEST(Tape, ASecondCallNeedsAPersistentTape) {
  Variable w(at::full({}, 2.0));
  GradientTape once;
  const Tensor loss = w.value() * w.value();
  once.gradient(loss, w);
  EXPECT_THROW(once.gradient(loss, w), FailedPrecondition);
  GradientTape tape({.persistent = true});
  const Tensor again = w.value() * w.value();
  tape.gradient(again, w);
  EXPECT_EQ(tape.gradient(again, w).item<double>(), 4);
}

TEST(Tape, AStaleForwardNamesTheVariable) {
  Variable w(at::full({}, 2.0), {.name = "kernel"});
  GradientTape tape;
  const Tensor loss = w.value() * w.value();
  w.assign(3.0);
  try {
    tape.gradient(loss, w);
    FAIL() << "nothing was thrown";
  } catch (const FailedPrecondition& error) {
    EXPECT_NE(std::string(error.what()).find("kernel"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("take all gradients first"), std::string::npos);
  }
}

// ---- the fused pass
// ------------------------------------------------------------------------------------------------------------

/// w -= 0.1 g + 0.01 s, s += g.
struct TestRule : UpdateRule {
  std::vector<std::string> slot_names() const override { return {"sum"}; }
  void begin_step(int64_t) override {}
  template <class T>
  static void loop(T* w, const T* g, T* s, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      s[i] += g[i];
      w[i] -= T(0.1) * g[i] + T(0.01) * s[i];
    }
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool) const override {
    loop(w, g, s[0], n);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool) const override {
    loop(w, g, s[0], n);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& s, bool) const override {
    s[0].add_(g);
    w.sub_(g * 0.1 + s[0] * 0.01);
  }
};

std::vector<Tensor> initial_weights() {
  at::Tensor kernel = at::arange(2 * 3 * 5 * 7, at::kFloat)
                          .view({7, 2, 3, 5})
                          .permute({1, 2, 3, 0});  // stored in another order
  return {at::arange(5000, at::kFloat).view({50, 100}) / 1000, kernel / 100, at::ones({}),
          at::arange(33, at::kDouble), at::zeros({0})};
}

std::vector<Tensor> gradients_of(int replica, int step) {
  std::vector<Tensor> gradients;
  for (const Tensor& weight : initial_weights())
    gradients.push_back((weight + 1 + replica * 2) * (step + 1) * 0.25);
  if (replica == 1) gradients[2] = Tensor();  // one replica has none for it
  return gradients;
}

struct PassCase {
  int replicas;
  GradientClipping clipping;
};
class FusedPass : public ::testing::TestWithParam<PassCase> {};

TEST_P(FusedPass, EqualsTheStraightforwardUpdate) {
  const auto& [replicas, clipping] = GetParam();
  auto strategy = mirrored(replicas);
  auto scope = strategy->scope();
  std::vector<Variable> variables;
  std::vector<Tensor> weights, sums;
  for (const Tensor& initial : initial_weights()) {
    variables.emplace_back(initial, VariableOptions{.name = cat("v", variables.size())});
    weights.push_back(initial.clone());
    sums.push_back(at::zeros_like(initial));
  }
  FusedUpdate update(variables, std::make_shared<TestRule>(), clipping, {});
  for (int step = 0; step < 3; ++step) {
    strategy->run([&] {
      update.apply(gradients_of(get_replica_context()->replica_id_in_sync_group(), step));
    });
    std::vector<Tensor> total;
    double squares = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      Tensor sum = at::zeros_like(weights[i]);
      for (int r = 0; r < replicas; ++r) {
        const Tensor gradient = gradients_of(r, step)[i];
        if (gradient.defined()) sum = sum + gradient;
      }
      squares += sum.to(at::kDouble).square().sum().item<double>();
      total.push_back(sum);
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      Tensor gradient = total[i];
      if (clipping.clipnorm)
        gradient = gradient * std::min(1.0, *clipping.clipnorm /
                                                std::max(1e-30, gradient.norm().item<double>()));
      if (clipping.global_clipnorm)
        gradient = gradient * std::min(1.0, *clipping.global_clipnorm / std::sqrt(squares));
      if (clipping.clipvalue) gradient = gradient.clamp(-*clipping.clipvalue, *clipping.clipvalue);
      sums[i].add_(gradient);
      weights[i].sub_(gradient * 0.1 + sums[i] * 0.01);
    }
  }
  EXPECT_EQ(update.iterations(), 3);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(variables[i].read_value(), weights[i], 1e-5, 1e-6)) << i;
    EXPECT_TRUE(at::allclose(update.slots("sum")[i].read_value(), sums[i], 1e-5, 1e-6)) << i;
    EXPECT_TRUE(variables[i].is_shared());
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, FusedPass,
                         ::testing::Values(PassCase{1, {}}, PassCase{2, {}}, PassCase{3, {}},
                                           PassCase{8, {}}, PassCase{2, {.clipnorm = 3.0}},
                                           PassCase{3, {.clipvalue = 0.5}},
                                           PassCase{2, {.global_clipnorm = 5.0}},
                                           PassCase{4, {.global_clipnorm = 1e9}}));

TEST(FusedUpdate, ASplitVariableIsUpdatedComponentByComponent) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable w(at::ones({40}), {.name = "w"});
  FusedUpdate update({w}, std::make_shared<TestRule>(), {}, {});
  strategy->run([&] {
    w.assign(at::full({40}, 1.0 + get_replica_context()->replica_id_in_sync_group()));
    update.apply({at::ones({40})});
  });
  EXPECT_FALSE(w.is_shared());
  EXPECT_TRUE(at::allclose(w.components()[0], at::full({40}, 1 - 0.2 - 0.02)));
  EXPECT_TRUE(at::allclose(w.components()[1], at::full({40}, 2 - 0.2 - 0.02)));
}

TEST(FusedUpdate, AGradientOfAnotherShapeNamesTheVariable) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable w(at::ones({4}), {.name = "bias"});
  FusedUpdate update({w}, std::make_shared<TestRule>(), {}, {});
  EXPECT_THROW(strategy->run([&] { update.apply({at::ones({5})}); }), InvalidArgument);
  strategy->run([&] { update.apply({at::ones({4})}); });
  EXPECT_EQ(update.iterations(), 1);
}

TEST(FusedUpdate, HandedOutTensorsFollowTheWeightsIntoTheArena) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable w(at::ones({4}), {.name = "w"});
  const Tensor view = w.value();
  FusedUpdate update({w}, std::make_shared<TestRule>(), {}, {});
  update.apply({at::ones({4})});
  EXPECT_TRUE(view.detach().equal(w.components()[0]));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w.components()[0].const_data_ptr()) % 64, 0u);
}

}  // namespace
}  // namespace tutti::distribute
