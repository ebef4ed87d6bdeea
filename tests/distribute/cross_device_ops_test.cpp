// CrossDeviceOps: one contract that every algorithm that runs on CPUs must keep, and what is
// particular to each. Longer than usual: the oracle and the cases are one contract for all of them.

#include "tutti/distribute/cross_device_ops.h"

#include <gtest/gtest.h>

#include <atomic>

#include "support/expect.h"
#include "support/message_checks.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::throws_saying;
using OpsPtr = std::shared_ptr<const CrossDeviceOps>;

PerReplica<Tensor> per_replica(std::vector<Tensor> values) {
  return PerReplica<Tensor>(std::move(values));
}
Tensor numbers(std::vector<double> values, at::ScalarType dtype = at::kFloat) {
  return at::tensor(values, at::kDouble).to(dtype);
}

MirroredStrategyOptions cpus(int count, OpsPtr ops = nullptr) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  options.cross_device_ops = ops;
  return options;
}

// ---- algorithms of a user, each with one part of its own

/// Counts calls of what it overrides.
struct OwnReduce : CrossDeviceOps {
  mutable std::atomic<int> calls{0};
  std::string name() const override { return "OwnReduce"; }
  Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions&) const override {
    ++calls;
    Tensor sum = at::zeros_like(value[0]);
    for (const Tensor& component : value.values()) sum = sum + component;
    if (op == ReduceOp::kMean) sum = sum / static_cast<double>(value.size());
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < destinations.devices().size(); ++i) results.push_back(sum.clone());
    return Mirrored<Tensor>(std::move(results));
  }
};

struct OwnBatch : CrossDeviceOps {
  mutable std::atomic<int> calls{0};
  mutable std::atomic<int> values_seen{0};
  std::string name() const override { return "OwnBatch"; }
  std::vector<Mirrored<Tensor>> batch_reduce_implementation(
      ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>& values,
      const CommunicationOptions& options) const override {
    ++calls;
    values_seen += static_cast<int>(values.size());
    std::vector<Mirrored<Tensor>> results;
    for (std::size_t i = values.size(); i-- > 0;)  // the last first
      results.push_back(reduce_implementation(op, values[i].first, values[i].second, options));
    std::reverse(results.begin(), results.end());
    return results;
  }
};

struct OwnBroadcast : CrossDeviceOps {
  mutable std::atomic<int> calls{0};
  std::string name() const override { return "OwnBroadcast"; }
  Mirrored<Tensor> broadcast_implementation(const Tensor& tensor,
                                            const Destinations& destinations) const override {
    ++calls;
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < destinations.devices().size(); ++i)
      results.push_back(tensor.clone());
    return Mirrored<Tensor>(std::move(results));
  }
};

// ---- the contract

struct Algorithm {
  const char* name;
  OpsPtr (*make)();
};
void PrintTo(const Algorithm& algorithm, std::ostream* out) { *out << algorithm.name; }

template <int kPacks>
OpsPtr hierarchical() {
  return std::make_shared<HierarchicalCopyAllReduce>(
      HierarchicalCopyAllReduceOptions{.num_packs = kPacks});
}

const Algorithm kAlgorithms[] = {
    {"ReductionToOneDevice", []() -> OpsPtr { return std::make_shared<ReductionToOneDevice>(); }},
    {"ReductionToAnotherDevice",
     []() -> OpsPtr {
       return std::make_shared<ReductionToOneDevice>(
           ReductionToOneDeviceOptions{.reduce_to_device = "cpu:1"});
     }},
    {"OwnAccumulation",
     []() -> OpsPtr {
       return std::make_shared<ReductionToOneDevice>(
           ReductionToOneDeviceOptions{.accumulation_fn = [](const std::vector<Tensor>& parts) {
             Tensor sum = parts[0];
             for (std::size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i];
             return sum;
           }});
     }},
    {"HierarchicalNoPacks", hierarchical<0>},
    {"HierarchicalOnePack", hierarchical<1>},
    {"HierarchicalThreePacks", hierarchical<3>},
    {"HierarchicalMorePacksThanElements", hierarchical<1000>},
    {"OwnReduce", []() -> OpsPtr { return std::make_shared<OwnReduce>(); }},
    {"OwnBatch", []() -> OpsPtr { return std::make_shared<OwnBatch>(); }},
    {"OwnBroadcast", []() -> OpsPtr { return std::make_shared<OwnBroadcast>(); }},
};

