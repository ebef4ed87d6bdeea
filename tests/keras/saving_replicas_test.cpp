// Files go from any strategy to any other.

#include <unistd.h>

#include <filesystem>

#include "keras/line_model.h"

namespace tutti::keras {
namespace {

namespace fs = std::filesystem;
using layers::BatchNormalization;
using layers::Dense;
using testing::replicas;

Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}

std::unique_ptr<Sequential> model() {
  auto made = std::make_unique<Sequential>(std::vector<layers::Layer>{
      Dense(4, {.activation = "tanh", .input_shape = {3}}),
      BatchNormalization({.momentum = .5, .synchronized = true}), Dense(2)});
  made->compile({.optimizer = optimizers::Adam({.learning_rate = .02}), .loss = "mse"});
  return made;
}
FitOptions quiet(int64_t epochs, int64_t initial_epoch = 0) {
  FitOptions options;
  options.batch_size = 4;
  options.epochs = epochs;
  options.initial_epoch = initial_epoch;
  options.verbose = 0;
  options.shuffle = false;
  return options;
}

/// None, one device, central storage, mirrored on 4, and mirrored on 2.
std::vector<std::pair<std::string, std::unique_ptr<distribute::Strategy>>> strategies() {
  std::vector<std::pair<std::string, std::unique_ptr<distribute::Strategy>>> all;
  all.emplace_back("none", nullptr);
  all.emplace_back("one device", std::make_unique<distribute::OneDeviceStrategy>("cpu:0"));
  all.emplace_back(
      "central storage",
      std::make_unique<distribute::CentralStorageStrategy>(
          distribute::CentralStorageStrategyOptions{.compute_devices = {"cpu:0", "cpu:1"}}));
  all.emplace_back("mirrored on 4", replicas(4));
  all.emplace_back("mirrored on 2", replicas(2));
  return all;
}

class SavingOfReplicas : public ::testing::Test {
 protected:
  SavingOfReplicas() {
    folder_ = fs::temp_directory_path() /
              cat("tutti_saving_replicas_",
                  ::testing::UnitTest::GetInstance()->current_test_info()->line(), "_", getpid());
    fs::create_directories(folder_);
  }
  ~SavingOfReplicas() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

/// Under `strategy`, or under none.
template <class Body>
void under(distribute::Strategy* strategy, Body body) {
  if (strategy == nullptr) return body();
  auto scope = strategy->scope();
  body();
}

TEST_F(SavingOfReplicas, Spec122_WeightsGoFromAnyStrategyToAnyOther) {
  const auto all = strategies();
  for (const auto& [from, source] : all) {
    std::vector<Tensor> saved;
    Tensor predicted;
    const std::string file = path("model.weights.tutti");
    under(source.get(), [&] {
      auto own = model();
      own->set_weights({rows(3, 4), rows(1, 4)[0], rows(2, 4)[1], rows(3, 4)[2], rows(4, 4)[3],
                        rows(5, 4)[4].abs(), rows(4, 2), rows(1, 2)[0]});
      saved = own->get_weights();
      own->save_weights(file);
      predicted = own->predict(rows(5, 3), {.verbose = 0});
    });
    for (const auto& [to, target] : all) {
      SCOPED_TRACE(cat("from ", from, " to ", to));
      under(target.get(), [&] {
        auto own = model();
        own->load_weights(file);
        const auto weights = own->weights();
        ASSERT_EQ(weights.size(), saved.size());
        for (std::size_t i = 0; i < saved.size(); ++i) {
          EXPECT_TENSOR_EQ(weights[i].read_value(), saved[i]);
          for (const Tensor& component : weights[i].components())
            EXPECT_TENSOR_EQ(component, saved[i]);
        }
        EXPECT_TENSOR_NEAR(own->predict(rows(5, 3), {.verbose = 0}), predicted, 1e-6);
      });
    }
  }
}

TEST_F(SavingOfReplicas, Spec122_ATrainingGoesOnUnderAnotherNumberOfReplicas) {
  const std::string file = path("model.tutti");
  std::vector<Tensor> straight;
  auto two = replicas(2);
  {
    auto scope = two->scope();
    auto own = model();
    own->set_weights({rows(3, 4), at::zeros({4}), at::ones({4}), at::zeros({4}), at::zeros({4}),
                      at::ones({4}), rows(4, 2), at::zeros({2})});
    own->fit(rows(11, 3), rows(11, 2), quiet(2));
    own->save(file);
    own->fit(rows(11, 3), rows(11, 2), quiet(4, 2));
    straight = own->get_weights();
  }
  for (int count : {1, 4}) {
    SCOPED_TRACE(count);
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto loaded = load_model(file);
    loaded->fit(rows(11, 3), rows(11, 2), quiet(3, 2));
    loaded->save(file + "2");
    scope.exit();
    auto back = two->scope();
    auto again = load_model(file + "2");
    again->fit(rows(11, 3), rows(11, 2), quiet(4, 3));
    for (std::size_t i = 0; i < straight.size(); ++i)
      EXPECT_TENSOR_NEAR(again->get_weights()[i], straight[i], 1e-4);
  }
}

TEST_F(SavingOfReplicas, Spec123_WeightsOfAModelThatIsNotBuiltAreRefused) {
  {
    auto own = model();
    own->save_weights(path("model.weights.tutti"));
  }
  Sequential later({Dense(4, {.activation = "tanh"}), BatchNormalization(), Dense(2)});
  EXPECT_ERROR(later.load_weights(path("model.weights.tutti")), FailedPrecondition, "not built");
  later.build({-1, 3});
  EXPECT_NO_THROW(later.load_weights(path("model.weights.tutti")));
}

TEST_F(SavingOfReplicas, Spec124_SavingAndLoadingInsideAReplicaAreRefused) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  auto own = model();
  own->save(path("outside.tutti"));
  EXPECT_ERROR(strategy->run([&] { own->save(path("model.tutti")); }), FailedPrecondition,
               "save [");
  EXPECT_ERROR(strategy->run([&] { own->save_weights(path("model.weights.tutti")); }),
               FailedPrecondition, "called inside replica");
  EXPECT_ERROR(strategy->run([&] { own->load_weights(path("outside.tutti")); }), FailedPrecondition,
               "load_weights");
  EXPECT_ERROR(strategy->run([&] { load_model(path("outside.tutti")); }), FailedPrecondition,
               "load_model");
  EXPECT_FALSE(fs::exists(path("model.tutti")));
  EXPECT_FALSE(fs::exists(path("model.weights.tutti")));
  own->save(path("model.tutti"));
}

}  // namespace
}  // namespace tutti::keras
