#pragma once
// What every strategy must do: contexts, values, run; strategy_reduction_contract.h has the rest of
// the suite. A strategy enters by one line:
//   INSTANTIATE_TEST_SUITE_P(Mine, StrategyContract, ::testing::Values(StrategyMaker{"Mine", …}));
// Names carry the number of the behaviour that they pin (spec/distribute.md, 7).

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "support/workers.h"
#include "tutti/data/dataset.h"
#include "tutti/distribute/extended.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::distribute {

using testing::throws_saying;

struct StrategyMaker {
  const char* name;
  std::function<std::shared_ptr<Strategy>()> make;
  /// Instead of `make`: so many workers, threads, with so many replicas each. Each runs the test.
  int workers = 1;
  int replicas = 1;
};
inline void PrintTo(const StrategyMaker& maker, std::ostream* out) { *out << maker.name; }

class StrategyContract : public ::testing::TestWithParam<StrategyMaker> {
 protected:
  template <class Body>
  static void run_body() {
    const StrategyMaker& maker = GetParam();
    if (maker.workers == 1) return Body(maker.make()).run();
    testing::on_workers(maker.workers, maker.replicas,
                        [](std::shared_ptr<Strategy> made) { Body(std::move(made)).run(); });
  }
};

class StrategyContractBody {
 public:
  explicit StrategyContractBody(std::shared_ptr<Strategy> made)
      : made_(std::move(made)),
        strategy(*made_),
        n(strategy.num_replicas_in_sync()),
        local(strategy.num_local_replicas()),
        first(strategy.first_replica_id()) {}

 protected:
  static Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }
  static Tensor id() { return scalar(get_replica_context()->replica_id_in_sync_group()); }
  /// `make(id)` for each local replica.
  PerReplica<Tensor> each(const std::function<Tensor(int)>& make) {
    return strategy.distribute_values_from_function(
        [&](ValueContext context) { return make(context.replica_id_in_sync_group); });
  }
  PerReplica<Tensor> ids() {
    return each([](int r) { return scalar(r); });
  }
  /// Every component of `value` is what `wanted(id)` gives.
  void expect_each(const PerReplica<Tensor>& value, const std::function<Tensor(int)>& wanted) {
    ASSERT_EQ(value.size(), static_cast<std::size_t>(local));
    for (int r = 0; r < local; ++r)
      EXPECT_TENSOR_EQ(value[static_cast<std::size_t>(r)], wanted(first + r))
          << "replica " << first + r;
  }
  int num_workers() const { return n / local; }
  bool has_last() const { return first + local == n; }  // of all replicas

 private:
  std::shared_ptr<Strategy> made_;

 protected:
  Strategy& strategy;
  const int n;      // replicas of all workers
  const int local;  // of this one
  const int first;  // the first one's id
};

#define STRATEGY_CONTRACT(Name)                        \
  class Name : public StrategyContractBody {           \
   public:                                             \
    using StrategyContractBody::StrategyContractBody;  \
    void run();                                        \
  };                                                   \
  TEST_P(StrategyContract, Name) { run_body<Name>(); } \
  inline void Name::run()

// ---- contexts

STRATEGY_CONTRACT(Spec1_OutsideEverythingIsTheDefaultReplica) {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  ASSERT_NE(get_replica_context(), nullptr);
  EXPECT_TRUE(get_replica_context()->strategy().is_default());
}

STRATEGY_CONTRACT(Spec2_InsideTheScopeTheStrategyIsCurrentAndAfterItNot) {
  {
    auto scope = strategy.scope();
    EXPECT_EQ(&get_strategy(), &strategy);
    EXPECT_EQ(has_strategy(), !strategy.is_default());
    EXPECT_EQ(in_cross_replica_context(), !strategy.is_default());
    EXPECT_EQ(get_replica_context() == nullptr, !strategy.is_default());
  }
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
}

STRATEGY_CONTRACT(Spec3_TheScopeNestsThreeDeepWithTheSameAndAnotherGuard) {
  auto outer = strategy.scope();
  {
    auto other = strategy.scope();
    outer.enter();
    EXPECT_EQ(&get_strategy(), &strategy);
    outer.exit();
    EXPECT_EQ(&get_strategy(), &strategy);
  }
  EXPECT_EQ(&get_strategy(), &strategy);
  outer.exit();
  EXPECT_FALSE(has_strategy());
  outer.enter();
  EXPECT_EQ(&get_strategy(), &strategy);
}