class CrossDeviceOpsContract : public ::testing::TestWithParam<Algorithm> {
 protected:
  OpsPtr ops = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(Algorithms, CrossDeviceOpsContract, ::testing::ValuesIn(kAlgorithms),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CrossDeviceOpsContract, Spec85_ReduceOfOneTwoOrFourParticipants) {
  const double sums[] = {1, 3, 0, 10};
  const double means[] = {1, 1.5, 0, 2.5};
  for (const std::size_t participants : {1, 2, 4}) {
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < participants; ++i) values.push_back(numbers({i + 1.0}));
    const auto value = per_replica(values);
    for (const auto implementation :
         {CommunicationImplementation::kAuto, CommunicationImplementation::kRing,
          CommunicationImplementation::kNccl}) {
      const CommunicationOptions options{.implementation = implementation};
      const auto sum = ops->reduce("sum", value, value, options);
      const auto mean = ops->reduce("Mean", value, value, options);
      ASSERT_EQ(sum.size(), participants);
      for (std::size_t i = 0; i < participants; ++i) {
        EXPECT_TENSOR_EQ(sum[i], numbers({sums[participants - 1]}));
        EXPECT_TENSOR_EQ(mean[i], numbers({means[participants - 1]}));
      }
    }
  }
}

TEST_P(CrossDeviceOpsContract, Spec86_BatchReduce) {
  const auto batch = [](std::size_t participants) {
    std::vector<Tensor> first, second;
    for (std::size_t i = 0; i < participants; ++i) {
      first.push_back(numbers({2.0 * i + 1}));
      second.push_back(numbers({2.0 * i + 2}));
    }
    const auto a = per_replica(first), b = per_replica(second);
    return std::vector<ValueDestinations>{{a, a}, {b, b}};
  };
  const auto expect = [&](std::size_t participants, AnyReduceOp op, double first, double second) {
    const auto results = ops->batch_reduce(op, batch(participants));
    ASSERT_EQ(results.size(), 2u);
    for (std::size_t i = 0; i < participants; ++i) {
      EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[0])[i], numbers({first}));
      EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[1])[i], numbers({second}));
    }
  };
  expect(2, "SUM", 4, 6);
  expect(2, "MEAN", 2, 3);
  expect(4, "SUM", 16, 20);
  expect(4, "MEAN", 4, 5);
}

TEST_P(CrossDeviceOpsContract, Spec87_SparseReduceIsConcatenation) {
  const IndexedSlices a{numbers({1, 2, 3, 4}).view({2, 2}), at::tensor({4, 0}, at::kLong), {5, 2}};
  const IndexedSlices b{numbers({5, 6}).view({1, 2}), at::tensor({4}, at::kLong), {5, 2}};
  const PerReplica<IndexedSlices> value(std::vector<IndexedSlices>{a, b});
  const auto sum = ops->reduce("SUM", value, value);
  ASSERT_EQ(sum.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TENSOR_EQ(sum[i].indices, at::tensor({4, 0, 4}, at::kLong));
    EXPECT_EQ(sum[i].dense_shape, a.dense_shape);
    EXPECT_TENSOR_EQ(sum[i].to_dense(), a.to_dense() + b.to_dense());
  }
  EXPECT_TENSOR_EQ(ops->reduce("MEAN", value, "cpu:0")[0].to_dense(),
                   (a.to_dense() + b.to_dense()) / 2);
  EXPECT_FALSE(sum[0].values.is_alias_of(sum[1].values));
}

