// What layers draw inside replicas: masks differ between replicas and steps, weights do not; a
// training that goes on draws what an uninterrupted one draws.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "keras/line_model.h"
#include "tutti/distribute/config.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using layers::Dropout;
using testing::replicas;

Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}

std::unique_ptr<Sequential> dropping(const optimizers::Optimizer& optimizer,
                                     std::optional<int64_t> seed = std::nullopt) {
  auto model = std::make_unique<Sequential>(
      std::vector<layers::Layer>{Dense(16, {.activation = "relu", .input_shape = {4}}),
                                 Dropout(.5, {.seed = seed}), Dense(2)});
  model->compile({.optimizer = optimizer, .loss = "mse"});
  return model;
}
FitOptions quiet(int64_t epochs, int64_t initial_epoch = 0) {
  FitOptions options;
  options.batch_size = 6;
  options.epochs = epochs;
  options.initial_epoch = initial_epoch;
  options.verbose = 0;
  return options;  // shuffled
}
void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TENSOR_EQ(a[i], b[i]);
}

std::vector<Tensor> trained(int count, std::optional<int64_t> seed = std::nullopt) {
  set_seed(11);
  auto strategy = replicas(count);
  auto scope = strategy->scope();
  auto model = dropping(optimizers::Adam({.learning_rate = .01}), seed);
  model->fit(rows(20, 4), rows(20, 2), quiet(3));
  return model->get_weights();
}

TEST(DropoutStreams, MasksDifferBetweenReplicasAndStepsAndInitialWeightsDoNot) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const Dense dense(8);
  const Dropout dropout(.5);
  std::vector<Tensor> masks;
  for (int step = 0; step < 2; ++step) {
    const auto drawn = strategy->run([&] {
      dense(at::ones({1, 4}));
      return dropout(at::ones({64}), true);
    });
    masks.push_back(drawn[0]);
    masks.push_back(drawn[1]);
  }
  for (std::size_t i = 0; i < masks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(at::equal(masks[i], masks[j]));
  }
  const auto components = dense->weights()[0].components();
  EXPECT_TENSOR_EQ(components[0], components[1]);
}

TEST(DropoutStreams, TwoLayersOfOneStepDrawApart) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const Dropout first(.5), second(.5);
  const auto masks = strategy->run([&] {
    const Tensor one = first(at::ones({64}), true);
    return std::pair(one, second(at::ones({64}), true));
  });
  EXPECT_FALSE(at::equal(masks.first[1], masks.second[1]));
}

