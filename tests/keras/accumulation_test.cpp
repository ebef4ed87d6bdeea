// gradient_accumulation_steps: the mean of k gradients in one update, on any number of replicas.

#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "keras/line_model.h"

namespace tutti::keras::optimizers {
namespace {

using testing::replicas;
using Rows = std::vector<std::vector<float>>;

const Rows kGradients = {{.1f, -.2f, .3f}, {.4f, 0.f, -.1f}, {-.3f, .2f, .05f}};
Tensor gradient(int call) { return at::tensor(kGradients[static_cast<std::size_t>(call % 3)]); }
Tensor start() { return at::tensor({1.f, -2.f, .5f}); }

/// What replica `id` of `count` brings of a gradient: uneven parts that add up to it.
Tensor share(const Tensor& whole, int id, int count) {
  return whole * ((id + 1) * 2.0 / (count * (count + 1)));
}

void call_in_replicas(distribute::Strategy& strategy, Optimizer& optimizer, const Variable& weights,
                      const Tensor& whole) {
  strategy.run([&] {
    const int id = distribute::get_replica_context()->replica_id_in_sync_group();
    optimizer.apply_gradients({share(whole, id, strategy.num_replicas_in_sync())}, {weights});
  });
}

/// TensorFlow's weights after calls 2, 4 and 6 with k = 2.
void expect_recorded(const char* class_name, const std::string& config, const Rows& recorded) {
  for (int count : {1, 2, 4}) {
    SCOPED_TRACE(cat(class_name, " on ", count));
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Optimizer optimizer = Optimizer::from_config(class_name, config);
    const Variable weights(start());
    Tensor before = weights.read_value();
    for (int call = 0; call < 6; ++call) {
      call_in_replicas(*strategy, optimizer, weights, gradient(call));
      if (call % 2 == 0) {
        EXPECT_TENSOR_EQ(weights.value(), before);
      } else {
        before = weights.read_value();
        EXPECT_TENSOR_NEAR(before, at::tensor(recorded[static_cast<std::size_t>(call / 2)]), 1e-6);
      }
      EXPECT_EQ(optimizer.iterations(), (call + 1) / 2);
      EXPECT_EQ(optimizer.gradient_steps(), call + 1);
    }
    EXPECT_TRUE(weights.is_shared());
  }
}

TEST(Accumulation, GivesTensorFlowsWeightsOnAnyNumberOfReplicas) {
  expect_recorded("SGD", R"({"learning_rate": 0.1, "gradient_accumulation_steps": 2})",
                  {{.97500002f, -1.99f, .49000001f},
                   {.98500001f, -1.99f, .4725f},
                   {.98000002f, -2.f, .47499999f}});
  expect_recorded("Adam", R"({"gradient_accumulation_steps": 2})",
                  {{.99900001f, -1.9990001f, .49900004f},
                   {.99865443f, -1.99833f, .49802157f},
                   {.99827504f, -1.9984158f, .49734965f}});
}

TEST(Accumulation, BetweenUpdatesSlotsStayAndTheSumsAreTold) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  Adam optimizer({.gradient_accumulation_steps = 3});
  EXPECT_TRUE(optimizer.accumulated_gradients().empty());
  const Variable weights(start());
  call_in_replicas(*strategy, optimizer, weights, gradient(0));
  call_in_replicas(*strategy, optimizer, weights, gradient(1));
  EXPECT_TENSOR_EQ(optimizer.slots("momentum")[0].value(), at::zeros({3}));
  EXPECT_TENSOR_NEAR(optimizer.accumulated_gradients()[0], gradient(0) + gradient(1), 1e-6);
  call_in_replicas(*strategy, optimizer, weights, gradient(2));
  EXPECT_FALSE(optimizer.accumulated_gradients()[0].defined());
  EXPECT_FALSE(at::equal(optimizer.slots("momentum")[0].value(), at::zeros({3})));
}

TEST(Accumulation, ClippingSeesTheMeanOfTheWholeBatch) {
  const Tensor mean = (gradient(0) + gradient(1)) / 2;
  const double norm = mean.norm().item<double>();
  const Tensor clipped = mean * (.1 / norm);
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    SGD optimizer({.learning_rate = 1, .global_clipnorm = .1, .gradient_accumulation_steps = 2});
    const Variable weights(start());
    for (int call : {0, 1}) call_in_replicas(*strategy, optimizer, weights, gradient(call));
    EXPECT_TENSOR_NEAR(weights.value(), start() - clipped, 1e-6);
  }
}