TEST_P(CrossDeviceOpsContract, Spec88_AMixedBatchKeepsItsOrder) {
  const auto dense = [](double at) { return per_replica({numbers({at}), numbers({at + 1})}); };
  const auto sparse = [](double at) {
    const auto one = [](double value) {
      return IndexedSlices{numbers({value}), at::tensor({1}, at::kLong), {3}};
    };
    return PerReplica<IndexedSlices>(std::vector<IndexedSlices>{one(at), one(at + 1)});
  };
  const auto results = ops->batch_reduce("SUM", {{sparse(10), sparse(10)},
                                                 {dense(20), dense(20)},
                                                 {sparse(30), sparse(30)},
                                                 {dense(40), dense(40)},
                                                 {dense(50), dense(50)}});
  ASSERT_EQ(results.size(), 5u);
  EXPECT_TENSOR_EQ(std::get<Mirrored<IndexedSlices>>(results[0])[1].to_dense(),
                   numbers({0, 21, 0}));
  EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[1])[1], numbers({41}));
  EXPECT_TENSOR_EQ(std::get<Mirrored<IndexedSlices>>(results[2])[0].to_dense(),
                   numbers({0, 61, 0}));
  EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[3])[0], numbers({81}));
  EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[4])[1], numbers({101}));
}

TEST_P(CrossDeviceOpsContract, Spec89_DestinationsNeedNotBeWhereTheValuesAre) {
  const auto value = per_replica({numbers({1, 2}), numbers({3, 4}), numbers({5, 6})});
  const auto one = ops->reduce("SUM", value, "/job:localhost/device:CPU:0");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_TENSOR_EQ(one[0], numbers({9, 12}));
  const auto five = ops->reduce("MEAN", value, std::vector<DeviceName>(5));
  ASSERT_EQ(five.size(), 5u);
  EXPECT_TENSOR_EQ(five[4], numbers({3, 4}));
  EXPECT_TENSOR_EQ(ops->reduce("SUM", value), numbers({9, 12}));
}

TEST_P(CrossDeviceOpsContract, DestinationsMayBeAVariableAndATensorWhichAreNotWritten) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  Variable variable(numbers({7, 7}));
  const auto value = per_replica({numbers({1, 2}), numbers({3, 4})});
  EXPECT_EQ(ops->reduce("SUM", value, variable).size(), 2u);
  EXPECT_TENSOR_EQ(variable.components()[0], numbers({7, 7}));
  EXPECT_TENSOR_EQ(variable.components()[1], numbers({7, 7}));
  const Tensor tensor = numbers({8, 8});
  EXPECT_TENSOR_EQ(ops->reduce("SUM", value, tensor)[0], numbers({4, 6}));
  EXPECT_TENSOR_EQ(tensor, numbers({8, 8}));
}

