// load_model with makers of what is the user's own inside layers and optimizers.

#include <cmath>
#include <nlohmann/json.hpp>

#include "keras/graph_layers.h"
#include "keras/line_model.h"
#include "keras/wave.h"
#include "support/temporary_folder.h"
#include "tutti/keras/optimizers/wrappers.h"

namespace tutti::keras {
namespace {

using Json = nlohmann::json;
using layers::Dense;
using layers::wave;
using optimizers::schedules::LearningRateSchedule;

class CustomObjectFiles : public tutti::testing::TemporaryFolder {
 protected:
  std::string file() const { return path("model"); }
};

FitOptions two_epochs(int64_t initial_epoch = 0) {
  return {.batch_size = 2,
          .epochs = initial_epoch + 2,
          .verbose = 0,
          .shuffle = false,
          .initial_epoch = initial_epoch};
}

/// rate / (1 + step).
class Falling : public LearningRateSchedule {
 public:
  explicit Falling(double rate) : rate_(rate) {}
  double operator()(int64_t step) const override { return rate_ / static_cast<double>(1 + step); }
  std::string class_name() const override { return "Falling"; }
  std::string config() const override { return Json{{"rate", rate_}}.dump(); }

 private:
  double rate_;
};
const CustomObject kFalling = [](const std::string& config) {
  return Falling(Json::parse(config)["rate"].get<double>());
};

std::unique_ptr<Sequential> trained(const optimizers::Optimizer& optimizer) {
  auto model = std::make_unique<Sequential>(
      std::vector<layers::Layer>{Dense(1, {.kernel_initializer = "ones", .input_shape = {2}})});
  model->compile({.optimizer = optimizer, .loss = "mse"});
  model->fit(wave({6, 2}), wave({6, 1}, 2), two_epochs());
  return model;
}

TEST_F(CustomObjectFiles, AScheduleOfTheUsersOwnComesFromItsMaker) {
  const optimizers::SGD inner({.learning_rate = Falling(.5)});
  const std::vector<optimizers::Optimizer> all = {optimizers::Adam({.learning_rate = Falling(.1)}),
                                                  optimizers::LossScaleOptimizer(inner)};
  for (const optimizers::Optimizer& optimizer : all) {
    auto model = trained(optimizer);
    model->save(file());
    EXPECT_ERROR(load_model(file()), InvalidArgument, "\"Falling\", expected");
    EXPECT_ERROR(load_model(file()), InvalidArgument, "custom_objects");
    const auto loaded = load_model(file(), {.custom_objects = {{"Falling", kFalling}}});
    EXPECT_EQ(loaded->optimizer().config(), model->optimizer().config());
    const History straight = model->fit(wave({6, 2}), wave({6, 1}, 2), two_epochs(2));
    EXPECT_EQ(loaded->fit(wave({6, 2}), wave({6, 1}, 2), two_epochs(2)).history, straight.history);
    EXPECT_EQ(loaded->optimizer().learning_rate(), model->optimizer().learning_rate());
  }
}

TEST_F(CustomObjectFiles, AMakerOfASharedPointerServesAsWell) {
  auto model = trained(optimizers::SGD({.learning_rate = Falling(.5)}));
  model->save(file());
  const auto loaded =
      load_model(file(), {.custom_objects = {{"Falling", [](const std::string&) {
                                                return std::make_shared<Falling>(.25);
                                              }}}});
  EXPECT_NEAR(loaded->optimizer().learning_rate(), .25 / 7, 1e-9);
}

TEST_F(CustomObjectFiles, AMakerThatGivesANumberIsRefused) {
  auto model = trained(optimizers::SGD({.learning_rate = Falling(.5)}));
  model->save(file());
  const CustomObject number = [](const std::string&) { return optimizers::LearningRate(.1); };
  EXPECT_ERROR(load_model(file(), {.custom_objects = {{"Falling", number}}}), InvalidArgument,
               "the maker of \"Falling\" gave none, expected a schedule");
}

class Halves : public Initializer::Impl {
 public:
  Tensor operator()(const std::vector<int64_t>& shape) const override {
    return at::full(shape, .5, at::kFloat);
  }
  std::string class_name() const override { return "Halves"; }
  std::string config() const override { return R"({"unused": 1})"; }
};
class Fourth : public Regularizer::Impl {
 public:
  Tensor operator()(const Tensor& tensor) const override { return tensor.pow(4).sum(); }
  std::string class_name() const override { return "Fourth"; }
  std::string config() const override { return "{}"; }
};
class Capped : public Constraint::Impl {
 public:
  explicit Capped(double bound) : bound_(bound) {}
  Tensor operator()(const Tensor& weight) const override { return weight.clamp_max(bound_); }
  std::string class_name() const override { return "Capped"; }
  std::string config() const override { return Json{{"bound", bound_}}.dump(); }

