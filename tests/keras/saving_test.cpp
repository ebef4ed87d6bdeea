#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/io/tensor_file.h"
#include "tutti/keras/layers.h"
#include "tutti/keras/model.h"

namespace tutti::keras {
namespace {

namespace fs = std::filesystem;
using distribute::MirroredStrategy;
using layers::BatchNormalization;
using layers::Conv2D;
using layers::Dense;
using layers::Flatten;

Tensor images(int64_t rows) {
  return at::sin(at::arange(rows * 32, at::kFloat)).view({rows, 4, 4, 2});
}
Tensor labels(int64_t rows) { return at::arange(rows).remainder(3); }

FitOptions quiet(int64_t epochs, int64_t initial_epoch = 0) {
  FitOptions options;
  options.batch_size = 4;
  options.epochs = epochs;
  options.initial_epoch = initial_epoch;
  options.verbose = 0;
  options.shuffle = false;
  return options;
}

std::unique_ptr<Sequential> cnn() {
  return std::unique_ptr<Sequential>(
      new Sequential({Conv2D(3, 3,
                             {.padding = "same",
                              .activation = "relu",
                              .kernel_regularizer = regularizers::L2(.01),
                              .input_shape = {4, 4, 2}}),
                      BatchNormalization({.momentum = .5}), layers::MaxPooling2D(), Flatten(),
                      layers::Dropout(.2, {.seed = 1}), Dense(3)},
                     {.name = "cnn"}));
}

void compile(Model& model, const optimizers::Optimizer& optimizer) {
  model.compile({.optimizer = optimizer,
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy", metrics::SparseCategoricalAccuracy("named")},
                 .weighted_metrics = {"accuracy"},
                 .steps_per_execution = 2});
}

void expect_same_weights(const Model& one, const Model& other) {
  const auto found = one.get_weights(), wanted = other.get_weights();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TENSOR_EQ(found[i], wanted[i]);
}

/// A folder of its own for each test, removed afterwards.
class Saving : public ::testing::Test {
 protected:
  Saving() {
    folder_ = fs::temp_directory_path() /
              cat("tutti_saving_", ::testing::UnitTest::GetInstance()->current_test_info()->line(),
                  "_", getpid());
    fs::create_directories(folder_);
  }
  ~Saving() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "model.tutti") const {
    return (folder_ / name).string();
  }