STRATEGY_CONTRACT(Spec7_CallForEachReplicaGivesTheSameInsideTheScopeAndOutside) {
  const auto fn = [] { return id() + 1; };
  const auto wanted = [](int r) { return scalar(r + 1); };
  expect_each(strategy.extended().call_for_each_replica(fn), wanted);
  auto scope = strategy.scope();
  expect_each(strategy.extended().call_for_each_replica(fn), wanted);
}

STRATEGY_CONTRACT(Spec8_SynchronizationAndAggregationReachTheVariable) {
  auto scope = strategy.scope();
  const Variable v(at::zeros({}), {.synchronization = VariableSynchronization::kOnRead,
                                   .aggregation = VariableAggregation::kSum});
  EXPECT_EQ(v.synchronization(), VariableSynchronization::kOnRead);
  EXPECT_EQ(v.aggregation(), VariableAggregation::kSum);
}

STRATEGY_CONTRACT(Spec9_ReductionsAreNamedInAnyCase) {
  const auto value = ids();
  for (const char* sum : {"sum", "SUM", "Sum"}) {
    EXPECT_TENSOR_EQ(strategy.reduce(sum, value), scalar(n * (n - 1) / 2.0));
    EXPECT_TENSOR_EQ(strategy.reduce_to(sum, value, value)[0], scalar(n * (n - 1) / 2.0));
  }
  for (const std::string mean : {"mean", "MEAN"}) {
    EXPECT_TENSOR_EQ(strategy.reduce(mean, value), scalar((n - 1) / 2.0));
    EXPECT_TENSOR_EQ(
        std::get<Mirrored<Tensor>>(strategy.batch_reduce_to(mean, {{value, value}})[0])[0],
        scalar((n - 1) / 2.0));
  }
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce("max", value); },
                                             {"max", "SUM", "MEAN"}));
}

STRATEGY_CONTRACT(MergeFnIsInCrossReplicaContextAndGivesEachReplicaItsPart) {
  std::atomic<int> calls{0};
  auto parts = strategy.run(
      [&](Tensor id) {
        return get_replica_context()->merge_call(
            [&](Strategy& merged, const PerReplica<Tensor>& values) {
              ++calls;
              EXPECT_EQ(&merged, &strategy);
              EXPECT_TRUE(in_cross_replica_context());
              EXPECT_EQ(get_replica_context(), nullptr);
              EXPECT_EQ(has_strategy(), !strategy.is_default());
              std::vector<Tensor> reversed(values.values().rbegin(), values.values().rend());
              return std::pair(PerReplica<Tensor>(std::move(reversed)), 7);
            },
            id);
      },
      ids());
  EXPECT_EQ(calls.load(), 1);
  expect_each(parts.first, [&](int r) { return scalar(2 * first + local - 1 - r); });
  for (int seven : parts.second.values()) EXPECT_EQ(seven, 7);
}

STRATEGY_CONTRACT(WhatMergeCallGivesCarriesNoGradient) {
  strategy.run([] {
    Tensor x = at::ones({2});
    x.requires_grad_(true);
    const auto passed = get_replica_context()->merge_call(
        [](Strategy&, const PerReplica<Tensor>& a) { return std::tuple(a, std::vector{a}); },
        x * 2);
    EXPECT_FALSE(std::get<0>(passed).requires_grad());
    EXPECT_FALSE(std::get<1>(passed)[0].requires_grad());
  });
}

STRATEGY_CONTRACT(ReplicasRunInTheGradientModeOfTheCaller) {
  const auto mode = [] { return at::GradMode::is_enabled(); };
  for (bool on : strategy.run(mode).values()) EXPECT_TRUE(on);
  {
    at::NoGradGuard no_grad;
    for (bool on : strategy.run(mode).values()) EXPECT_FALSE(on);
  }
  {
    c10::InferenceMode inference;
    for (bool on : strategy.run([] { return at::ones({1}).is_inference(); }).values())
      EXPECT_TRUE(on);
  }
  for (bool on : strategy.run(mode).values()) EXPECT_TRUE(on);
  for (bool on : strategy.run([] { return at::ones({1}).is_inference(); }).values())
    EXPECT_FALSE(on);
}

