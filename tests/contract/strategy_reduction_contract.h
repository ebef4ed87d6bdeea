#pragma once
// The rest of what every strategy must do: reductions, gathering, input and training. See
// strategy_contract.h.

#include "contract/strategy_contract.h"

namespace tutti::distribute {

// ---- reductions

STRATEGY_CONTRACT(Spec59_AllReduceTakesNests) {
  const auto value = std::tuple(each([](int r) { return scalar(1 + 2 * r); }), each([](int r) {
                                  return at::tensor({39.f - 36.f * static_cast<float>(r), 2.f});
                                }));
  for (const char* op : {"SUM", "MEAN"}) {
    const double by = op == std::string("SUM") ? 1 : n;
    double scalars = 0, rows = 0;
    for (int r = 0; r < n; ++r) {
      scalars += 1 + 2 * r;
      rows += 39 - 36 * r;
    }
    const auto [a, b] = strategy.run(
        [&](Tensor x, Tensor y) { return get_replica_context()->all_reduce(op, std::tuple(x, y)); },
        value);
    expect_each(a, [&](int) { return scalar(scalars / by); });
    expect_each(b, [&](int) { return at::tensor({rows / by, 2.0 * n / by}, at::kFloat); });
  }
}

STRATEGY_CONTRACT(Spec60_TheGradientOfAnAllReduceIsTheAllReducedGradient) {
  const auto gradients = strategy.run([] {
    GradientTape tape;
    Tensor x = at::ones({});
    tape.watch(x);
    const Tensor y = get_replica_context()->all_reduce("SUM", x) * (id() * 2 + 1);
    return tape.gradient(y, x);
  });
  expect_each(gradients, [&](int) { return scalar(n * n); });  // 1 + 3 + 5 + …
}

STRATEGY_CONTRACT(Spec65_ReduceAddsIdsAndTakesNests) {
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", ids()), scalar(n * (n - 1) / 2.0));
  const auto [up, down] = strategy.reduce("SUM", strategy.run([] {
    const Tensor x = scalar(3);
    return std::tuple(x + 1, x - 1);
  }));
  EXPECT_TENSOR_EQ(up, scalar(4 * n));
  EXPECT_TENSOR_EQ(down, scalar(2 * n));
}

STRATEGY_CONTRACT(Spec66_ReduceOverAnAxisCountsWhatIsThere) {
  double sum = 0, count = 0;
  for (int r = 0; r < n; ++r) {
    sum += r * (r + 1);
    count += r + 1;
  }
  for (at::ScalarType dtype : {at::kFloat, at::kInt}) {
    const auto value = each([&](int r) { return at::full({r + 1}, r, dtype); });
    EXPECT_TENSOR_EQ(strategy.reduce("SUM", value, 0), at::scalar_tensor(sum, dtype));
    EXPECT_TENSOR_EQ(strategy.reduce("MEAN", value, -1),
                     at::scalar_tensor(sum / count, dtype == at::kInt ? at::kDouble : at::kFloat));
  }
}

STRATEGY_CONTRACT(AReplicaWithoutRowsCountsForNothing) {
  const auto value = each([](int r) { return r == 0 ? at::tensor({2.f, 4.f}) : at::zeros({0}); });
  EXPECT_TENSOR_EQ(strategy.reduce("MEAN", value, 0), scalar(3));
}

STRATEGY_CONTRACT(ReduceOverSeveralAxesAndOverNone) {
  const auto value = each([](int) { return at::ones({2, 3}); });
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", value, {0, -1}), scalar(6 * n));
  EXPECT_TENSOR_EQ(strategy.reduce("MEAN", value, {0, 1}), scalar(1));
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", value, std::vector<int64_t>{}),
                   at::full({2, 3}, n, at::kFloat));
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", value, std::nullopt), at::full({2, 3}, n, at::kFloat));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce("SUM", value, 2); },
                                             {"axis 2", "(2, 3)"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.reduce("SUM", value, {0, -2});
      },
      {"twice"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce("SUM", ids(), 0); },
                                             {"axis 0", "scalar"}));
}

STRATEGY_CONTRACT(ReduceWantsOneComponentAReplica) {
  const PerReplica<Tensor> wrong(
      std::vector<Tensor>(static_cast<std::size_t>(n) + 1, at::ones({})));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce("SUM", wrong); },
                                             {"components", "one a replica"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce_to("SUM", wrong, "cpu:0"); },
                                             {"components", "one a replica"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.gather(wrong, 0); }, {"components"}));
}