  fs::path folder_;
};

TEST_F(Saving, AModelComesBackAsItWas) {
  const auto model = cnn();
  model->layers()[0]->set_trainable(false);
  model->save(path());
  const auto loaded = load_model(path());
  EXPECT_EQ(loaded->name(), "cnn");
  EXPECT_FALSE(loaded->compiled());
  expect_same_weights(*loaded, *model);
  ASSERT_EQ(loaded->layers().size(), model->layers().size());
  for (std::size_t i = 0; i < model->layers().size(); ++i) {
    EXPECT_EQ(loaded->layers()[i]->name(), model->layers()[i]->name());
    EXPECT_EQ(loaded->layers()[i]->config(), model->layers()[i]->config());
  }
  EXPECT_EQ(loaded->trainable_variables().size(), model->trainable_variables().size());
  EXPECT_TENSOR_EQ((*loaded)(images(2)), (*model)(images(2)));
}

TEST_F(Saving, AModelBuiltByItsFirstBatchComesBackBuilt) {
  Sequential model({Flatten(), Dense(2)});
  EXPECT_ERROR(model.save(path()), FailedPrecondition, "not built");
  model(images(3));
  model.save(path());
  EXPECT_TRUE(load_model(path())->built());
}

TEST_F(Saving, TrainingGoesOnAsIfThereHadBeenNoInterruption) {
  const std::vector<optimizers::Optimizer> optimizers = {
      optimizers::SGD({.learning_rate = .1, .momentum = .9}),
      optimizers::Adam({.learning_rate = .01, .amsgrad = true}),
      optimizers::AdamW(),
      optimizers::RMSprop({.momentum = .5, .centered = true}),
      optimizers::Adagrad({.learning_rate = .1, .global_clipnorm = .5}),
      optimizers::Adamax(),
      optimizers::Nadam(),
      optimizers::Adadelta({.learning_rate = 1}),
      optimizers::Ftrl({.learning_rate = .1}),
      optimizers::Lion(),
      optimizers::Lamb(),
      optimizers::Adafactor(),
      optimizers::Muon(),
      optimizers::ScheduleFreeAdamW(),
      optimizers::LossScaleOptimizer(optimizers::Adam(), {.dynamic_growth_steps = 4}),
      optimizers::MultiOptimizer(optimizers::OptimizerMap(
          optimizers::Adam(), {{".*/bias", optimizers::SGD({.momentum = .9})}})),
      optimizers::SGD({.learning_rate = optimizers::schedules::ExponentialDecay(
                           {.initial_learning_rate = .1, .decay_steps = 3, .decay_rate = .5})})};
  for (const optimizers::Optimizer& optimizer : optimizers) {
    SCOPED_TRACE(optimizer.class_name());
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    auto scope = strategy.scope();
    Sequential model({Flatten(), Dense(5, {.activation = "tanh"}), Dense(3)});
    compile(model, optimizer);
    model.fit(images(12), labels(12), quiet(1));
    const bool has_number = optimizer.class_name() != "MultiOptimizer" &&
                            optimizer.config().find("ExponentialDecay") == std::string::npos;
    if (has_number) model.optimizer().set_learning_rate(.02);
    model.save(path());
    const auto loaded = load_model(path());
    EXPECT_EQ(loaded->optimizer().iterations(), 3);
    if (has_number) {
      EXPECT_EQ(loaded->optimizer().learning_rate(), .02);
    }
    EXPECT_EQ(loaded->optimizer().config(), model.optimizer().config());
    const History straight = model.fit(images(12), labels(12), quiet(3, 1));
    const History resumed = loaded->fit(images(12), labels(12), quiet(3, 1));
    expect_same_weights(*loaded, model);
    EXPECT_EQ(resumed.history, straight.history);
    EXPECT_EQ(resumed.history.count("named"), 1);
  }
}

TEST_F(Saving, AnOptimizerKeepsItsVariablesAndExclusions) {
  Sequential model({Flatten(), Dense(3, {.name = "frozen"}), Dense(3, {.name = "last"})});
  optimizers::AdamW optimizer({.weight_decay = .1});
  optimizer.exclude_from_weight_decay({.var_names = {"bias"}});
  compile(model, optimizer);
  model.fit(images(12), labels(12), quiet(1));
  model.layers()[1]->set_trainable(false);
  model.save(path());
  const auto loaded = load_model(path());
  model.fit(images(12), labels(12), quiet(2, 1));
  loaded->fit(images(12), labels(12), quiet(2, 1));
  expect_same_weights(*loaded, model);
  loaded->layers()[1]->set_trainable(true);
  model.layers()[1]->set_trainable(true);
  model.fit(images(12), labels(12), quiet(3, 2));
  loaded->fit(images(12), labels(12), quiet(3, 2));
  expect_same_weights(*loaded, model);
}

TEST_F(Saving, AnyStrategyLoadsWhatAnotherSaved) {
  std::vector<Tensor> saved;
  {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}});
    auto scope = strategy.scope();
    const auto model = cnn();
    compile(*model, "adam");
    model->fit(images(12), labels(12), quiet(1));
    model->save(path());
    saved = model->get_weights();
  }
  const auto check = [&] {
    const auto loaded = load_model(path());
    const auto weights = loaded->get_weights();
    for (std::size_t i = 0; i < saved.size(); ++i) {
      EXPECT_TENSOR_EQ(weights[i], saved[i]);
      for (const Tensor& component : loaded->weights()[i].components())
        EXPECT_TENSOR_EQ(component, saved[i]);
    }
    loaded->fit(images(12), labels(12), quiet(2, 1));
    EXPECT_EQ(loaded->optimizer().iterations(), 6);
    return loaded->predict(images(5));
  };
  EXPECT_EQ(check().size(0), 5);
  distribute::OneDeviceStrategy one("cpu:0");
  {
    auto scope = one.scope();
    EXPECT_EQ(check().size(0), 5);
  }
  MirroredStrategy two({.devices = {"cpu:0", "cpu:1"}});
  auto scope = two.scope();
  EXPECT_EQ(check().size(0), 5);
}

TEST_F(Saving, WithoutCompileOnlyTheModelIsLoaded) {
  const auto model = cnn();
  compile(*model, "sgd");
  model->save(path());
  EXPECT_TRUE(load_model(path())->compiled());
  EXPECT_FALSE(load_model(path(), {.compile = false})->compiled());
}

TEST_F(Saving, WeightsAloneGoIntoAnyModelOfTheirShapes) {
  const auto model = cnn();
  model->save_weights(path("a.weights.tutti"));
  model->save(path());
  for (const std::string& file : {path("a.weights.tutti"), path()}) {
    const auto other = cnn();
    other->load_weights(file);
    expect_same_weights(*other, *model);
  }
  EXPECT_ERROR(load_model(path("a.weights.tutti")), InvalidArgument, "load_weights");
}

