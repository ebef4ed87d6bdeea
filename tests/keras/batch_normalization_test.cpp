#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {
namespace {

using distribute::get_replica_context;
using distribute::MirroredStrategy;

TEST(BatchNormalization, GivesKerasNumbers) {
  const BatchNormalization norm;
  const Tensor x = at::tensor({1.f, 2.f, 3.f, 6.f}).view({4, 1});
  EXPECT_TENSOR_NEAR(norm(x, true).flatten(),
                     at::tensor({-1.0688922f, -.5344461f, 0.f, 1.6033385f}), 1e-5);
  EXPECT_TENSOR_NEAR(norm->weights()[2].read_value(), at::tensor({.03f}), 1e-6);
  EXPECT_TENSOR_NEAR(norm->weights()[3].read_value(), at::tensor({1.025f}), 1e-6);
  EXPECT_TENSOR_NEAR(norm(x).flatten(), at::tensor({.9576307f, 1.9448788f, 2.9321268f, 5.8938713f}),
                     1e-5);
}

TEST(BatchNormalization, NormalisesTheChannelsOfImages) {
  const Tensor x = wave({3, 4, 5, 2});
  const BatchNormalization images, rows;
  const Tensor y = images(x, true);
  EXPECT_TENSOR_NEAR(y, rows(x.view({60, 2}), true).view({3, 4, 5, 2}), 1e-5);
  EXPECT_TENSOR_NEAR(images->weights()[3].read_value(), rows->weights()[3].read_value(), 1e-6);
  EXPECT_TENSOR_NEAR(BatchNormalization()(x.view({3, 20, 2}), true), y.reshape({3, 20, 2}), 1e-5);
}

TEST(BatchNormalization, FrozenMeansInference) {
  const BatchNormalization norm;
  norm->set_trainable(false);
  const Tensor x = wave({4, 2});
  EXPECT_TENSOR_EQ(norm(x, true), norm(x, false));
  EXPECT_TENSOR_EQ(norm->weights()[2].read_value(), at::zeros({2}));
}

TEST(BatchNormalization, TrainingOutsideReplicasMovesTheStatisticsOfAll) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.momentum = 0});
  norm(at::full({3, 1}, 4.f), true);
  for (const Tensor& component : norm->weights()[2].components())
    EXPECT_TENSOR_NEAR(component, at::tensor({4.f}), 1e-6);
}

TEST(BatchNormalization, EachReplicaHasItsOwnStatisticsAndAnEmptyOneChangesNothing) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.momentum = .5});
  const auto outputs = strategy.run([&] {
    const int replica = get_replica_context()->replica_id_in_sync_group();
    return norm(replica == 2 ? at::zeros({0, 1})
                             : at::full({2, 1}, 2.f + 2.f * static_cast<float>(replica)),
                true);
  });
  const auto means = norm->weights()[2].components(), variances = norm->weights()[3].components();
  EXPECT_TENSOR_NEAR(means[0], at::tensor({1.f}), 1e-6);
  EXPECT_TENSOR_NEAR(means[1], at::tensor({2.f}), 1e-6);
  EXPECT_TENSOR_EQ(means[2], at::zeros({1}));
  EXPECT_TENSOR_NEAR(variances[0], at::tensor({.5f}), 1e-6);
  EXPECT_TENSOR_EQ(variances[2], at::ones({1}));
  EXPECT_EQ(outputs[2].sizes().vec(), (Shape{0, 1}));
}

TEST(BatchNormalization, WhereStatisticsHaveOneCopyTheFirstReplicasCount) {
  distribute::CentralStorageStrategy strategy({.compute_devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.momentum = .5});
  strategy.run([&] {
    const int replica = get_replica_context()->replica_id_in_sync_group();
    return norm(at::full({2, 1}, 2.f + 2.f * static_cast<float>(replica)), true);
  });
  EXPECT_TENSOR_NEAR(norm->weights()[2].read_value(), at::tensor({1.f}), 1e-6);
}

/// Rows of replica r of `whole`, cut into parts of these sizes.
Tensor part(const Tensor& whole, const std::vector<int64_t>& sizes, int replica) {
  return whole.split_with_sizes(sizes, 0)[static_cast<std::size_t>(replica)];
}

TEST(BatchNormalization, SynchronizedIsTheWholeBatchHoweverItIsCut) {
  const Tensor x = wave({7, 2, 2, 3}), upstream = wave({7, 2, 2, 3}, 1);
  const BatchNormalization single;
  Tensor watched = x.clone();
  GradientTape whole_tape({.persistent = true});
  whole_tape.watch(watched);
  const Tensor wanted = single(watched, true);
  const Tensor target = (wanted * upstream).sum();
  const Tensor wanted_x = whole_tape.gradient(target, watched);
  const Tensor wanted_gamma = whole_tape.gradient(target, single->weights()[0]);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 3}, {6, 1}, {7, 0}, {0, 7}}) {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    auto scope = strategy.scope();
    const BatchNormalization norm({.synchronized = true});
    const auto results = strategy.run([&] {
      const int replica = get_replica_context()->replica_id_in_sync_group();
      Tensor mine = part(x, sizes, replica).clone();
      GradientTape tape({.persistent = true});
      tape.watch(mine);
      const Tensor y = norm(mine, true);
      // Backward meets the other replicas, so all gradients are asked for in one pass.
      Tensor loss = (y * part(upstream, sizes, replica)).sum();
      const Tensor gamma = norm->weights()[0].value();
      const auto gradients = tape.gradient(loss, std::vector<Tensor>{mine, gamma});
      return std::tuple(y.detach(), gradients[0], gradients[1]);
    });
    const auto& [y, x_gradient, gamma_gradient] = results;
    EXPECT_TENSOR_NEAR(at::cat({y[0], y[1]}), wanted, 1e-5);
    EXPECT_TENSOR_NEAR(at::cat({x_gradient[0], x_gradient[1]}), wanted_x, 1e-5);
    EXPECT_TENSOR_NEAR(gamma_gradient[0] + gamma_gradient[1], wanted_gamma, 1e-4);
    for (std::size_t i : {2, 3}) {
      for (const Tensor& component : norm->weights()[i].components())
        EXPECT_TENSOR_NEAR(component, single->weights()[i].read_value(), 1e-6);
    }
  }
}