STRATEGY_CONTRACT(Spec67_WhatIsTheSameEverywhereHasAMeanAndNoSum) {
  EXPECT_EQ(strategy.reduce("MEAN", 5), 5);
  EXPECT_EQ(strategy.reduce("SUM", 0.0), 0.0);
  EXPECT_TENSOR_EQ(strategy.reduce("MEAN", scalar(3)), scalar(3));
  const Mirrored<Tensor> mirrored(std::vector<Tensor>(static_cast<std::size_t>(local), scalar(3)));
  EXPECT_TENSOR_EQ(strategy.reduce("MEAN", mirrored), scalar(3));
  if (n == 1) {
    EXPECT_EQ(strategy.reduce("SUM", 5), 5);
    EXPECT_TENSOR_EQ(strategy.reduce("SUM", scalar(3)), scalar(3));
    EXPECT_TENSOR_EQ(strategy.reduce("SUM", mirrored), scalar(3));
  } else {
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce("SUM", 5); }, {"PerReplica"}));
    if (num_workers() > 1) {  // each brings its own
      EXPECT_TENSOR_EQ(strategy.reduce("SUM", scalar(3)), scalar(3 * num_workers()));
    } else {
      EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce("SUM", scalar(3)); },
                                                 {"PerReplica"}));
    }
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { strategy.reduce("SUM", mirrored); }, {"Mirrored"}));
  }
}

STRATEGY_CONTRACT(Spec79_OnesAddUpToTheNumberOfReplicasInsideTheScopeAndOutside) {
  const auto ones = strategy.run([] { return at::ones({}); });
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", ones), scalar(n));
  EXPECT_TENSOR_EQ(strategy.reduce("MEAN", at::tensor({1.f, 2.f}), 0), scalar(1.5));
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", at::tensor({1.f, 2.f}), 0), scalar(3 * n));
  auto scope = strategy.scope();
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", ones), scalar(n));
}

STRATEGY_CONTRACT(Spec81_ReducedIndexedSlicesStaySparse) {
  const auto slices = strategy.distribute_values_from_function([](ValueContext) {
    return IndexedSlices{at::full({1, 2}, 3.f), at::full({1}, 1, at::kLong), {4, 2}};
  });
  Tensor dense = at::zeros({4, 2});
  dense[1].fill_(3 * n);
  const IndexedSlices outside = strategy.reduce("SUM", slices);
  EXPECT_EQ(outside.values.size(0), n);
  EXPECT_TENSOR_EQ(outside.to_dense(), dense);
  const auto inside = strategy.run(
      [](const IndexedSlices& mine) { return get_replica_context()->all_reduce("SUM", mine); },
      slices);
  for (const IndexedSlices& reduced : inside.values()) EXPECT_TENSOR_EQ(reduced.to_dense(), dense);
  EXPECT_TENSOR_EQ(strategy.reduce_to("MEAN", slices, "cpu:0")[0].to_dense(), dense / n);
}

STRATEGY_CONTRACT(IntegersHaveAFloatingMeanUnlessThereIsOneReplica) {
  const auto value = each([](int r) { return at::scalar_tensor(r + 1, at::kInt); });
  const Tensor wanted =
      n == 1 ? at::scalar_tensor(1, at::kInt) : at::scalar_tensor((n + 1) / 2.0, at::kDouble);
  EXPECT_TENSOR_EQ(strategy.reduce("MEAN", value), wanted);
  expect_each(
      strategy.run([](Tensor x) { return get_replica_context()->all_reduce("MEAN", x); }, value),
      [&](int) { return wanted; });
}

STRATEGY_CONTRACT(ResultsOfReduceAreNobodyElsesMemory) {
  const auto value = ids();
  Tensor sum = strategy.reduce("SUM", value);
  sum.add_(100);
  expect_each(value, [](int r) { return scalar(r); });
}

STRATEGY_CONTRACT(ReduceToTheValueItselfIsAnAllReduce) {
  const auto value = ids();
  const Mirrored<Tensor> all = strategy.reduce_to("SUM", value, value);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(local));
  for (const Tensor& sum : all.values()) EXPECT_TENSOR_EQ(sum, scalar(n * (n - 1) / 2.0));
  EXPECT_EQ(strategy.reduce_to("SUM", value, "cpu:0").size(), 1u);
  EXPECT_EQ(strategy.broadcast_to(scalar(4), value).size(), static_cast<std::size_t>(local));
  EXPECT_TENSOR_EQ(strategy.reduce_to("MEAN", scalar(3), value)[0], scalar(3));
}

STRATEGY_CONTRACT(BatchReduceToKeepsTheOrderOfDenseAndSparseValues) {
  const auto dense = ids();
  const auto sparse = strategy.distribute_values_from_function([](ValueContext) {
    return IndexedSlices{at::ones({1}), at::zeros({1}, at::kLong), {3}};
  });
  const auto results =
      strategy.batch_reduce_to("SUM", {{dense, dense}, {sparse, "cpu:0"}, {dense, "cpu:0"}});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[0])[0], scalar(n * (n - 1) / 2.0));
  EXPECT_EQ(std::get<Mirrored<IndexedSlices>>(results[1])[0].to_dense()[0].item<float>(), n);
  EXPECT_EQ(std::get<Mirrored<Tensor>>(results[2]).size(), 1u);
}

// ---- gathering

