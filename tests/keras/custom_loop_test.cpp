// Training loops of one's own in replicas: gradients, optimizers, metrics, moving averages.

#include "keras/line_model.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"

namespace tutti::keras {
namespace {

using distribute::get_replica_context;
using distribute::ReduceOp;
using testing::replicas;

int own_id() { return get_replica_context()->replica_id_in_sync_group(); }
float own_number() { return static_cast<float>(own_id() + 1); }

TEST(CustomLoop, Spec117_ATapeInAReplicaSeesThatReplicaAlone) {
  auto strategy = replicas(3);
  auto scope = strategy->scope();
  const Variable w(at::tensor(2.f));
  const auto gradients = strategy->run([&] {
    const Tensor x = at::tensor(own_number());
    GradientTape tape({.persistent = true});
    Tensor watched = x.clone();
    tape.watch(watched);
    const Tensor square = watched * watched;
    const Tensor loss = w.value() * w.value() * x;
    return std::pair(tape.gradient(square, watched), tape.gradient(loss, w));
  });
  for (int r = 0; r < 3; ++r) {
    const auto at = static_cast<std::size_t>(r);
    EXPECT_FLOAT_EQ(gradients.first[at].item<float>(), 2.f * static_cast<float>(r + 1));
    EXPECT_FLOAT_EQ(gradients.second[at].item<float>(), 4.f * static_cast<float>(r + 1));
  }
}

TEST(CustomLoop, Spec118_AnOptimizerAddsTheReplicasGradientsOrTakesThemAdded) {
  for (bool by_hand : {false, true}) {
    auto strategy = replicas(3);
    auto scope = strategy->scope();
    optimizers::SGD optimizer({.learning_rate = .1});
    const Variable w(at::tensor({1.f}));
    strategy->run([&] {
      Tensor gradient = at::tensor({own_number()});
      if (by_hand) gradient = get_replica_context()->all_reduce(ReduceOp::kSum, gradient);
      optimizer.apply_gradients({gradient}, {w}, /*skip_aggregation=*/by_hand);
    });
    EXPECT_NEAR(w.read_value().item<float>(), 1 - .1 * (1 + 2 + 3), 1e-6);
    EXPECT_EQ(optimizer.iterations(), 1);
  }
}

TEST(CustomLoop, Spec119_ClippingBeforeAndAfterAggregationAreBothExpressible) {
  // Gradients (3, 0) and (0, 4), bound 1. After adding: (3, 4) / 5. Before: (1, 0) + (0, 1).
  auto own = [] { return own_id() == 0 ? at::tensor({3.f, 0.f}) : at::tensor({0.f, 4.f}); };
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const Variable after(at::zeros({2})), before(at::zeros({2}));
  optimizers::SGD clipping({.learning_rate = 1, .global_clipnorm = 1});
  strategy->run([&] { clipping.apply_gradients({own()}, {after}); });
  EXPECT_TENSOR_NEAR(after.value(), at::tensor({-.6f, -.8f}), 1e-6);
  optimizers::SGD plain({.learning_rate = 1});
  strategy->run([&] {
    const Tensor gradient = own();
    plain.apply_gradients({gradient / gradient.norm()}, {before});
  });
  EXPECT_TENSOR_NEAR(before.value(), at::tensor({-1.f, -1.f}), 1e-6);
}

TEST(CustomLoop, Spec120_MetricsOfReplicasAreTotalsAndCountsAddedUp) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const metrics::SparseCategoricalAccuracy accuracy;
  const metrics::Mean loss("loss");
  // Replica 0: 3 of 3 right, losses 1, 1, 1. Replica 1: 0 of 1, loss 5.
  strategy->run([&] {
    const bool first = own_id() == 0;
    const Tensor labels = first ? at::tensor({0, 1, 0}, at::kLong) : at::tensor({0}, at::kLong);
    const Tensor predictions = first ? at::tensor({2.f, 1.f, 0.f, 1.f, 3.f, 0.f}).view({3, 2})
                                     : at::tensor({0.f, 1.f}).view({1, 2});
    accuracy.update_state(labels, predictions);
    loss.update_state(first ? at::ones({3}) : at::full({1}, 5.f));
  });
  for (const Variable& state : accuracy.variables()) {
    EXPECT_EQ(state.synchronization(), VariableSynchronization::kOnRead);
    EXPECT_EQ(state.aggregation(), VariableAggregation::kSum);
  }
  EXPECT_EQ(accuracy.variables()[0].read_value().item<float>(), 3);
  EXPECT_EQ(accuracy.variables()[1].read_value().item<float>(), 4);
  EXPECT_FLOAT_EQ(accuracy.result().item<float>(), .75f);
  EXPECT_FLOAT_EQ(loss.result().item<float>(), 2);  // not (1 + 5) / 2
  loss.reset_state();
  EXPECT_EQ(loss.result().item<float>(), 0);
}

TEST(CustomLoop, Spec121_AMovingAverageAveragesTheReplicasFirst) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  Variable average(at::tensor(10.f),
                   {.trainable = false, .aggregation = VariableAggregation::kMean});
  const auto read = strategy->run([&] {
    const Tensor value = at::tensor(own_id() == 0 ? 2.f : 6.f);
    return average.assign(average.value() * .5 + value * .5);
  });
  // .5 · 10 + .5 · mean(2, 6)
  EXPECT_FLOAT_EQ(average.read_value().item<float>(), 7);
  EXPECT_FLOAT_EQ(read[0].item<float>(), 7);
  EXPECT_FLOAT_EQ(read[1].item<float>(), 7);
}

}  // namespace
}  // namespace tutti::keras