TEST_P(CrossDeviceOpsContract, Spec90_ArgumentsAreChecked) {
  const auto value = per_replica({numbers({1}), numbers({2})});
  const auto refused = [&](const PerReplica<Tensor>& wrong, const char* part) {
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { ops->reduce("SUM", wrong, "cpu:0"); }, {part}));
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] {
          ops->batch_reduce("SUM", {{value, value}, {wrong, "cpu:0"}});
        },
        {part}));
  };
  refused(PerReplica<Tensor>(), "without components");
  refused(per_replica({numbers({1}), numbers({1, 2})}), "float32 (1,) and float32 (2,)");
  refused(per_replica({numbers({1}), numbers({1}, at::kDouble)}), "float64");
  refused(per_replica({numbers({1}), Tensor()}), "undefined");
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { ops->reduce("SUM", PerReplica<IndexedSlices>(), "cpu:0"); }, {"without components"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { ops->reduce("SUM", value, ""); },
                                             {"empty destination"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { ops->reduce("SUM", value, "disk:0"); }, {"disk:0"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { ops->reduce("SUM", value, PerReplica<Tensor>()); },
                                     {"destinations without components"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { ops->reduce("SUM", value, std::vector<DeviceName>{}); }, {"without devices"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { ops->reduce("SUM", value, Tensor()); },
                                             {"undefined tensor as destination"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { ops->reduce("prod", value, value); }, {"prod"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { ops->broadcast(Tensor(), "cpu:0"); }, {"undefined"}));
}

TEST_P(CrossDeviceOpsContract, Spec91_UnevenTotalsOfSeveralDtypesGiveTheSame) {
  // 1 + 7 + 0 + 4 floats, 5 doubles, 3 integers, one scalar: no total divides by three.
  std::vector<ValueDestinations> batch;
  std::vector<Tensor> sums;
  const std::vector<std::pair<std::vector<int64_t>, at::ScalarType>> shapes = {
      {{1}, at::kFloat}, {{7}, at::kFloat},    {{5}, at::kDouble}, {{0, 3}, at::kFloat},
      {{3}, at::kInt},   {{2, 2}, at::kFloat}, {{}, at::kFloat}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::vector<Tensor> components;
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t numel = c10::multiply_integers(shapes[i].first);
      components.push_back((at::arange(numel) + 10 * static_cast<int64_t>(i) + r * r)
                               .view(shapes[i].first)
                               .to(shapes[i].second));
    }
    sums.push_back(components[0] + components[1] + components[2]);
    const auto value = per_replica(components);
    batch.push_back({value, value});
  }
  const auto results = ops->batch_reduce("SUM", batch);
  const auto means = ops->batch_reduce("MEAN", batch);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto& result = std::get<Mirrored<Tensor>>(results[i]);
    const auto& mean = std::get<Mirrored<Tensor>>(means[i]);
    ASSERT_EQ(result.size(), 3u);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_TENSOR_EQ(result[r], sums[i]);
      EXPECT_EQ(result[r].scalar_type(), sums[i].scalar_type());
      EXPECT_TENSOR_NEAR(mean[r], sums[i].to(at::kDouble) / 3, 1e-6);
    }
  }
}

TEST_P(CrossDeviceOpsContract, EveryDtypeIsReduced) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                           at::kShort, at::kChar, at::kByte}) {
    const auto value = per_replica({numbers({1, 2}, dtype), numbers({3, 5}, dtype)});
    const auto sum = ops->reduce("SUM", value, value);
    EXPECT_EQ(sum[1].scalar_type(), dtype);
    EXPECT_TENSOR_EQ(sum[1], numbers({4, 7}, dtype));
    const auto mean = ops->reduce("MEAN", value, value);
    EXPECT_EQ(mean[1].scalar_type(), at::isIntegralType(dtype, false) ? at::kDouble : dtype);
    EXPECT_TENSOR_EQ(mean[1], numbers({2, 3.5}));
  }
}

TEST_P(CrossDeviceOpsContract, Spec94_TheMeanOfIntegersIsFloat64) {
  const auto value =
      per_replica({numbers({2147483647}, at::kInt), numbers({2147483646}, at::kInt)});
  const auto mean = ops->reduce("MEAN", value, value);
  EXPECT_EQ(mean[0].scalar_type(), at::kDouble);
  EXPECT_EQ(mean[0].item<double>(), 2147483646.5);  // the sum would not fit in 32 bits
}

TEST_P(CrossDeviceOpsContract, Spec95_InputsMayBeTheDestinationsAndAreNeitherWrittenNorAliased) {
  for (const AnyReduceOp op : {AnyReduceOp("SUM"), AnyReduceOp("MEAN")}) {
    for (const std::size_t replicas : {1, 2, 3}) {
      std::vector<Tensor> components, before;
      for (std::size_t r = 0; r < replicas; ++r) components.push_back(at::rand({3, 5}));
      for (const Tensor& component : components) before.push_back(component.clone());
      const auto value = per_replica(components);
      const auto check = [&](const Mirrored<Tensor>& result) {
        for (std::size_t r = 0; r < result.size(); ++r) {
          result[r].fill_(-1);  // must reach nobody else
          for (std::size_t other = 0; other < replicas; ++other)
            EXPECT_TENSOR_EQ(components[other], before[other]);
          for (std::size_t other = r + 1; other < result.size(); ++other)
            EXPECT_NE(result[other].flatten()[0].item<float>(), -1.f);
        }
      };
      check(ops->reduce(op, value, value));
      for (const auto& result : ops->batch_reduce(op, {{value, value}, {value, "cpu:0"}}))
        check(std::get<Mirrored<Tensor>>(result));
    }
  }
  const Tensor tensor = at::ones({3});
  const auto copies = ops->broadcast(tensor, std::vector<DeviceName>(2));
  copies[0].fill_(5);
  EXPECT_TENSOR_EQ(copies[1], at::ones({3}));
  EXPECT_TENSOR_EQ(tensor, at::ones({3}));
}