STRATEGY_CONTRACT(Spec82_GatherJoinsAlongTheAxis) {
  const auto rows = [&](at::IntArrayRef sizes) {
    const std::vector<int64_t> copy = sizes.vec();
    return each([copy](int r) { return at::full(copy, r, at::kFloat); });
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(strategy.gather(rows({3}), 0).sizes(), (Sizes{3 * n}));
  EXPECT_EQ(strategy.gather(rows({1, 3}), 0).sizes(), (Sizes{n, 3}));
  EXPECT_EQ(strategy.gather(rows({1, 3}), 1).sizes(), (Sizes{1, 3 * n}));
  for (int64_t axis : {0, 1, 2, -1}) {
    Sizes wanted{1, 2, 2};
    wanted[static_cast<std::size_t>(axis < 0 ? axis + 3 : axis)] *= n;
    EXPECT_EQ(strategy.gather(rows({1, 2, 2}), axis).sizes(), wanted);
  }
  EXPECT_TENSOR_EQ(strategy.gather(rows({1}), 0), at::arange(n, at::kFloat));
  const Tensor plain = at::ones({2, 2});
  EXPECT_TENSOR_EQ(strategy.gather(plain, 0), plain.repeat({num_workers(), 1}));
}

STRATEGY_CONTRACT(Spec83_AllGatherGivesEveryReplicaAllRowsOfDifferentLengths) {
  Tensor wanted = at::empty({0});
  for (int r = 0; r < n; ++r) wanted = at::cat({wanted, at::full({r + 1}, r, at::kFloat)});
  const auto rows = each([](int r) { return at::full({r + 1}, r, at::kFloat); });
  expect_each(
      strategy.run([](Tensor mine) { return get_replica_context()->all_gather(mine, 0); }, rows),
      [&](int) { return wanted; });
}

STRATEGY_CONTRACT(Spec83_AllGatherTakesNestsOfTensors) {
  const auto [a, b] = strategy.run([] {
    const Tensor row = id().view({1});
    return get_replica_context()->all_gather(std::tuple(row, std::vector{row + 1}), 0);
  });
  expect_each(a, [&](int) { return at::arange(n, at::kFloat); });
  expect_each(b[0], [&](int) { return at::arange(n, at::kFloat) + 1; });
  EXPECT_TRUE(throws_saying<Unimplemented>(
      [&] {
        strategy.run([] {
          const IndexedSlices slices{at::ones({1}), at::zeros({1}, at::kLong), {2}};
          return get_replica_context()->all_gather(slices, 0);
        });
      },
      {"all_gather", "IndexedSlices", "all_reduce"}));
}

STRATEGY_CONTRACT(Spec84_GatherInAReplicaNamesAllGatherAndScalarsCannotBeGathered) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { strategy.run([&] { strategy.gather(at::ones({1}), 0); }); }, {"gather", "all_gather"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.run([] { get_replica_context()->all_gather(at::ones({}), 0); }); },
      {"all_gather", "scalar"}));
  if (n == 1) {
    EXPECT_TENSOR_EQ(strategy.gather(ids(), 0), scalar(0));
    return;
  }
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.gather(ids(), 0); }, {"scalar"}));
}

// ---- input and training

STRATEGY_CONTRACT(Spec12_DistributedDatasetsBeginAtTheBeginning) {
  const auto rows = [](int piece) { return at::arange(2 * piece, 2 * piece + 2, at::kLong); };
  auto dataset = strategy.distribute_dataset(data::range(10 * n).batch(2 * n));
  // The workers get pieces of a batch in turn.
  expect_each(dataset.iterator().get_next(),
              [&](int r) { return rows((r - first) * num_workers() + first / local); });
  auto from_function = strategy.distribute_datasets_from_function([&](const InputContext& context) {
    EXPECT_EQ(context.num_replicas_in_sync(), n);
    return data::range(10 * n).batch(context.get_per_replica_batch_size(2 * n));
  });
  expect_each(from_function.iterator().get_next(), [&](int r) { return rows(r - first); });
}

STRATEGY_CONTRACT(Spec77_TrainingEqualsThatOfOneDeviceOnTheGlobalBatch) {
  const Tensor x = at::arange(4 * n, at::kFloat) / 8;  // the target is w = 1
  double alone = 0;
  for (int step = 0; step < 5; ++step)
    alone -= 0.1 * (2 * x * (x * alone - x)).mean().item<double>();
  auto scope = strategy.scope();
  Variable w(at::zeros({}));
  double error = 1;
  for (int step = 0; step < 5; ++step) {
    strategy.run(
        [&](Tensor rows) {
          GradientTape tape;
          const Tensor prediction = rows * w.value();
          const Tensor loss = (prediction - rows).square().sum() / static_cast<double>(4 * n);
          const Tensor gradient = tape.gradient(loss, std::vector<Variable>{w})[0];
          get_replica_context()->merge_call(
              [&](Strategy& merged, const PerReplica<Tensor>& gradients) {
                merged.update(
                    w, [](Variable v, const Tensor& delta) { v.assign_sub(delta * 0.1); },
                    merged.reduce_to("SUM", gradients, w));
              },
              gradient);
        },
        each([&](int r) { return x.narrow(0, 4 * r, 4).clone(); }));
    const double now = std::abs(w.read_value().item<double>() - 1);
    EXPECT_LT(now, error);
    error = now;
  }
  EXPECT_NEAR(w.read_value().item<double>(), alone, 1e-5);
}

}  // namespace tutti::distribute
