#include "tutti/distribute/gradient_tape.h"

#include <gtest/gtest.h>

#include "support/expect.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using Tensors = std::vector<Tensor>;

std::unique_ptr<MirroredStrategy> mirrored(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}
int replica_id() { return get_replica_context()->replica_id_in_sync_group(); }

TEST(Tapes, Spec117_ATapeInAReplicaGivesThatReplicasGradient) {
  auto strategy = mirrored(4);
  auto scope = strategy->scope();
  const Variable scale(at::full({}, 3.0));
  const auto gradients = strategy->run([&] {
    GradientTape tape;
    Tensor x = at::full({}, replica_id() + 1.0);
    tape.watch(x);
    const Tensor y = x * x * scale;
    return tape.gradient(y, x);
  });
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(gradients[static_cast<std::size_t>(r)].item<double>(), 2.0 * (r + 1) * 3);
}

TEST(Tapes, Spec117_GradientsOfOneVariableAreIndependentBetweenReplicas) {
  auto strategy = mirrored(3);
  auto scope = strategy->scope();
  const Variable w(at::full({2}, 2.0));
  const auto gradients = strategy->run([&] {
    GradientTape tape;
    return tape.gradient(w.value() * w.value() * (replica_id() + 1), w);
  });
  EXPECT_TRUE(w.is_shared());
  for (int r = 0; r < 3; ++r)
    EXPECT_TENSOR_EQ(gradients[static_cast<std::size_t>(r)], at::full({2}, 4.0 * (r + 1)));
}

TEST(Tapes, AVariableThatTheTargetDoesNotDependOnHasNoGradient) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  const Variable used(at::ones({2})), unused(at::ones({2}));
  strategy->run([&] {
    GradientTape tape({.persistent = true});
    const Tensor y = used.value().sum();
    const Tensors gradients = tape.gradient(y, std::vector<Variable>{used, unused});
    EXPECT_TRUE(gradients[0].defined());
    EXPECT_FALSE(gradients[1].defined());
    // A replica may use what another does not.
    const Tensor z = (replica_id() == 0 ? used : unused).value().sum();
    const Tensors others = tape.gradient(z, std::vector<Variable>{used, unused});
    EXPECT_EQ(others[0].defined(), replica_id() == 0);
    EXPECT_EQ(others[1].defined(), replica_id() == 1);
    EXPECT_FALSE(tape.gradient(at::ones({}), used).defined());
  });
}

TEST(Tapes, TheGradientsOfOneCallAreNotOverwrittenByTheNext) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  const Variable w(at::ones({3}));
  strategy->run([&] {
    GradientTape tape({.persistent = true});
    const Tensor y = w.value() * 2;
    const Tensor z = w.value() * 5;
    const Tensor first = tape.gradient(y, w);
    const Tensor second = tape.gradient(z, w);
    EXPECT_TENSOR_EQ(first, at::full({3}, 2.0));
    EXPECT_TENSOR_EQ(second, at::full({3}, 5.0));
    EXPECT_FALSE(first.is_alias_of(second));
  });
}

TEST(Tapes, TwoForwardsBeforeOneBackwardGiveTheSumOfTheirGradients) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  const Variable w(at::full({3}, 2.0));
  strategy->run([&] {
    GradientTape tape;
    const auto forward = [&](double x) { return (w.value() * x).square().sum(); };
    const Tensor first = forward(1);
    const Tensor second = forward(3);
    EXPECT_TENSOR_EQ(tape.gradient(first + second, w), at::full({3}, 2 * 2.0 * (1 + 9)));
  });
}

TEST(Tapes, OneThatIsNotPersistentIsUsedOnce) {
  const Variable w(at::ones({3}));
  GradientTape tape;
  const Tensor y = w.value().sum();
  tape.gradient(y, w);
  EXPECT_ERROR(tape.gradient(y, w), FailedPrecondition, "persistent = true");
}

TEST(Tapes, AnOuterTapeMayDifferentiateTheSameForward) {
  const Variable w(at::ones({3}));
  GradientTape outer;
  Tensor inner_gradient;
  Tensor y;
  {
    GradientTape inner;
    y = w.value().square().sum();
    inner_gradient = inner.gradient(y, w);
  }
  EXPECT_TENSOR_EQ(inner_gradient, outer.gradient(y * 3, w) / 3);
}

TEST(Tapes, WatchTakesFloatingTensorsOnly) {
  GradientTape tape;
  Tensor x = at::ones({2}, at::kInt);
  EXPECT_ERROR(tape.watch(x), InvalidArgument, "int32");
}

}  // namespace
}  // namespace tutti::distribute