TEST(Accumulation, GoesWithTheAverageOfTheWeights) {
  SGD optimizer(
      {.learning_rate = 1, .use_ema = true, .ema_momentum = .5, .gradient_accumulation_steps = 2});
  const Variable weights(at::zeros({1}));
  for (int call = 0; call < 4; ++call)
    optimizer.apply_gradients({at::full({1}, call % 2 == 0 ? -2.f : 0.f)}, {weights});
  EXPECT_TENSOR_NEAR(weights.value(), at::tensor({2.f}), 1e-6);
  EXPECT_TENSOR_NEAR(optimizer.slots("average")[0].value(), at::tensor({1.5f}), 1e-6);
}

TEST(Accumulation, EqualGradientsOfReplicasAreNotAdded) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 2});
  const Variable weights(at::zeros({1}));
  auto call = [&](bool skip) {
    strategy->run([&] { optimizer.apply_gradients({at::full({1}, -3.f)}, {weights}, skip); });
  };
  call(true);
  EXPECT_TENSOR_NEAR(optimizer.accumulated_gradients()[0], at::tensor({-3.f}), 1e-6);
  EXPECT_ERROR(call(false), InvalidArgument, "in another way");
  call(true);
  EXPECT_TENSOR_NEAR(weights.value(), at::tensor({3.f}), 1e-6);
}

TEST(Accumulation, OutsideReplicasGradientsAreTheWholeOnes) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 2});
  const Variable weights(at::zeros({1}));
  for (int update = 0; update < 2; ++update) {
    optimizer.apply_gradients({at::full({1}, -1.f)}, {weights});
    EXPECT_ERROR(strategy->run([&] { optimizer.apply_gradients({at::ones({1})}, {weights}); }),
                 InvalidArgument, "all inside replicas or all outside");
    optimizer.apply_gradients({at::full({1}, -3.f)}, {weights});
  }
  EXPECT_TENSOR_NEAR(weights.value(), at::tensor({4.f}), 1e-6);
  EXPECT_EQ(optimizer.iterations(), 2);
}

TEST(Accumulation, AMissingGradientCountsAsZero) {
  SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 2});
  const Variable a(at::zeros({1})), b(at::zeros({1})), never(at::ones({1}));
  optimizer.apply_gradients({at::full({1}, -2.f), Tensor(), Tensor()}, {a, b, never});
  optimizer.apply_gradients({Tensor(), at::full({1}, -4.f), Tensor()}, {a, b, never});
  EXPECT_TENSOR_NEAR(a.value(), at::tensor({1.f}), 1e-6);
  EXPECT_TENSOR_NEAR(b.value(), at::tensor({2.f}), 1e-6);
  EXPECT_TENSOR_EQ(never.value(), at::ones({1}));
}

TEST(Accumulation, SeveralCallsOfOneRunMakeOneUpdate) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 3});
  const Variable weights(at::zeros({1}));
  strategy->run([&] {
    for (int call = 1; call <= 3; ++call)
      optimizer.apply_gradients({at::full({1}, -.5f * static_cast<float>(call))}, {weights});
  });
  EXPECT_TENSOR_NEAR(weights.value(), at::tensor({2.f}), 1e-6);
  EXPECT_EQ(optimizer.iterations(), 1);
}

TEST(Accumulation, AReplicaThatFailsLeavesEverythingAsBeforeTheCall) {
  auto strategy = replicas(3);
  auto scope = strategy->scope();
  SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 2});
  const Variable weights(at::zeros({1}));
  auto call = [&](int failing) {
    strategy->run([&] {
      if (distribute::get_replica_context()->replica_id_in_sync_group() == failing)
        throw InvalidArgument("no data today");
      optimizer.apply_gradients({at::full({1}, -1.f / 3)}, {weights});
    });
  };
  EXPECT_ERROR(call(1), InvalidArgument, "no data today");
  EXPECT_EQ(optimizer.gradient_steps(), 0);
  call(-1);
  EXPECT_ERROR(call(0), InvalidArgument, "no data today");
  EXPECT_ERROR(call(2), InvalidArgument, "no data today");
  EXPECT_EQ(optimizer.gradient_steps(), 1);
  call(-1);
  EXPECT_TENSOR_NEAR(weights.value(), at::tensor({1.f}), 1e-6);
  EXPECT_EQ(optimizer.gradient_steps(), 2);
}

TEST(Accumulation, AGradientOfAnotherShapeNamesTheVariable) {
  SGD optimizer({.gradient_accumulation_steps = 2});
  const Variable weights(at::zeros({2}), {.name = "w"});
  EXPECT_ERROR(optimizer.apply_gradients({at::zeros({3})}, {weights}), InvalidArgument,
               "apply_gradients [w]: a gradient of shape (3,), expected (2,)");
}

