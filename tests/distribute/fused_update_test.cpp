// Which gradients an update takes: sums over replicas, none, clipped before or after.

#include "tutti/distribute/fused_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect.h"
#include "support/message_checks.h"
#include "support/sparse_rules.h"
#include "tutti/base/log.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::throws_saying;
using Tensors = std::vector<Tensor>;

std::unique_ptr<MirroredStrategy> mirrored(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}
int replica_id() { return get_replica_context()->replica_id_in_sync_group(); }
std::shared_ptr<UpdateRule> plain() { return std::make_shared<testing::PlainRule>(); }
Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kFloat); }

/// What is logged while `body` runs.
template <class Body>
std::string log_of(Body body) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  body();
  const std::string log = ::testing::internal::GetCapturedStderr();
  set_log_level(before);
  return log;
}

TEST(Updates, Spec118_AnUpdateUsesTheSumAndSoDoesAReductionByHand) {
  for (const bool by_hand : {false, true}) {
    auto strategy = mirrored(3);
    auto scope = strategy->scope();
    Variable w(numbers({1, 2}));
    FusedUpdate update({w}, plain(), {}, {});
    strategy->run([&] {
      Tensors gradients{numbers({1, 10}) * (replica_id() + 1)};
      if (by_hand) gradients = get_replica_context()->all_reduce("SUM", gradients);
      update.apply(gradients, /*sum_replicas=*/!by_hand);
    });
    EXPECT_TENSOR_NEAR(w.value(), numbers({1 - 0.6, 2 - 6}), 1e-6);
  }
}

TEST(Updates, Spec119_ClippingBeforeAggregationIsNotClippingAfterAndBothCanBeSaid) {
  // Gradients (3, 4) and (0, 20): by replica to norm 1 gives (0.6, 0.8) + (0, 1); the sum (3, 24)
  // to norm 1 gives (3, 24) / sqrt(585).
  const auto gradient = [] { return replica_id() == 0 ? numbers({3, 4}) : numbers({0, 20}); };
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable before(numbers({0, 0})), after(numbers({0, 0}));
  FusedUpdate plain_update({before}, plain(), {}, {});
  FusedUpdate clipping_update({after}, plain(), {.global_clipnorm = 1}, {});
  strategy->run([&] {
    const Tensor mine = gradient();
    plain_update.apply({mine / at::clamp_min(mine.norm(), 1)});
    clipping_update.apply({mine});
  });
  EXPECT_TENSOR_NEAR(before.value(), numbers({-0.06, -0.18}), 1e-6);
  EXPECT_TENSOR_NEAR(after.value(), numbers({-0.3, -2.4}) / std::sqrt(585.0), 1e-6);
}

TEST(Updates, AGradientThatOneReplicaLacksCountsAsZeroThere) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  Variable a(numbers({0, 0})), b(numbers({0}));
  FusedUpdate update({a, b}, plain(), {}, {});
  const std::string log = log_of([&] {
    strategy->run([&] {
      if (replica_id() == 1) return update.apply({Tensor(), Tensor()});  // it has none at all
      update.apply({numbers({1, 2}), replica_id() == 0 ? Tensor() : numbers({5})});
    });
  });
  EXPECT_EQ(log, "");
  EXPECT_TENSOR_NEAR(a.value(), numbers({-0.2, -0.4}), 1e-6);
  EXPECT_TENSOR_NEAR(b.value(), numbers({-0.5}), 1e-6);
}

TEST(Updates, AVariableWithoutAnyGradientIsLeftAloneAndNamedOnce) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable used(numbers({0}), {.name = "used"}), unused(numbers({7}), {.name = "unused"}),
      late(numbers({7}), {.name = "late"});
  FusedUpdate update({used, unused, late}, std::make_shared<testing::MomentumRule>(), {}, {});
  const auto step = [&](Tensor of_late) {
    return log_of([&] { strategy->run([&] { update.apply({numbers({1}), Tensor(), of_late}); }); });
  };
  const std::string first = step(numbers({1}));
  EXPECT_NE(first.find("no gradient for unused;"), std::string::npos) << first;
  EXPECT_EQ(step(numbers({1})), "");
  EXPECT_NE(step(Tensor()).find("no gradient for late;"), std::string::npos);
  EXPECT_EQ(step(Tensor()), "");
  EXPECT_TENSOR_EQ(unused.value(), numbers({7}));
  EXPECT_TENSOR_EQ(update.slots("momentum")[1].value(), numbers({0}));
  EXPECT_EQ(update.iterations(), 4);
}