TEST_F(Saving, WeightsThatDoNotFitChangeNothing) {
  cnn()->save_weights(path());
  Sequential fewer({Dense(2, {.input_shape = {3}})});
  const auto before = fewer.get_weights();
  EXPECT_ERROR(fewer.load_weights(path()), InvalidArgument, "8 weights for a model with 2");
  Sequential other({Dense(2, {.input_shape = {3}}), BatchNormalization(), Dense(2)});
  EXPECT_ERROR(other.load_weights(path()), InvalidArgument, "nothing was changed");
  EXPECT_TENSOR_EQ(fewer.get_weights()[0], before[0]);
  EXPECT_ERROR(Sequential({Dense(1)}).load_weights(path()), FailedPrecondition, "not built");
  EXPECT_ERROR(fewer.load_weights(path("none")), NotFound, "No such file");
}

/// A model of the user's own.
class Doubler : public Model {
 public:
  Doubler() : Model("doubler") {}
  Tensor call(const Tensor& x, bool training) override { return 2 * dense_(x); }
  void build(const layers::Shape& shape) override { dense_->build_for(shape); }
  bool built() const override { return dense_->built(); }
  std::vector<layers::Layer> layers() const override { return {dense_}; }

 private:
  Dense dense_{2};
};

TEST_F(Saving, AModelOfTheUsersOwnSavesItsWeights) {
  Doubler model, other;
  model(at::ones({1, 3}));
  other(at::ones({1, 3}));
  EXPECT_ERROR(model.save(path()), Unimplemented, "use save_weights");
  model.save_weights(path());
  other.load_weights(path());
  expect_same_weights(other, model);
}

TEST_F(Saving, KernelsAreInTheFileAsTheUserSeesThem) {
  Sequential model({Conv2D(2, 3, {.name = "c", .input_shape = {4, 4, 5}})});
  model.save_weights(path());
  const io::TensorFile file = io::read_tensor_file(path());
  EXPECT_EQ(file.tensors[0].first, "weights/c/kernel");
  EXPECT_TENSOR_EQ(file.tensors[0].second, model.get_weights()[0]);
}

TEST_F(Saving, DamageIsAlwaysNoticed) {
  Sequential model({Dense(2, {.input_shape = {2}})});
  model.compile({.optimizer = "adam", .loss = "mse"});
  model.train_on_batch(at::ones({2, 2}), at::ones({2, 2}));
  model.save(path());
  std::ifstream input(path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path("damaged"), std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      load_model(path("damaged"));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kDataLoss || error.code() == ErrorCode::kInvalidArgument;
    }
    return false;
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    EXPECT_TRUE(refused(whole.substr(0, at))) << "cut at byte " << at;
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    EXPECT_TRUE(refused(flipped)) << "flipped in byte " << at;
  }
}

/// Writes a file whose checksums are right and whose description is not.
TEST_F(Saving, DescriptionsThatCannotBeAreRefused) {
  const std::string good =
      R"("format": 1, "kind": "sequential", "name": "m", "input_shape": [-1, 2])";
  const std::vector<std::string> descriptions = {
      "",
      "[]",
      "{",
      "null",
      "{}",
      R"({"kind": "sequential", "format": 2})",
      cat("{", good, "}"),
      cat("{", good, R"(, "layers": 3})"),
      cat("{", good, R"(, "layers": [3]})"),
      cat("{", good, R"(, "layers": [{"class_name": "Dense", "config": {"units": -1}}]})"),
      cat("{", good, R"(, "layers": [{"class_name": "Dense", "config": {"units": "many"}}]})"),
      cat("{", good,
          R"(, "layers": [{"class_name": "Dense", "config": {"units": 1000000000000000}}]})"),
      cat("{", good,
          R"(, "layers": [{"class_name": "Dense", "config": {"units": 2, "activation": "no"}}]})"),
      cat("{", good,
          R"(, "layers": [{"class_name": "Flatten", "config": {}}], "compiled": {"optimizer": {"class_name": "no"}}})"),
      cat("{", good, R"(, "layers": [{"class_name": "Flatten", "config": {}}], "compiled": 5})"),
      R"({"format": 1, "kind": "sequential", "name": "m", "input_shape": [], "layers": [{"class_name": "Dense", "config": {"units": 2}}]})",
  };
  for (const std::string& description : descriptions) {
    SCOPED_TRACE(description);
    io::write_tensor_file(path(), {description, {}});
    try {
      load_model(path());
      ADD_FAILURE() << "loaded";
    } catch (const DataLoss&) {
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace tutti::keras