 private:
  double bound_;
};
Activation doubled() {
  return {[](const Tensor& x) { return 2 * x; }, "doubled"};
}
const CustomObjects kOwn = {
    {"Halves",
     [](const std::string& config) {
       EXPECT_EQ(Json::parse(config)["unused"], 1);
       return std::make_shared<Halves>();
     }},
    {"Fourth", [](const std::string&) { return Regularizer(std::make_shared<Fourth>()); }},
    {"Capped",
     [](const std::string& config) {
       return std::make_shared<Capped>(Json::parse(config)["bound"].get<double>());
     }},
    {"doubled", [](const std::string& config) {
       EXPECT_EQ(config, "{}");
       return doubled();
     }}};

/// Of two families: one that names its arguments, and those that read them by hand.
std::unique_ptr<Functional> own_parts() {
  const Initializer halves(std::make_shared<Halves>());
  const Regularizer fourth(std::make_shared<Fourth>());
  const Constraint capped(std::make_shared<Capped>(.25));
  const layers::LSTM steps(3, {.activation = doubled(),
                               .kernel_initializer = halves,
                               .bias_regularizer = fourth,
                               .recurrent_constraint = capped,
                               .return_sequences = true});
  const layers::MultiHeadAttention attention(
      1, 2, {.kernel_regularizer = fourth, .bias_constraint = capped});
  const Dense last(2, {.activation = doubled(),
                       .kernel_initializer = halves,
                       .kernel_regularizer = fourth,
                       .activity_regularizer = fourth,
                       .kernel_constraint = capped});
  const Input x({4, 2});
  const KerasTensor y = steps(x);
  return std::make_unique<Functional>(
      x, last(layers::Flatten()(attention(std::vector<KerasTensor>{y, y}))));
}

TEST_F(CustomObjectFiles, InitializersRegularizersConstraintsAndActivationsComeFromTheirMakers) {
  auto model = own_parts();
  testing::fill_weights(*model);  // some random ones make such a model diverge
  model->compile({.optimizer = optimizers::SGD({.learning_rate = 1e-5}), .loss = "mse"});
  model->fit(wave({6, 4, 2}), wave({6, 2}, 2), two_epochs());
  model->save(file());
  EXPECT_THROW(load_model(file()), InvalidArgument);
  const auto loaded = load_model(file(), {.custom_objects = kOwn});
  EXPECT_EQ(loaded->losses().size(), model->losses().size() - 1) << "it was not called yet";
  const History straight = model->fit(wave({6, 4, 2}), wave({6, 2}, 2), two_epochs(2));
  EXPECT_EQ(loaded->fit(wave({6, 4, 2}), wave({6, 2}, 2), two_epochs(2)).history, straight.history);
  const Tensor kernel = loaded->layers().back()->weights()[0].read_value();
  EXPECT_LE(kernel.max().item<double>(), .25);
  EXPECT_TRUE(std::isfinite(straight.history.at("loss").back()));
}

TEST_F(CustomObjectFiles, ConstraintsOfRecurrentAttentionAndEmbeddingLayersAreSaved) {
  const Constraint bound = constraints::MaxNorm(.5);
  for (const layers::Layer& layer :
       {layers::Layer(layers::GRU(2, {.kernel_constraint = bound, .bias_constraint = "non_neg"})),
        layers::Layer(layers::Embedding(5, 2, {.embeddings_constraint = bound})),
        layers::Layer(layers::MultiHeadAttention(1, 2, {.kernel_constraint = bound}))}) {
    SCOPED_TRACE(layer->class_name());
    EXPECT_NE(layer->config().find("MaxNorm"), std::string::npos);
    EXPECT_EQ(layers::layer_from_config(layer->class_name(), layer->config())->config(),
              layer->config());
  }
}

// ---- to_json

TEST(ModelToJson, MakesTheArchitectureAgainWithNewWeights) {
  auto model = own_parts();
  const std::string text = model->to_json();
  const auto again = model_from_json(text, kOwn);
  EXPECT_TRUE(again->built());
  EXPECT_FALSE(again->compiled());
  EXPECT_EQ(again->to_json(), text);
  EXPECT_TENSOR_EQ(again->layers().back()->weights()[0].read_value(), at::full({12, 2}, .5f));
  again->set_weights(model->get_weights());
  EXPECT_TENSOR_EQ((*again)(wave({2, 4, 2})), (*model)(wave({2, 4, 2})));
}

TEST(ModelToJson, SaysWhatIsWrong) {
  EXPECT_ERROR(Sequential({Dense(1)}).to_json(), FailedPrecondition, "not built");
  EXPECT_ERROR(model_from_json("no json"), DataLoss, "model_from_json");
  EXPECT_ERROR(model_from_json("{}"), InvalidArgument, "model_from_json");
  EXPECT_ERROR(model_from_json(R"({"format": 1, "kind": "sequential"})"), DataLoss,
               "no list of layers");
}

}  // namespace
}  // namespace tutti::keras
