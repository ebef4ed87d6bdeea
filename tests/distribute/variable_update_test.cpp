// Update contexts, and the one copy of CentralStorageStrategy.

#include "distribute/variable_settings.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::distribute::testing {
namespace {

class VariableUpdate : public UnderEachStrategy {};
INSTANTIATE_TEST_SUITE_P(Strategies, VariableUpdate, ::testing::ValuesIn(all_settings()),
                         setting_name);

TEST_P(VariableUpdate, Spec74_InUpdateContextAssignmentsAreDirectUnderEveryAggregation) {
  for (Agg aggregation : {Agg::kNone, Agg::kSum, Agg::kMean, Agg::kOnlyFirstReplica}) {
    Variable v = make(Sync::kOnWrite, aggregation);
    int calls = 0;
    strategy_->update(v, [&](Variable each) {
      ++calls;
      EXPECT_TRUE(get_update_replica_id().has_value());
      each.assign_add(5);
      each.assign_add(tensor_of(1));
    });
    EXPECT_EQ(calls, 1);  // on the CPU all components are one copy
    EXPECT_EQ(components(v), everywhere(16));
  }
}

TEST(VariableUpdateContext, Spec74_EachCallSeesAndChangesItsOwnComponentOnly) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  for (auto [synchronization, aggregation] :
       {std::pair{Sync::kOnRead, Agg::kSum}, {Sync::kAuto, Agg::kNone}}) {
    Variable v = make(synchronization, aggregation);
    strategy->run([&] { v.assign(id_tensor() + 1); });
    const auto read = strategy->update_ungrouped(
        v,
        [](Variable each, const Tensor& factor) {
          return each.assign(each.value() * factor).clone();
        },
        tensor_of(10));
    ASSERT_EQ(read.size(), 2U);
    EXPECT_EQ(read[0].item<double>(), 10);
    EXPECT_EQ(read[1].item<double>(), 20);
    EXPECT_EQ(components(v), (Values{10, 20}));
  }
}

TEST(VariableUpdateContext, ComponentsThatStillShareAreWrittenOnce) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  strategy->run([&] {
    if (replica_id() == 1) v.assign(tensor_of(1));
  });
  int calls = 0;
  strategy->update(v, [&](Variable each) {
    ++calls;
    each.assign_add(1);
  });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(components(v), (Values{11, 2, 11}));
}

TEST(VariableUpdateContext, AReplicasUpdateChangesItsOwnComponent) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kSum);  // no aggregation takes place
  const auto read = strategy->run([&] {
    return get_replica_context()->update(
        v,
        [](Variable each, double by) {
          EXPECT_EQ(*get_update_replica_id(), static_cast<int>(by) - 1);
          return each.assign_add(by).clone();
        },
        replica_id() + 1.0);
  });
  EXPECT_EQ(read[0].item<double>(), 11);
  EXPECT_EQ(read[1].item<double>(), 12);
  EXPECT_EQ(components(v), (Values{11, 12}));
  EXPECT_FALSE(v.is_shared());
}

TEST(VariableUpdateContext, Spec80_AReplicasUpdateAssignsAddsAndSubtracts) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  auto after = [&](auto change) {
    Variable v = make(Sync::kAuto, Agg::kNone, 5);
    strategy->run([&] { get_replica_context()->update(v, change); });
    return components(v);
  };
  EXPECT_EQ(after([](Variable each) {
              each.assign(at::full({}, 2.0));
              each.assign(1);
            }),
            (Values{1, 1}));
  EXPECT_EQ(after([](Variable each) { each.assign_add(at::full({}, 3.0)); }), (Values{8, 8}));
  EXPECT_EQ(after([](Variable each) { each.assign_sub(3); }), (Values{2, 2}));
}

TEST(VariableUpdateContext, OneReplicaMayUpdateWhileAnotherReads) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  for (int round = 0; round < 50; ++round) {
    Variable v(at::ones({1000}), {.name = "v"});
    const auto sums = strategy->run([&] {
      if (replica_id() == 1) {
        get_replica_context()->update(v, [](Variable each) { each.assign(at::zeros({1000})); });
      }
      return v.value().detach().sum();
    });
    EXPECT_EQ(sums[0].item<double>(), 1000);
    EXPECT_EQ(sums[1].item<double>(), 0);
  }
}

TEST(VariableUpdateContext, AReplicasUpdateOfAnotherStrategysVariableIsRefused) {
  Variable plain = make(Sync::kAuto, Agg::kNone);
  auto strategy = mirrored(2);
  EXPECT_ERROR(strategy->run([&] { get_replica_context()->update(plain, [](const Variable&) {}); }),
               InvalidArgument, "made under");
  auto one_copy = central(2);
  auto scope = one_copy->scope();
  Variable v = make(Sync::kAuto, Agg::kSum);
  EXPECT_ERROR(one_copy->run([&] { get_replica_context()->update(v, [](const Variable&) {}); }),
               InvalidArgument, "one copy");
}

