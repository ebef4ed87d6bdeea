// What only a GPU can show. Runs on all GPUs of the machine; what needs two of them checks with one
// that it still works there.

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include "support/expect.h"
#include "support/sparse_rules.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using Tensors = std::vector<Tensor>;

int num_gpus() {
  return at::globalContext().hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount())
                                       : 0;
}
c10::Device gpu(int index) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

MirroredStrategyOptions all_gpus() {
  MirroredStrategyOptions options;
  for (int i = 0; i < num_gpus(); ++i) options.devices.push_back(cat("cuda:", i));
  return options;
}

class Gpus : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GT(num_gpus(), 0) << "no GPU here; these checks are for machines that have one";
  }
  /// One component a GPU: base + i.
  PerReplica<Tensor> on_gpus(const Tensor& base) {
    Tensors components;
    for (int i = 0; i < num_gpus(); ++i) components.push_back((base + i).to(gpu(i)));
    return PerReplica<Tensor>(std::move(components));
  }
  Tensor sum_of(const PerReplica<Tensor>& value) {
    Tensor sum = at::zeros_like(value[0], at::kCPU);
    for (const Tensor& component : value.values()) sum = sum + component.cpu();
    return sum;
  }
  std::vector<std::shared_ptr<const CrossDeviceOps>> algorithms() {
    std::vector<std::shared_ptr<const CrossDeviceOps>> all;
    all.push_back(std::make_shared<ReductionToOneDevice>());
    for (const int packs : {0, 1, 3}) {
      all.push_back(std::make_shared<HierarchicalCopyAllReduce>(
          HierarchicalCopyAllReduceOptions{.num_packs = packs}));
      if (NcclAllReduce::is_built())
        all.push_back(std::make_shared<NcclAllReduce>(NcclAllReduceOptions{.num_packs = packs}));
    }
    return all;
  }
};

TEST_F(Gpus, EveryReplicaComputesOnItsOwn) {
  MirroredStrategy strategy(all_gpus());
  auto scope = strategy.scope();
  Variable w(at::ones({3}));
  const auto products = strategy.run([&] { return w.value() * 2; });
  for (int i = 0; i < num_gpus(); ++i) {
    const auto r = static_cast<std::size_t>(i);
    EXPECT_EQ(products[r].device(), gpu(i));
    EXPECT_EQ(w.components()[r].device(), gpu(i));
    EXPECT_TENSOR_EQ(products[r].cpu(), at::full({3}, 2.0));
  }
}

TEST_F(Gpus, Spec85_EveryAlgorithmGivesTheSumOnEveryDevice) {
  const auto value = on_gpus(at::arange(7, at::kFloat));
  for (const auto& ops : algorithms()) {
    const auto sum = ops->reduce("SUM", value, value);
    const auto mean = ops->reduce("MEAN", value, value);
    for (int i = 0; i < num_gpus(); ++i) {
      const auto r = static_cast<std::size_t>(i);
      EXPECT_EQ(sum[r].device(), gpu(i)) << ops->name();
      EXPECT_TENSOR_EQ(sum[r].cpu(), sum_of(value)) << ops->name();
      EXPECT_TENSOR_NEAR(mean[r].cpu(), sum_of(value) / num_gpus(), 1e-6) << ops->name();
    }
  }
}

TEST_F(Gpus, Spec91_PacksOfMixedDtypesGiveTheSame) {
  std::vector<ValueDestinations> batch;
  std::vector<PerReplica<Tensor>> values;
  for (const auto& [size, dtype] : {std::pair{5, at::kFloat},
                                    {3, at::kHalf},
                                    {7, at::kFloat},
                                    {4, at::kInt},
                                    {1, at::kDouble}}) {
    values.push_back(on_gpus(at::arange(size, dtype)));
    batch.push_back({values.back(), values.back()});
  }
  for (const auto& ops : algorithms()) {
    const auto sums = ops->batch_reduce("SUM", batch);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto& sum = std::get<Mirrored<Tensor>>(sums[i]);
      for (const Tensor& component : sum.values())
        EXPECT_TENSOR_EQ(component.cpu(), sum_of(values[i])) << ops->name();
    }
  }
}

TEST_F(Gpus, Spec89_ValuesOnGpusReduceToTheCpu) {
  const auto value = on_gpus(at::ones({2}));
  for (const auto& ops : algorithms()) {
    const auto sum = ops->reduce("SUM", value, "cpu:0");
    ASSERT_EQ(sum.size(), 1u);
    EXPECT_TRUE(sum[0].is_cpu());
    EXPECT_TENSOR_EQ(sum[0], sum_of(value)) << ops->name();
  }
}

TEST_F(Gpus, Spec94_IntegersAreReducedOnOneDevice) {
  const auto value = on_gpus(at::arange(4, at::kInt));
  for (const auto& ops : algorithms()) {
    const auto sum = ops->reduce("SUM", value, value);
    EXPECT_EQ(sum[0].scalar_type(), at::kInt);
    for (int i = 0; i < num_gpus(); ++i) {
      EXPECT_EQ(sum[static_cast<std::size_t>(i)].device(), gpu(i));
      EXPECT_TENSOR_EQ(sum[static_cast<std::size_t>(i)].cpu(), sum_of(value)) << ops->name();
    }
    EXPECT_EQ(ops->reduce("MEAN", value, value)[0].scalar_type(), at::kDouble);
  }
}