TEST(Accumulation, SumsMayBeSet) {
  SGD optimizer({.learning_rate = 1, .gradient_accumulation_steps = 3});
  const Variable weights(at::zeros({1}));
  EXPECT_ERROR(optimizer.set_accumulated_gradients({at::ones({1})}, 1), FailedPrecondition,
               "not built");
  optimizer.build({weights});
  EXPECT_ERROR(optimizer.set_accumulated_gradients({at::ones({1})}, 3), InvalidArgument,
               "0 to 2 calls");
  EXPECT_ERROR(optimizer.set_accumulated_gradients({at::ones({2})}, 1), InvalidArgument, "shape");
  optimizer.set_accumulated_gradients({at::full({1}, -5.f)}, 2);
  EXPECT_EQ(optimizer.gradient_steps(), 2);
  optimizer.apply_gradients({at::full({1}, -1.f)}, {weights});
  EXPECT_TENSOR_NEAR(weights.value(), at::tensor({2.f}), 1e-6);
  EXPECT_ERROR(SGD().set_accumulated_gradients({}, 0), FailedPrecondition, "not built");
}

// ---- in fit

Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}
std::unique_ptr<Sequential> model(const Optimizer& optimizer) {
  auto made = std::make_unique<Sequential>(std::vector<layers::Layer>{
      layers::Dense(5, {.activation = "tanh", .input_shape = {4}}), layers::Dense(2)});
  made->set_weights({rows(4, 5), at::zeros({5}), rows(5, 2), at::zeros({2})});
  made->compile({.optimizer = optimizer, .loss = "mse"});
  return made;
}
FitOptions quiet(int64_t epochs) {
  return {.batch_size = 5, .epochs = epochs, .verbose = 0, .shuffle = false};
}

TEST(Accumulation, FitIsTheSameOnAnyNumberOfReplicas) {
  std::optional<std::vector<Tensor>> one;
  for (int count : {1, 2, 3, 4}) {
    SCOPED_TRACE(count);
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    // 13 rows in batches of 5, 5 and 3; four epochs are 12 calls, 4 updates of 3 calls.
    auto own =
        model(Adam({.learning_rate = .02, .clipnorm = .1, .gradient_accumulation_steps = 3}));
    own->fit(rows(13, 4), rows(13, 2), quiet(4));
    EXPECT_EQ(own->optimizer().iterations(), 4);
    if (!one) {
      one = own->get_weights();
      continue;
    }
    for (std::size_t i = 0; i < one->size(); ++i)
      EXPECT_TENSOR_NEAR(own->get_weights()[i], (*one)[i], 1e-5);
  }
}

TEST(Accumulation, GoesOnOverTheEndOfAnEpoch) {
  auto own = model(SGD({.learning_rate = .1, .gradient_accumulation_steps = 4}));
  own->fit(rows(15, 4), rows(15, 2), quiet(1));  // 3 calls
  EXPECT_EQ(own->optimizer().iterations(), 0);
  EXPECT_EQ(own->optimizer().gradient_steps(), 3);
  own->fit(rows(15, 4), rows(15, 2), quiet(1));
  EXPECT_EQ(own->optimizer().iterations(), 1);
}

TEST(Accumulation, IsSavedInTheMiddleAndGoesOnUnderAnyStrategy) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti_accumulation_", getpid(), ".tutti"))
          .string();
  std::vector<Tensor> straight;
  {
    auto strategy = replicas(2);
    auto scope = strategy->scope();
    auto own = model(SGD({.learning_rate = .1, .gradient_accumulation_steps = 4}));
    own->fit(rows(15, 4), rows(15, 2), quiet(2));  // 6 calls: 1 update and 2 more
    own->save(path);
    own->fit(rows(15, 4), rows(15, 2), quiet(2));
    straight = own->get_weights();
  }
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    const auto loaded = load_model(path);
    EXPECT_EQ(loaded->optimizer().iterations(), 1);
    EXPECT_EQ(loaded->optimizer().gradient_steps(), 6);
    loaded->fit(rows(15, 4), rows(15, 2), quiet(2));
    for (std::size_t i = 0; i < straight.size(); ++i)
      EXPECT_TENSOR_NEAR(loaded->get_weights()[i], straight[i], 1e-6);
  }
  std::filesystem::remove(path);
}

TEST(AverageWeights, FitEndsWithThem) {
  auto own = model(SGD({.learning_rate = .1, .use_ema = true, .ema_momentum = .9}));
  std::vector<Tensor> last;
  FitOptions options = quiet(2);
  options.callbacks = {callbacks::LambdaCallback(
      {.on_epoch_end = [&](int64_t, const Logs&) { last = own->get_weights(); },
       .on_train_end =
           [&](const Logs&) { EXPECT_FALSE(at::equal(own->get_weights()[0], last[0])); }})};
  own->fit(rows(15, 4), rows(15, 2), options);
  EXPECT_TENSOR_EQ(own->get_weights()[0], own->optimizer().slots("average")[0].read_value());
}

}  // namespace
}  // namespace tutti::keras::optimizers