TEST_P(CrossDeviceOpsContract, ResultsCarryNoGradient) {
  const auto value =
      per_replica({numbers({1}).requires_grad_(true), numbers({2}).requires_grad_(true)});
  EXPECT_FALSE(ops->reduce("SUM", value, value)[0].requires_grad());
  EXPECT_FALSE(ops->broadcast(value[0], "cpu:0")[0].requires_grad());
}

TEST_P(CrossDeviceOpsContract, AStrategyReducesWithIt) {
  MirroredStrategy strategy(cpus(2, ops));
  EXPECT_EQ(&strategy.cross_device_ops(), ops.get());
  const auto value = per_replica({numbers({1, 2}), numbers({3, 4})});
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", value), numbers({4, 6}));
  EXPECT_TENSOR_EQ(strategy.reduce_to("MEAN", value, value)[1], numbers({2, 3}));
  const auto batch = strategy.batch_reduce_to("SUM", {{value, value}, {value, "cpu:0"}});
  EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(batch[1])[0], numbers({4, 6}));
  const auto inside = strategy.run(
      [](Tensor mine) {
        ReplicaContext& replica = *get_replica_context();
        const Tensor alone = replica.all_reduce("SUM", mine);
        const auto nest = replica.all_reduce("MEAN", std::vector<Tensor>{mine, mine.to(at::kInt)});
        return std::tuple(alone, nest[0], nest[1]);
      },
      value);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TENSOR_EQ(std::get<0>(inside)[r], numbers({4, 6}));
    EXPECT_TENSOR_EQ(std::get<1>(inside)[r], numbers({2, 3}));
    EXPECT_TENSOR_EQ(std::get<2>(inside)[r], numbers({2, 3}));
    EXPECT_EQ(std::get<2>(inside)[r].scalar_type(), at::kDouble);
  }
}

// ---- what a user's class gets

TEST(CrossDeviceOps, AnOwnReduceIsUsedByEveryReductionOfAStrategy) {
  const auto ops = std::make_shared<OwnReduce>();
  MirroredStrategy strategy(cpus(2, ops));
  const auto value = per_replica({numbers({1}), numbers({2})});
  const auto calls_of = [&](auto call) {
    const int before = ops->calls;
    call();
    return ops->calls - before;
  };
  EXPECT_EQ(calls_of([&] { strategy.reduce("SUM", value); }), 1);
  EXPECT_EQ(calls_of([&] { strategy.reduce_to("SUM", value, value); }), 1);
  EXPECT_EQ(calls_of([&] {
              strategy.batch_reduce_to("SUM", {{value, value}, {value, value}});
            }),
            2);
  EXPECT_EQ(calls_of([&] {
              strategy.run([](Tensor x) { get_replica_context()->all_reduce("SUM", x); }, value);
            }),
            1);
  EXPECT_EQ(calls_of([&] {
              strategy.run(
                  [](Tensor x) {
                    get_replica_context()->all_reduce("SUM", std::vector<Tensor>{x, x, x});
                  },
                  value);
            }),
            3);
}

TEST(CrossDeviceOps, AnOwnBatchSeesTheWholeBatch) {
  const auto ops = std::make_shared<OwnBatch>();
  MirroredStrategy strategy(cpus(2, ops));
  const auto value = per_replica({numbers({1}), numbers({2})});
  strategy.reduce("SUM", value);
  EXPECT_EQ(ops->calls, 0);
  strategy.batch_reduce_to("SUM", {{value, value}, {value, value}, {value, "cpu:0"}});
  EXPECT_EQ(ops->calls, 1);
  EXPECT_EQ(ops->values_seen, 3);
  strategy.run([](Tensor x) { get_replica_context()->all_reduce("SUM", std::pair(x, x)); }, value);
  EXPECT_EQ(ops->calls, 2);
  EXPECT_EQ(ops->values_seen, 5);
}