TEST(Updates, NoGradientAtAllIsAnErrorOnEveryReplica) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable a(numbers({1})), b(numbers({1}));
  FusedUpdate update({a, b}, plain(), {}, {});
  std::atomic<int> refused{0};
  strategy->run([&] {
    try {
      update.apply({Tensor(), Tensor()});
    } catch (const InvalidArgument&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_ERROR(update.apply({Tensor(), Tensor()}), InvalidArgument,
               "no gradient for any of the 2 variables");
  EXPECT_EQ(update.iterations(), 0);
  strategy->run([&] { update.apply({numbers({1}), numbers({1})}); });
  EXPECT_TENSOR_NEAR(a.value(), numbers({0.8}), 1e-6);
}

TEST(Updates, AWholeStepOfLookupsTrainsAsADenseOneDoes) {
  const auto trained = [](int replicas, bool lookup) {
    auto strategy = mirrored(replicas);
    auto scope = strategy->scope();
    Variable words(at::arange(12, at::kFloat).view({6, 2}) / 12), kernel(at::ones({2, 1}));
    FusedUpdate update({words, kernel}, plain(), {}, {});
    for (int step = 0; step < 3; ++step) {
      strategy->run([&] {
        GradientTape tape;
        // Eight examples in all, dealt out.
        Tensor ids = (at::arange(8) * (step + 3)) % 5;
        const int64_t mine = 8 / replicas;
        ids = ids.narrow(0, replica_id() * mine, mine);
        const Tensor rows =
            lookup ? nn::embedding_lookup(words, ids) : words.value().index_select(0, ids);
        const Tensor error = at::mm(rows, kernel.value()).squeeze(1) - ids;
        update.apply(tape.gradient(nn::compute_average_loss(error.square(), 8),
                                   std::vector<Variable>{words, kernel}));
      });
    }
    return std::pair(words.read_value(), kernel.read_value());
  };
  const auto dense = trained(1, false);
  for (const int replicas : {1, 2, 4}) {
    const auto sparse = trained(replicas, true);
    EXPECT_TENSOR_NEAR(sparse.first, dense.first, 1e-6);
    EXPECT_TENSOR_NEAR(sparse.second, dense.second, 1e-6);
  }
}

// ---- scales, the finite test, whole variables, constraints
// ------------------------------------------------------------------------------------------------

TEST(Updates, AScaleComesBeforeClippingAndNormsAreOfWhatItLeaves) {
  for (const GradientClipping& clipping :
       {GradientClipping{}, GradientClipping{.clipnorm = 2}, GradientClipping{.clipvalue = 1.5},
        GradientClipping{.global_clipnorm = 2}}) {
    for (const int replicas : {1, 3}) {
      auto strategy = mirrored(replicas);
      auto scope = strategy->scope();
      Variable a(numbers({0, 0})), b(numbers({0, 0}));
      FusedUpdate scaled({a}, plain(), clipping, {}), unscaled({b}, plain(), clipping, {});
      strategy->run([&] {
        scaled.apply({numbers({24, 32}) / replicas}, {.scale = 0.125});
        unscaled.apply({numbers({3, 4}) / replicas});
      });
      EXPECT_TENSOR_NEAR(a.value(), b.value(), 1e-6);
    }
  }
}

TEST(Updates, FiniteMeansTheSumOverTheReplicasAndChangesNothing) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  Variable w(at::zeros({5000})), table(at::zeros({10, 2})), wide(at::zeros({3}, at::kDouble)),
      half(at::zeros({3}, at::kHalf));
  FusedUpdate update({w, table, wide, half}, std::make_shared<testing::MomentumRule>(), {}, {});
  const auto rows = [](double value) {
    return at::sparse_coo_tensor(at::tensor({int64_t{7}}).view({1, 1}),
                                 at::full({1, 2}, value, at::kFloat), {10, 2});
  };
  const auto answer = [&](Tensors gradients) {
    std::atomic<int> finite{0};
    strategy->run([&] {
      Tensors mine(4);
      if (replica_id() == 1) mine = gradients;
      if (!mine[0].defined()) mine[0] = at::ones({5000});
      finite += update.all_finite(mine) ? 1 : 0;
    });
    EXPECT_TRUE(finite == 0 || finite == 3);
    return finite == 3;
  };
  const auto with = [](int64_t place, double value) {
    Tensor gradient = at::ones({5000});
    gradient[place] = value;
    return gradient;
  };
  EXPECT_TRUE(answer({with(17, 3e38), rows(1), at::full({3}, 1e300, at::kDouble), Tensor()}));
  for (const int64_t place : {0, 17, 2048, 4999}) {
    EXPECT_FALSE(answer({with(place, kInfinity), rows(1), Tensor(), Tensor()}));
    EXPECT_FALSE(answer({with(place, std::nan("")), Tensor(), Tensor(), Tensor()}));
  }
  EXPECT_FALSE(answer({Tensor(), rows(kInfinity), Tensor(), Tensor()}));
  EXPECT_FALSE(answer({Tensor(), Tensor(), at::full({3}, -kInfinity, at::kDouble), Tensor()}));
  EXPECT_FALSE(answer({Tensor(), Tensor(), Tensor(), at::full({3}, kInfinity, at::kHalf)}));
  bool sum_is_finite = true;
  strategy->run([&] {  // each is, their sum is not
    const bool finite = update.all_finite({at::full({5000}, 2e38F), Tensor(), Tensor(), Tensor()});
    if (replica_id() == 0) sum_is_finite = finite;
  });
  EXPECT_FALSE(sum_is_finite);
  EXPECT_EQ(update.iterations(), 0);
  EXPECT_TENSOR_EQ(w.value(), at::zeros({5000}));
  EXPECT_TENSOR_EQ(update.slots("momentum")[0].value(), at::zeros({5000}));
}

TEST(Updates, NothingToUpdateMayBeAllowed) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable w(numbers({1}));
  FusedUpdate update({w}, plain(), {}, {});
  std::atomic<int> nothing{0};
  strategy->run([&] { nothing += update.apply({Tensor()}, {.may_be_empty = true}) ? 0 : 1; });
  EXPECT_EQ(nothing, 2);
  EXPECT_EQ(update.iterations(), 1);
  EXPECT_TENSOR_EQ(w.value(), numbers({1}));
}