TEST(VariableUpdateContext, WithOneReplicaTheVariableStaysInOnePiece) {
  auto strategy = mirrored(1);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  strategy->run([&] { get_replica_context()->update(v, [](Variable each) { each.assign(1); }); });
  EXPECT_EQ(components(v), (Values{1}));
  EXPECT_TRUE(v.is_shared());
}

/// w -= g.
struct Subtract : UpdateRule {
  std::vector<std::string> slot_names() const override { return {}; }
  void begin_step(int64_t) override {}
  template <class T>
  static void loop(T* w, const T* g, int64_t n) {
    for (int64_t i = 0; i < n; ++i) w[i] -= g[i];
  }
  void update(float* w, const float* g, float* const*, int64_t n, bool) const override {
    loop(w, g, n);
  }
  void update(double* w, const double* g, double* const*, int64_t n, bool) const override {
    loop(w, g, n);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>&, bool) const override {
    w.sub_(g);
  }
};

TEST(VariableUpdateContext, AReplicasUpdateOfOneWeightLeavesItsNeighboursInTheOptimizersMemory) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable left(at::ones({20}), {.name = "left"});
  Variable middle(at::ones({20}), {.name = "middle"});
  Variable right(at::ones({20}), {.name = "right"});
  FusedUpdate optimizer({left, middle, right}, std::make_shared<Subtract>(), {}, {});
  strategy->run([&] {
    get_replica_context()->update(
        middle, [](Variable each, int by) { each.assign_add(by); }, replica_id());
    optimizer.apply({at::ones({20}), at::ones({20}), at::ones({20})});
  });
  EXPECT_TRUE(left.is_shared());
  EXPECT_EQ(rows(left.value()), Values(20, -1));
  EXPECT_EQ(rows(right.value()), Values(20, -1));
  EXPECT_EQ(rows(middle.components()[0]), Values(20, -1));
  EXPECT_EQ(rows(middle.components()[1]), Values(20, 0));
}

// ---- CentralStorageStrategy

TEST(CentralStorage, Spec75_AVariableHasOneCopyOnTheParameterDevice) {
  auto strategy = central(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kSum);
  EXPECT_EQ(v.components().size(), 1U);
  EXPECT_EQ(v.devices(), strategy->parameter_devices());
  EXPECT_EQ(v.component_names(), std::vector<std::string>{"v"});
  strategy->run([&] { v.assign_add(id_tensor() + 1); });
  EXPECT_EQ(components(v), (Values{13}));
  EXPECT_TRUE(v.is_shared());
}

TEST(CentralStorage, Spec75_WithoutAggregationReplicasMayNotAssign) {
  auto strategy = central(2);
  auto scope = strategy->scope();
  for (Sync synchronization : {Sync::kAuto, Sync::kOnRead}) {
    Variable v = make(synchronization, Agg::kNone);
    EXPECT_ERROR(strategy->run([&] { v.assign(tensor_of(1)); }), InvalidArgument,
                 "aggregation NONE");
    EXPECT_ERROR(strategy->run([&] { v.assign_add(0); }), InvalidArgument, "one copy");
    EXPECT_EQ(components(v), (Values{10}));
    v.assign(1);  // outside replicas it is a plain variable
    EXPECT_EQ(v.value().item<double>(), 1);
  }
}

TEST(CentralStorage, Spec75_AValueIsReducedToTheDeviceOfAVariable) {
  auto strategy = central(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone);
  const auto ids = strategy->distribute_values_from_function(
      [](ValueContext context) { return tensor_of(context.replica_id_in_sync_group + 1); });
  EXPECT_EQ(strategy->reduce_to("SUM", ids, v)[0].item<double>(), 3);
  EXPECT_EQ(components(v), (Values{10}));
}

TEST(CentralStorage, GradientsOfTheOneCopyStayApartInReplicas) {
  auto strategy = central(2);
  auto scope = strategy->scope();
  Variable w(at::ones({3}), {.name = "w"});
  const auto gradients = strategy->run([&] {
    GradientTape tape;
    return tape.gradient((w.value() * (id_tensor() + 1)).sum(), w);
  });
  EXPECT_EQ(rows(gradients[0]), (Values{1, 1, 1}));
  EXPECT_EQ(rows(gradients[1]), (Values{2, 2, 2}));
}

}  // namespace
}  // namespace tutti::distribute::testing