TEST(CrossDeviceOps, AnOwnBroadcastHandsOutReductionsToo) {
  const auto ops = std::make_shared<OwnBroadcast>();
  MirroredStrategy strategy(cpus(2, ops));
  const auto value = per_replica({numbers({1}), numbers({2})});
  strategy.broadcast_to(numbers({1}), value);
  EXPECT_EQ(ops->calls, 1);
  strategy.reduce_to("SUM", value, value);
  EXPECT_EQ(ops->calls, 2);
}

TEST(CrossDeviceOps, AClassDerivedFromReductionToOneDeviceIsAskedToo) {
  struct Doubling : ReductionToOneDevice {
    Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                           const Destinations& destinations,
                                           const CommunicationOptions& options) const override {
      const auto sum =
          ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
      std::vector<Tensor> doubled;
      for (const Tensor& component : sum.values()) doubled.push_back(component * 2);
      return Mirrored<Tensor>(std::move(doubled));
    }
  };
  MirroredStrategy strategy(cpus(2, std::make_shared<Doubling>()));
  const auto sums =
      strategy.run([](Tensor x) { return get_replica_context()->all_reduce("SUM", x); },
                   per_replica({numbers({1}), numbers({2})}));
  EXPECT_TENSOR_EQ(sums[1], numbers({6}));
}

TEST(CrossDeviceOps, AnImplementationThatGivesTheWrongNumberOfResultsIsNamed) {
  struct Forgetful : CrossDeviceOps {
    std::string name() const override { return "Forgetful"; }
    Mirrored<Tensor> reduce_implementation(ReduceOp, const PerReplica<Tensor>&, const Destinations&,
                                           const CommunicationOptions&) const override {
      return {};
    }
    std::vector<Mirrored<Tensor>> batch_reduce_implementation(
        ReduceOp, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>&,
        const CommunicationOptions&) const override {
      return {};
    }
  };
  const Forgetful ops;
  const auto value = per_replica({numbers({1}), numbers({2})});
  EXPECT_ERROR(ops.reduce("SUM", value, value), InvalidArgument,
               "reduce [Forgetful]: the implementation gave 0 components for 2 destinations");
  EXPECT_ERROR(ops.batch_reduce("SUM", {{value, value}}), InvalidArgument,
               "batch_reduce [Forgetful]: the implementation gave 0 results for 1 values");
}

// ---- each algorithm's own

TEST(ReductionToOneDeviceOps, UsesTheAccumulationInReplicaOrder) {
  std::vector<double> seen;
  const ReductionToOneDevice ops({.accumulation_fn = [&](const std::vector<Tensor>& parts) {
    Tensor largest = parts[0];
    for (const Tensor& part : parts) {
      seen.push_back(part.item<double>());
      largest = at::maximum(largest, part);
    }
    return largest;
  }});
  const auto value =
      per_replica({at::scalar_tensor(3.0), at::scalar_tensor(9.0), at::scalar_tensor(6.0)});
  EXPECT_EQ(ops.reduce("SUM", value).item<double>(), 9);
  EXPECT_EQ(seen, (std::vector<double>{3, 9, 6}));
  EXPECT_EQ(ops.reduce("MEAN", value).item<double>(), 3);
  EXPECT_FALSE(ops.is_plain());
}

TEST(ReductionToOneDeviceOps, RefusesAnAccumulationOfAnotherShapeAndABadDevice) {
  const ReductionToOneDevice ops(
      {.accumulation_fn = [](const std::vector<Tensor>& parts) { return parts[0].sum(); }});
  EXPECT_ERROR(ops.reduce("SUM", per_replica({numbers({1, 2}), numbers({3, 4})})), InvalidArgument,
               "accumulation_fn]: float32 (), expected float32 (2,)");
  EXPECT_ERROR(ReductionToOneDevice({.reduce_to_device = "tape:0"}), InvalidArgument, "tape:0");
}