/// Two steps of training and an inference, all in one replica's terms: forward, gradients of input,
/// scale and shift, moving statistics.
TEST(BatchNormalization, SynchronizedEqualsTheJoinedBatchTo1e6) {
  const std::vector<Tensor> batches = {wave({8, 3}) * 2 + 1, wave({8, 3}, 2) - 3};
  const Tensor upstream = wave({8, 3}, 1);
  const BatchNormalization single({.momentum = .7});
  std::vector<Tensor> outputs, inputs, scales, shifts;
  for (const Tensor& batch : batches) {
    Tensor x = batch.clone();
    GradientTape tape;
    tape.watch(x);
    const Tensor y = single(x, true);
    const Tensor loss = (y * upstream).sum();
    const auto gradients = tape.gradient(
        loss, std::vector<Tensor>{x, single->weights()[0].value(), single->weights()[1].value()});
    outputs.push_back(y.detach());
    inputs.push_back(gradients[0]);
    scales.push_back(gradients[1]);
    shifts.push_back(gradients[2]);
  }
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 3}, {8, 0}, {1, 7}}) {
    SCOPED_TRACE(cat(sizes[0], " and ", sizes[1]));
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    auto scope = strategy.scope();
    const BatchNormalization norm({.momentum = .7, .synchronized = true});
    for (std::size_t step = 0; step < batches.size(); ++step) {
      const auto results = strategy.run([&] {
        const int replica = get_replica_context()->replica_id_in_sync_group();
        Tensor mine = part(batches[step], sizes, replica).clone();
        GradientTape tape;
        tape.watch(mine);
        const Tensor y = norm(mine, true);
        const Tensor loss = (y * part(upstream, sizes, replica)).sum();
        const auto gradients = tape.gradient(
            loss,
            std::vector<Tensor>{mine, norm->weights()[0].value(), norm->weights()[1].value()});
        return std::tuple(y.detach(), gradients[0], gradients[1], gradients[2]);
      });
      const auto& [y, x_gradient, scale_gradient, shift_gradient] = results;
      EXPECT_TENSOR_NEAR(at::cat({y[0], y[1]}), outputs[step], 1e-6);
      EXPECT_TENSOR_NEAR(at::cat({x_gradient[0], x_gradient[1]}), inputs[step], 1e-6);
      EXPECT_TENSOR_NEAR(scale_gradient[0] + scale_gradient[1], scales[step], 1e-6);
      EXPECT_TENSOR_NEAR(shift_gradient[0] + shift_gradient[1], shifts[step], 1e-6);
    }
    for (std::size_t i : {2, 3}) {
      for (const Tensor& component : norm->weights()[i].components())
        EXPECT_TENSOR_NEAR(component, single->weights()[i].read_value(), 1e-6);
    }
    EXPECT_TENSOR_NEAR(norm(batches[0]), single(batches[0]), 1e-6);
  }
}

TEST(BatchNormalization, SynchronizedKeepsItsDigitsFarFromZero) {
  // A variance of about 1 around 1000: float32 sums of squares have no digit of it left.
  const Tensor x = wave({8, 2}) + 1000;
  const BatchNormalization single;
  const Tensor wanted = single(x, true);
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.synchronized = true});
  const auto y = strategy.run([&] {
    return norm(part(x, {5, 3}, get_replica_context()->replica_id_in_sync_group()), true);
  });
  EXPECT_TENSOR_NEAR(at::cat({y[0], y[1]}), wanted, 1e-3);
}

TEST(BatchNormalization, SynchronizedWithoutAnyRowsChangesNothing) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const BatchNormalization norm({.synchronized = true});
  const auto y = strategy.run([&] { return norm(at::zeros({0, 2}), true); });
  EXPECT_EQ(y[0].sizes().vec(), (Shape{0, 2}));
  EXPECT_TENSOR_EQ(norm->weights()[2].components()[1], at::zeros({2}));
  EXPECT_TENSOR_EQ(norm->weights()[3].components()[1], at::ones({2}));
}

TEST(BatchNormalization, SaysWhatItCannotTake) {
  EXPECT_ERROR(BatchNormalization({.axis = 4})->build_for({-1, 4, 4, 3}), InvalidArgument,
               "axis 4");
  EXPECT_ERROR(BatchNormalization({.axis = 1})->build_for({-1, -1, 3}), InvalidArgument,
               "known size");
  EXPECT_NO_THROW(BatchNormalization({.axis = 3})->build_for({-1, 4, 4, 3}));
}

}  // namespace
}  // namespace tutti::keras::layers