/// w -= g / |g|, of the whole variable. Notes which replica did it.
struct NormalizedRule : testing::PlainRule {
  std::vector<int> owners = std::vector<int>(8, -1);
  bool is_identity_at_zero(bool) const override { return false; }
  bool needs_whole(std::size_t variable) const override { return variable != 1; }
  void update_whole(std::size_t variable, Tensor& w, const Tensor& g, Tensors&,
                    bool) const override {
    const_cast<NormalizedRule*>(this)->owners[variable] = replica_id();
    w.sub_(g / g.norm());
  }
};

TEST(Updates, WholeVariablesAreDealtOutBySizeAndGiveTheSameNumbers) {
  for (const GradientClipping& clipping : {GradientClipping{}, GradientClipping{.clipvalue = 1e9},
                                           GradientClipping{.global_clipnorm = 1e9}}) {
    for (const int replicas : {1, 2, 3}) {
      auto strategy = mirrored(replicas);
      auto scope = strategy->scope();
      auto rule = std::make_shared<NormalizedRule>();
      Variable small(at::zeros({3})), parts(at::zeros({4})), large(at::zeros({5000})),
          table(at::zeros({6, 2}));
      FusedUpdate update({small, parts, large, table}, rule, clipping, {});
      strategy->run([&] {
        GradientTape tape;
        const Tensor rows = nn::embedding_lookup(table, at::full({1}, 4, at::kLong));
        const Tensor of_table = tape.gradient(rows.sum() / replicas, std::vector{table})[0];
        update.apply({at::full({3}, 2.F), at::full({4}, 1.F / static_cast<float>(replicas)),
                      at::full({5000}, 3.F), of_table});
      });
      EXPECT_TENSOR_NEAR(small.value(), at::full({3}, -1 / std::sqrt(3.0)), 1e-6);
      EXPECT_TENSOR_NEAR(parts.value(), at::full({4}, -0.1), 1e-6);
      EXPECT_TENSOR_NEAR(large.value(), at::full({5000}, -1 / std::sqrt(5000.0)), 1e-6);
      EXPECT_TENSOR_NEAR(table.value()[4], at::full({2}, -1 / std::sqrt(2.0)), 1e-6);
      EXPECT_EQ(rule->owners[2], 0);
      if (replicas > 1) {
        EXPECT_NE(rule->owners[0], rule->owners[2]);
      }
      EXPECT_EQ(rule->owners[1], -1);
    }
  }
}

TEST(Updates, AConstraintHoldsForEachCopyOfASplitVariable) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable w(numbers({1}), {.constraint = [](const Tensor& value) { return value.clamp_max(1); }});
  FusedUpdate update({w}, plain(), {}, {});
  strategy->run([&] {
    w.assign(numbers({replica_id() == 0 ? 0.5 : 5.0}));
    update.apply({numbers({1})});
  });
  EXPECT_TENSOR_NEAR(w.components()[0], numbers({0.3}), 1e-6);
  EXPECT_TENSOR_EQ(w.components()[1], numbers({1}));
}

}  // namespace
}  // namespace tutti::distribute