STRATEGY_CONTRACT(VerbsInsideAReplicaAreErrorsThatNameTheWayOut) {
  auto in_replica = [&](auto call) {
    return [this, call] {
      strategy.run([&](Tensor id) { call(PerReplica<Tensor>(std::vector<Tensor>{id})); }, ids());
    };
  };
  using Value = const PerReplica<Tensor>&;
  EXPECT_TRUE(throws_saying<FailedPrecondition>(in_replica([&](Value) { strategy.run([] {}); }),
                                                {"run", "cross-replica", "merge_call"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      in_replica([&](Value v) { strategy.reduce("SUM", v); }), {"reduce", "merge_call"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      in_replica([&](Value v) { strategy.reduce_to("SUM", v, "cpu:0"); }),
      {"reduce_to", "merge_call"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(in_replica([&](Value v) {
                                                  strategy.batch_reduce_to("SUM", {{v, v}});
                                                }),
                                                {"batch_reduce_to", "merge_call"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      in_replica([&](Value v) { strategy.broadcast_to(v[0], "cpu:0"); }),
      {"broadcast_to", "merge_call"}));
}

// ---- values

STRATEGY_CONTRACT(Spec20_AReplicaSeesItsPartOfValuesAndTheRestAsItIs) {
  auto scope = strategy.scope();
  const Variable v(at::ones({}));
  const std::map<std::string, std::vector<PerReplica<Tensor>>> nest{{"a", {ids(), ids()}}};
  expect_each(
      strategy.run(
          [](const std::map<std::string, std::vector<Tensor>>& part, const Variable& whole,
             double plain) { return part.at("a")[0] + part.at("a")[1] + whole.value() + plain; },
          nest, v, 0.5),
      [](int r) { return scalar(2 * r + 1.5); });
}

STRATEGY_CONTRACT(Spec22_ValuesFromAFunctionAreMadeForEachReplica) {
  const auto constant = strategy.distribute_values_from_function([](ValueContext) { return 5; });
  EXPECT_EQ(constant.size(), static_cast<std::size_t>(local));
  const auto [a, b] = strategy.distribute_values_from_function([&](ValueContext context) {
    EXPECT_EQ(context.num_replicas_in_sync, n);
    return std::tuple(context.replica_id_in_sync_group, 2.5);
  });
  for (int r = 0; r < local; ++r) {
    EXPECT_EQ(a[static_cast<std::size_t>(r)], first + r);
    EXPECT_EQ(b[static_cast<std::size_t>(r)], 2.5);
  }
}

STRATEGY_CONTRACT(Spec23_ValuesFromAFunctionStayWhereTheyAre) {
  const Tensor here = at::ones({3});
  for (const Tensor& value : each([&](int) { return here; }).values())
    EXPECT_TRUE(value.is_same(here));
}

STRATEGY_CONTRACT(Spec24_ValuesFromAFunctionGoIntoRun) {
  expect_each(strategy.run([](Tensor id) { return id * id; }, ids()),
              [](int r) { return scalar(r * r); });
}

STRATEGY_CONTRACT(Spec25_IndexedSlicesGoThroughValuesFromAFunctionAndLocalResults) {
  const auto slices = strategy.distribute_values_from_function([](ValueContext context) {
    return IndexedSlices{
        at::ones({1, 2}), at::full({1}, context.replica_id_in_sync_group, at::kLong), {8, 2}};
  });
  const auto here = strategy.local_results(slices);
  ASSERT_EQ(here.size(), static_cast<std::size_t>(local));
  EXPECT_EQ(here.back().indices.item<int64_t>(), first + local - 1);
}

STRATEGY_CONTRACT(Spec78_LocalResultsOfANestAreOneNestAReplica) {
  const auto id = ids();
  const std::map<std::string, PerReplica<Tensor>> map{{"a", id}};
  const auto maps = strategy.local_results(map);
  const auto lists = strategy.local_results(std::vector<PerReplica<Tensor>>{id, id});
  const auto mixed = strategy.local_results(std::tuple(id, 7, std::vector{std::pair(id, 2.5)}));
  const auto literals = strategy.local_results(std::vector<int>{1, 2});
  ASSERT_EQ(maps.size(), static_cast<std::size_t>(local));
  ASSERT_EQ(literals.size(), static_cast<std::size_t>(local));
  for (int r = 0; r < local; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_TENSOR_EQ(maps[i].at("a"), scalar(first + r));
    EXPECT_TENSOR_EQ(lists[i][1], scalar(first + r));
    EXPECT_TENSOR_EQ(std::get<0>(mixed[i]), scalar(first + r));
    EXPECT_EQ(std::get<1>(mixed[i]), 7);
    EXPECT_TENSOR_EQ(std::get<2>(mixed[i])[0].first, scalar(first + r));
    EXPECT_EQ(literals[i], (std::vector<int>{1, 2}));
  }
  EXPECT_EQ(strategy.local_results(7), std::vector<int>{7});
  EXPECT_EQ(strategy.local_results(at::ones({2})).size(), 1u);
  auto scope = strategy.scope();
  const Variable v(at::ones({}));
  EXPECT_EQ(strategy.local_results(v).size(), v.components().size());
  EXPECT_TENSOR_EQ(std::get<0>(strategy.local_results(std::tuple(v, 1)).back()), at::ones({}));
}

// ---- run

STRATEGY_CONTRACT(Spec57_IdsCoverAllReplicasAndEachHasADeviceOfItsOwn) {
  const auto found = strategy.run([] {
    ReplicaContext& context = *get_replica_context();
    return std::tuple(context.replica_id_in_sync_group(), context.num_replicas_in_sync(),
                      cat(context.devices()[0]));
  });
  std::vector<std::string> devices;
  for (int r = 0; r < local; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(std::get<0>(found)[i], first + r);
    EXPECT_EQ(std::get<1>(found)[i], n);
    devices.push_back(std::get<2>(found)[i]);
  }
  std::sort(devices.begin(), devices.end());
  EXPECT_EQ(std::unique(devices.begin(), devices.end()), devices.end());
}

STRATEGY_CONTRACT(Spec58_ResultsOfOneRunAreArgumentsOfTheNext) {
  auto made = strategy.run([] { return id() + 1; });
  auto second = strategy.run(
      [](Tensor x) {
        return std::map<std::string, Tensor>{{"a", x * 2}, {"b", x * x}};
      },
      made);
  expect_each(second.at("a"), [](int r) { return scalar(2 * (r + 1)); });
  expect_each(second.at("b"), [](int r) { return scalar((r + 1) * (r + 1)); });
  auto third = strategy.run([](const std::map<std::string, Tensor>& m,
                               double plain) { return m.at("a") + m.at("b") * 2 + plain; },
                            second, 2.0);
  expect_each(third, [](int r) { return scalar(2 * (r + 1) + 2 * (r + 1) * (r + 1) + 2); });
  expect_each(strategy.run(
                  RunOptions{}, [](Tensor x) { return x; }, made),
              [](int r) { return scalar(r + 1); });
}

STRATEGY_CONTRACT(Spec61_ExceptionsInFnInMergeFnAndAroundMergeCallReachTheCaller) {
  const auto last = [this] { return get_replica_context()->replica_id_in_sync_group() == n - 1; };
  const auto in_fn = [&] {
    strategy.run([&] {
      if (last()) throw OutOfRange("in fn");
      get_replica_context()->merge_call([](Strategy&) {});
    });
  };
  const auto behind_merge_call = [&] {
    strategy.run([&] {
      get_replica_context()->merge_call([](Strategy&) {});
      if (last()) throw OutOfRange("behind merge_call");
      get_replica_context()->merge_call([](Strategy&) {});
    });
  };
  if (has_last()) {
    EXPECT_TRUE(throws_saying<OutOfRange>(in_fn, {"in fn"}));
  } else {
    in_fn();  // the workers do not need each other
  }
  EXPECT_TRUE(throws_saying<OutOfRange>(
      [&] {
        strategy.run([&] {
          get_replica_context()->merge_call([](Strategy&) { throw OutOfRange("in merge_fn"); });
        });
      },
      {"in merge_fn"}));
  if (has_last()) {
    EXPECT_TRUE(throws_saying<OutOfRange>(behind_merge_call, {"behind merge_call"}));
  } else {
    behind_merge_call();
  }
  expect_each(strategy.run([] { return id(); }), [](int r) { return scalar(r); });
}

STRATEGY_CONTRACT(Spec62_ReplicasThatMergeUnequallyOftenGetAnError) {
  if (local == 1) {  // one replica can merge as often as it likes
    strategy.run([] {
      for (int i = 0; i < 3; ++i) get_replica_context()->merge_call([](Strategy&) {});
    });
    return;
  }
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] {
        strategy.run([&] {
          const int times = get_replica_context()->local_replica_id() == 0 ? 2 : 1;
          for (int i = 0; i < times; ++i) get_replica_context()->merge_call([](Strategy&) {});
        });
      },
      {"merge_call", "same number"}));
}

}  // namespace tutti::distribute