TEST(HierarchicalCopyAllReduceOps, Spec91_ANegativeNumberOfPacksIsRefused) {
  EXPECT_ERROR(HierarchicalCopyAllReduce({.num_packs = -1}), InvalidArgument,
               "HierarchicalCopyAllReduce [num_packs]: -1");
  EXPECT_ERROR(NcclAllReduce({.num_packs = -1}), InvalidArgument, "NcclAllReduce [num_packs]: -1");
  EXPECT_EQ(HierarchicalCopyAllReduce({.num_packs = 0}).num_packs(), 0);
}

TEST(HierarchicalCopyAllReduceOps, EveryNumberOfPacksGivesTheSameBits) {
  std::vector<ValueDestinations> batch;
  for (int i = 0; i < 4; ++i) {
    std::vector<Tensor> components;
    for (int r = 0; r < 5; ++r) components.push_back(at::rand({3, i + 1}));
    const auto value = per_replica(components);
    batch.push_back({value, value});
  }
  const auto reference = HierarchicalCopyAllReduce().batch_reduce("MEAN", batch);
  for (const int packs : {0, 2, 3, 7, 31}) {
    const auto results =
        HierarchicalCopyAllReduce({.num_packs = packs}).batch_reduce("MEAN", batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      for (std::size_t r = 0; r < 5; ++r) {
        EXPECT_TENSOR_EQ(std::get<Mirrored<Tensor>>(results[i])[r],
                         std::get<Mirrored<Tensor>>(reference[i])[r]);
      }
    }
  }
}

TEST(HierarchicalCopyAllReduceOps, AWriteToOneResultDoesNotCountAsAWriteToTheOthers) {
  const auto value = per_replica({numbers({1, 2}), numbers({3, 4})});
  const auto results =
      HierarchicalCopyAllReduce().batch_reduce("SUM", {{value, value}, {value, value}});
  Tensor first = std::get<Mirrored<Tensor>>(results[0])[0];
  Tensor second = std::get<Mirrored<Tensor>>(results[1])[0];
  Tensor weight = numbers({1, 1}).requires_grad_(true);
  const Tensor product = (weight * second).sum();  // keeps `second` for its gradient
  first.add_(1);
  product.backward();
  EXPECT_TENSOR_EQ(weight.grad(), numbers({4, 6}));
}

TEST(NcclAllReduceOps, OnCpusItNamesTheAlternatives) {
  const auto parts = {"CUDA", "ReductionToOneDevice", "HierarchicalCopyAllReduce"};
  const auto value = per_replica({numbers({1}), numbers({2})});
  const NcclAllReduce ops;
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { ops.reduce("SUM", value, value); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        ops.batch_reduce("SUM", {{value, value}});
      },
      parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { MirroredStrategy(cpus(2, std::make_shared<NcclAllReduce>())); }, parts));
}

TEST(CommunicationOptionsRules, Spec92_FieldsThatAreSetWinAndNegativeOnesAreRefused) {
  const CommunicationOptions base{.bytes_per_pack = 10, .timeout_seconds = 3};
  const CommunicationOptions merged = base.merged_with(
      {.timeout_seconds = 5, .implementation = CommunicationImplementation::kRing});
  EXPECT_EQ(merged.bytes_per_pack, 10);
  EXPECT_EQ(merged.timeout_seconds, 5);
  EXPECT_EQ(merged.implementation, CommunicationImplementation::kRing);
  EXPECT_EQ(merged.merged_with({}).implementation, CommunicationImplementation::kRing);
  EXPECT_THROW(base.merged_with({.bytes_per_pack = -1}), InvalidArgument);
  EXPECT_THROW(base.merged_with({.timeout_seconds = -1}), InvalidArgument);
}

}  // namespace
}  // namespace tutti::distribute