TEST(DropoutStreams, EqualSeedsGiveEqualBitsOfTraining) {
  for (std::optional<int64_t> own : {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
    expect_equal(trained(2, own), trained(2, own));
    expect_equal(trained(3, own), trained(3, own));
  }
}

TEST(DropoutStreams, ReplicasRunOneByOneTrainTheSame) {
  const auto parallel = trained(3);
  setenv("TUTTI_SEQUENTIAL_REPLICAS", "1", 1);
  const auto sequential = trained(3);
  unsetenv("TUTTI_SEQUENTIAL_REPLICAS");
  expect_equal(sequential, parallel);
}

TEST(DropoutStreams, ASecondFitGoesOnWhereTheFirstEnded) {
  const auto straight = trained(2);
  set_seed(11);
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto model = dropping(optimizers::Adam({.learning_rate = .01}));
  model->fit(rows(20, 4), rows(20, 2), quiet(1));
  model->predict(rows(7, 4), {.verbose = 0});  // what runs in between takes nothing away
  model->evaluate(rows(7, 4), rows(7, 2), {.verbose = 0});
  model->fit(rows(20, 4), rows(20, 2), quiet(3, 1));
  expect_equal(model->get_weights(), straight);
}

TEST(DropoutStreams, ALoadedModelDrawsWhatAnUninterruptedOneDraws) {
  const std::string path =
      (std::filesystem::temp_directory_path() / cat("tutti_streams_", getpid(), ".tutti")).string();
  for (std::optional<int64_t> own : {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
    const auto straight = trained(2, own);
    {
      set_seed(11);
      auto strategy = replicas(2);
      auto scope = strategy->scope();
      auto model = dropping(optimizers::Adam({.learning_rate = .01}), own);
      model->fit(rows(20, 4), rows(20, 2), quiet(2));
      model->save(path);
    }
    set_seed(11);
    auto strategy = replicas(2);
    auto scope = strategy->scope();
    const auto loaded = load_model(path);
    loaded->fit(rows(20, 4), rows(20, 2), quiet(3, 2));
    expect_equal(loaded->get_weights(), straight);
  }
  std::filesystem::remove(path);
}

TEST(DropoutStreams, StepsAreCountedByCallsUnderAccumulation) {
  set_seed(12);
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const Dropout probe(.5);
  std::vector<Tensor> masks;
  struct Probing : Model {
    Probing(const Dropout& dropout, std::vector<Tensor>& masks)
        : Model("probing"), dropout(dropout), masks(masks), dense(1, {.input_shape = {1}}) {
      dense->build_for({-1, 1});
    }
    Tensor call(const Tensor& x, bool training) override {
      const Tensor mask = dropout(at::ones({64}), training);
      if (distribute::get_replica_context()->replica_id_in_sync_group() == 1) masks.push_back(mask);
      return dense(x);
    }
    void build(const layers::Shape&) override {}
    bool built() const override { return true; }
    std::vector<layers::Layer> layers() const override { return {dense}; }
    Dropout dropout;
    std::vector<Tensor>& masks;
    Dense dense;
  } model(probe, masks);
  model.compile({.optimizer = optimizers::SGD({.gradient_accumulation_steps = 4}), .loss = "mse"});
  for (int call = 0; call < 6; ++call) model.train_on_batch(rows(4, 1), rows(4, 1));
  ASSERT_EQ(masks.size(), 6u);
  for (std::size_t i = 0; i < masks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(at::equal(masks[i], masks[j])) << i << j;
  }
}

TEST(DropoutStreams, ATrainStepThatLeavesTheOptimizerAloneStillDrawsAnew) {
  set_seed(13);
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  struct Idle : Sequential {
    Idle() : Sequential({Dropout(.5, {.input_shape = {64}})}) {}
    void train_step(const Batch& batch) override {
      const Tensor mask = (*this)(batch.x, true);
      if (distribute::get_replica_context()->replica_id_in_sync_group() == 0) masks.push_back(mask);
    }
    std::vector<Tensor> masks;
  } model;
  model.compile({.loss = "mse"});
  model.fit(at::ones({8, 64}), at::ones({8, 64}), {.batch_size = 2, .verbose = 0});
  ASSERT_EQ(model.masks.size(), 4u);
  EXPECT_FALSE(at::equal(model.masks[0], model.masks[1]));
  EXPECT_FALSE(at::equal(model.masks[1], model.masks[2]));
}

TEST(DropoutStreams, AnOwnLoopGoesOnByTheStepItSays) {
  auto masks = [](int from, int to) {
    set_seed(14);
    auto strategy = replicas(2);
    auto scope = strategy->scope();
    const Dropout dropout(.5), seeded(.5, {.seed = 2});
    std::vector<Tensor> all;
    for (int step = from; step < to; ++step) {
      strategy->set_random_step(step);
      const auto drawn = strategy->run([&] {
        return at::cat({dropout(at::ones({32}), true), seeded(at::ones({32}), true)});
      });
      all.push_back(drawn[0]);
      all.push_back(drawn[1]);
      strategy->run([&] { dropout(at::ones({5}), true); });  // something else in between
    }
    return all;
  };
  const auto straight = masks(0, 5), resumed = masks(3, 5);
  for (std::size_t i = 0; i < resumed.size(); ++i) EXPECT_TENSOR_EQ(resumed[i], straight[6 + i]);
}

}  // namespace
}  // namespace tutti::keras