TEST_F(Gpus, Spec95_InputsAreNeitherWrittenNorAliased) {
  const auto value = on_gpus(at::ones({3}));
  for (const auto& ops : algorithms()) {
    const auto sum = ops->reduce("SUM", value, value);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i].fill_(-1);
      EXPECT_TENSOR_EQ(value[i].cpu(), at::full({3}, 1.0 + static_cast<double>(i)));
    }
  }
}

TEST_F(Gpus, CollectivesInReplicasHaveTheirGradients) {
  for (const auto& ops : algorithms()) {
    MirroredStrategyOptions options = all_gpus();
    options.cross_device_ops = ops;
    MirroredStrategy strategy(options);
    const auto gradients = strategy.run([] {
      ReplicaContext& replica = *get_replica_context();
      const double mine = replica.replica_id_in_sync_group() + 1;
      GradientTape tape;
      Tensor x = at::ones({3}, replica.devices()[0].torch_device());
      tape.watch(x);
      const Tensors sums = replica.all_reduce("SUM", Tensors{x * 2, x * 3});
      const Tensor all = replica.all_gather(x, 0);
      return tape.gradient((sums[0] + sums[1]).sum() * mine + all.sum() * mine, x);
    });
    const double total = num_gpus() * (num_gpus() + 1) / 2.0;
    for (std::size_t r = 0; r < gradients.size(); ++r)
      EXPECT_TENSOR_NEAR(gradients[r].cpu(), at::full({3}, 6 * total), 1e-5) << ops->name();
  }
}

/// Weights and slots after three steps of lookups and a dense weight, on the strategy's devices.
Tensors trained(Strategy& strategy, std::shared_ptr<UpdateRule> rule, bool lookup) {
  auto scope = strategy.scope();
  Variable words(at::arange(24, at::kFloat).view({8, 3}) / 24), kernel(at::ones({3, 1}));
  FusedUpdate update({words, kernel}, rule, {.global_clipnorm = 5}, {});
  const std::vector<std::string> slot_names = rule->slot_names();
  for (int step = 0; step < 3; ++step) {
    strategy.run([&] {
      ReplicaContext& replica = *get_replica_context();
      const c10::Device device = replica.devices()[0].torch_device();
      const int replicas = replica.num_replicas_in_sync();
      const Tensor all = (at::arange(16) * (step + 3)) % 7;
      const int64_t begin = 16 * replica.replica_id_in_sync_group() / replicas;
      const int64_t end = 16 * (replica.replica_id_in_sync_group() + 1) / replicas;
      const Tensor ids = all.narrow(0, begin, end - begin).to(device);
      GradientTape tape;
      const Tensor rows =
          lookup ? nn::embedding_lookup(words, ids) : words.value().index_select(0, ids);
      const Tensor error = at::mm(rows, kernel.value()).squeeze(1) - ids;
      update.apply(tape.gradient(nn::compute_average_loss(error.square(), 16),
                                 std::vector<Variable>{words, kernel}));
    });
  }
  Tensors results{words.read_value().cpu(), kernel.read_value().cpu()};
  for (const std::string& name : slot_names) {
    for (const Variable& slot : update.slots(name)) results.push_back(slot.read_value().cpu());
  }
  return results;
}

TEST_F(Gpus, TrainingGivesTheNumbersOfTheCpu) {
  const std::vector<std::shared_ptr<UpdateRule>> rules{std::make_shared<testing::PlainRule>(),
                                                       std::make_shared<testing::MomentumRule>(),
                                                       std::make_shared<testing::AdagradRule>()};
  for (const auto& rule : rules) {
    OneDeviceStrategy cpu("cpu:0");
    const Tensors expected = trained(cpu, rule, false);
    for (const bool lookup : {false, true}) {
      MirroredStrategy strategy(all_gpus());
      const Tensors found = trained(strategy, rule, lookup);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TENSOR_NEAR(found[i], expected[i], 1e-4);
    }
  }
}

TEST_F(Gpus, SlicesAreDeduplicatedThere) {
  const IndexedSlices slices{at::arange(6, at::kFloat).view({3, 2}).to(gpu(0)),
                             at::tensor({4, 1, 4}, at::kLong).to(gpu(0)),
                             {5, 2}};
  const IndexedSlices single = slices.deduplicated();
  EXPECT_TENSOR_EQ(single.indices.cpu(), at::tensor({1, 4}, at::kLong));
  EXPECT_TENSOR_EQ(single.values.cpu(), at::tensor({2.f, 3.f, 4.f, 6.f}).view({2, 2}));
}

TEST_F(Gpus, NcclIsTheDefaultOfSeveralWhereItIsBuilt) {
  MirroredStrategy strategy(all_gpus());
  EXPECT_EQ(strategy.cross_device_ops().name(),
            NcclAllReduce::is_built() && num_gpus() > 1 ? "NcclAllReduce" : "ReductionToOneDevice");
}

}  // namespace
}  // namespace tutti::distribute
