// Model::save and load_model for graphs of layers, nested models and what is not Tutti's.

#include <nlohmann/json.hpp>

#include "keras/line_model.h"
#include "support/temporary_folder.h"
#include "tutti/distribute/config.h"
#include "tutti/io/tensor_file.h"

namespace tutti::keras {
namespace {

using Json = nlohmann::json;
using layers::BatchNormalization;
using layers::Dense;
using layers::Dropout;
using layers::Shape;
using testing::replicas;

Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}
FitOptions quiet(int64_t epochs, int64_t initial_epoch = 0) {
  FitOptions options;
  options.batch_size = 4;
  options.epochs = epochs;
  options.initial_epoch = initial_epoch;
  options.verbose = 0;
  options.shuffle = false;  // without set_seed each fit has an order of its own
  return options;
}
void expect_same_weights(const Model& one, const Model& other) {
  const auto found = one.get_weights(), wanted = other.get_weights();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TENSOR_EQ(found[i], wanted[i]);
}

/// What a model is trained on.
struct Example {
  std::unique_ptr<Model> model;
  Arrays x;
  Arrays y;
  PerOutput<losses::Loss> loss = "mse";
  Metrics metrics = {};
};

Example stack() {
  return {std::make_unique<Sequential>(std::vector<layers::Layer>{
              Dense(5, {.activation = "tanh", .input_shape = {3}}),
              BatchNormalization({.momentum = .5}), Dropout(.3), Dense(2)}),
          rows(12, 3),
          rows(12, 2),
          "mae",
          {"mse"}};
}

/// A layer that is called twice, and noise behind each call.
Example shared() {
  Input a({3}, "a"), b({3}, "b");
  const Dense both(4, {.activation = "relu"});
  const KerasTensor joined =
      layers::Concatenate()({Dropout(.2)(both(a)), layers::GaussianNoise(.1)(both(b))});
  return {std::make_unique<Functional>(SymbolicNest{a, b}, Dense(2)(joined)),
          {rows(12, 3), rows(12, 3) + 1},
          rows(12, 2)};
}

/// Several outputs by name, with a loss and metrics of their own.
Example several() {
  Input x({3});
  const KerasTensor hidden = BatchNormalization()(Dense(4, {.activation = "tanh"})(x));
  Example example;
  example.model = std::make_unique<Functional>(
      SymbolicNest{{"x", x}},
      SymbolicNest{{"number", Dense(1)(hidden)},
                   {"kind", Dense(3, {.activation = "softmax"})(hidden)}},
      FunctionalName{"several"});
  example.x = {{"x", rows(12, 3)}};
  example.y = {{"number", rows(12, 1)}, {"kind", at::arange(12).remainder(3)}};
  example.loss = {{"number", "mse"}, {"kind", "sparse_categorical_crossentropy"}};
  example.metrics = {{"number", {"mae"}}, {"kind", {"accuracy"}}};
  return example;
}

/// Models inside a model, whose layers have the same names.
Example nested() {
  const auto inner = [](const std::string& name) {
    return Sequential(
        {Dense(3, {.activation = "tanh", .name = "inside", .input_shape = {3}}), Dropout(.1)},
        {.name = name});
  };
  const Sequential left = inner("left"), right = inner("right");
  Input x({3});
  Functional middle(x, layers::Add()({left(x), right(x)}), FunctionalName{"middle"});
  return {std::make_unique<Sequential>(std::vector<layers::Layer>{middle, Dense(2)}), rows(12, 3),
          rows(12, 2)};
}

/// Sequences: layers inside layers, masks, several outputs of one layer.
Example sequences() {
  Input words({5}, layers::InputOptions{.dtype = at::kLong, .name = "words"});
  const KerasTensor embedded = layers::Embedding(7, 4, {.mask_zero = true})(words);
  const KerasTensor both =
      layers::Bidirectional(layers::LSTM(3, {.return_sequences = true}))(embedded);
  const KerasTensor out = layers::TimeDistributed(Dense(2))(both);
  return {std::make_unique<Functional>(words, layers::GRU(2)(out)),
          at::arange(60).remainder(7).view({12, 5}), rows(12, 2)};
}

const std::vector<std::pair<std::string, Example (*)()>> kExamples{{"stack", stack},
                                                                   {"shared", shared},
                                                                   {"several", several},
                                                                   {"nested", nested},
                                                                   {"sequences", sequences}};

std::vector<optimizers::Optimizer> optimizers_to_save() {
  using namespace optimizers;
  return {Adam({.learning_rate = .01}), SGD({.learning_rate = .05, .momentum = .9}),
          AdamW({.use_ema = true, .ema_momentum = .8, .gradient_accumulation_steps = 2}),
          RMSprop({.centered = true}), Adagrad({.clipnorm = .5})};
}

class SavingGraphs : public tutti::testing::TemporaryFolder {
 protected:
  std::string file() const { return path("model.tutti"); }
};

TEST_F(SavingGraphs, TrainingGoesOnBitForBitWithEveryKindOfModel) {
  for (const auto& [name, make] : kExamples) {
    const std::size_t count = name == "sequences" ? 2 : optimizers_to_save().size();
    for (std::size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(cat(name, " ", optimizers_to_save()[i].class_name()));
      set_seed(5);
      Example example = make();
      Model& model = *example.model;
      model.compile({.optimizer = optimizers_to_save()[i],
                     .loss = example.loss,
                     .metrics = example.metrics,
                     .steps_per_execution = 2});
      model.fit(example.x, example.y, quiet(1));
      model.save(file());
      const auto loaded = load_model(file());
      EXPECT_EQ(loaded->name(), model.name());
      expect_same_weights(*loaded, model);
      const History straight = model.fit(example.x, example.y, quiet(3, 1));
      const History resumed = loaded->fit(example.x, example.y, quiet(3, 1));
      expect_same_weights(*loaded, model);
      EXPECT_EQ(resumed.history, straight.history);
      EXPECT_EQ(loaded->optimizer().config(), model.optimizer().config());
    }
  }
}

TEST_F(SavingGraphs, AnyStrategyLoadsThem) {
  auto two = replicas(2);
  for (const auto& [name, make] : kExamples) {
    SCOPED_TRACE(name);
    Nest predicted;
    Arrays x;
    {
      auto scope = two->scope();
      Example example = make();
      example.model->compile({.optimizer = "adam", .loss = example.loss});
      example.model->fit(example.x, example.y, quiet(1));
      // Statistics that replicas have each for themselves are the first one's in the file.
      example.model->set_weights(example.model->get_weights());
      example.model->save(file());
      x = example.x;
      predicted = example.model->predict_all(x, {.verbose = 0});
    }
    const Nest found = load_model(file())->predict_all(x, {.verbose = 0});
    ASSERT_EQ(found.structure(), predicted.structure());
    const auto one = flatten(found), other = flatten(predicted);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TENSOR_NEAR(one[i], other[i], 1e-5);
  }
}

TEST_F(SavingGraphs, InputsAndOutputsKeepTheirStructure) {
  Input a({2}, "a"), b({2}, "b");
  const KerasTensor sum = layers::Add()({a, b});
  const SymbolicNest list{a, b};
  const SymbolicNest map{{"one", sum}, {"two", Dense(1)(sum)}};
  Functional model(list, map);
  model.save(file());
  const auto loaded = load_model(file());
  const auto* functional = dynamic_cast<Functional*>(loaded.get());
  ASSERT_NE(functional, nullptr);
  EXPECT_EQ(functional->inputs().structure(), "[*, *]");
  EXPECT_EQ(functional->outputs().structure(), map.structure());
  EXPECT_EQ(functional->input_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(functional->output_names(), (std::vector<std::string>{"one", "two"}));
  const Nest out = (*loaded)(std::vector<Tensor>{rows(3, 2), rows(3, 2)});
  EXPECT_TENSOR_EQ(out["two"].leaf(),
                   model(std::vector<Tensor>{rows(3, 2), rows(3, 2)})["two"].leaf());
  std::ostringstream was, is;
  model.summary(was);
  loaded->summary(is);
  EXPECT_EQ(is.str(), was.str());
}

TEST_F(SavingGraphs, DtypePoliciesAndWhatIsNotTrainedComeBack) {
  mixed_precision::set_global_policy("mixed_bfloat16");
  Input x({3});
  const Dense frozen(4);
  Functional model(x, Dense(2, {.dtype = "float32"})(Dense(3)(frozen(x))));
  mixed_precision::set_global_policy("float32");
  frozen->set_trainable(false);
  model.save(file());
  auto loaded = load_model(file());
  EXPECT_EQ(loaded->dtype_policy().name(), "mixed_bfloat16");
  EXPECT_EQ(loaded->layers()[2]->dtype_policy().name(), "mixed_bfloat16");
  EXPECT_EQ(loaded->layers()[3]->dtype_policy().name(), "float32");
  EXPECT_EQ(loaded->trainable_variables().size(), model.trainable_variables().size());
  EXPECT_TENSOR_EQ((*loaded)(rows(4, 3)), model(rows(4, 3)));

  mixed_precision::set_global_policy("mixed_bfloat16");
  Sequential plain({Dense(2, {.dtype = "float32", .input_shape = {3}})});
  mixed_precision::set_global_policy("float32");
  plain.set_trainable(false);
  plain.save(file());
  loaded = load_model(file());
  EXPECT_FALSE(loaded->trainable());
  EXPECT_EQ(loaded->layers()[0]->dtype_policy().name(), "float32");
}

// ---- what is not Tutti's

/// x times a number.
class Scale : public layers::LayerImpl {
 public:
  explicit Scale(double factor) : LayerImpl("Scale", "", {}), factor_(factor) {}
  std::string class_name() const override { return "Scale"; }
  std::string config() const override { return Json{{"factor", factor_}}.dump(); }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  void build(const Shape&) override {
    offset_ = add_weight({.name = "offset", .shape = {1}, .initializer = initializers::Ones()});
  }
  bool has_weights() const override { return true; }
  Tensor call(const Tensor& input, bool) override { return input * factor_ + offset_.value(); }

 private:
  double factor_;
  Variable offset_;
};
layers::Layer scale(double factor) { return std::make_shared<Scale>(factor); }
const CustomObject kScale([](const std::string& config) {
  return std::make_shared<Scale>(Json::parse(config)["factor"].get<double>());
});

class OwnLoss : public losses::Loss::Impl {
 public:
  explicit OwnLoss(double power)
      : Impl("own_loss", losses::Reduction::kSumOverBatchSize), power_(power) {}
  std::string class_name() const override { return "OwnLoss"; }
  std::string config() const override { return Json{{"power", power_}}.dump(); }
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    return (y_true - y_pred).abs().pow(power_).mean(1);
  }

 private:
  double power_;
};

class Largest : public metrics::Metric::Impl {
 public:
  Largest() : Impl("largest") { sum_ = add_variable("sum", {}); }
  std::string class_name() const override { return "Largest"; }
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor&) override {
    sum_.assign_add(y_pred.max());
  }
  Tensor result() const override { return sum_.read_value(); }

 private:
  Variable sum_;
};

TEST_F(SavingGraphs, LayersOfTheUsersOwnComeFromTheirMakers) {
  Input x({4, 3});
  const Sequential inner({scale(2), Dense(3)}, {.name = "inner"});
  const layers::Layer first = scale(.5);
  Functional model(x, layers::TimeDistributed(inner)(first(first(x))));
  model.save(file());
  EXPECT_ERROR(load_model(file()), Unimplemented, "custom_objects");
  const auto loaded = load_model(file(), {.custom_objects = {{"Scale", kScale}}});
  expect_same_weights(*loaded, model);
  EXPECT_EQ(loaded->layers()[1]->name(), first->name());
  EXPECT_TENSOR_EQ((*loaded)(rows(8, 3).view({2, 4, 3})), model(rows(8, 3).view({2, 4, 3})));
}

TEST_F(SavingGraphs, LossesAndMetricsOfTheUsersOwnComeFromTheirMakers) {
  Sequential model({Dense(2, {.input_shape = {3}})});
  model.compile({.optimizer = "adam",
                 .loss = losses::Loss(std::make_shared<OwnLoss>(3)),
                 .metrics = {metrics::Metric(std::make_shared<Largest>()), "mae"}});
  model.fit(rows(8, 3), rows(8, 2), quiet(1));
  model.save(file());
  EXPECT_THROW(load_model(file()), InvalidArgument);
  EXPECT_FALSE(load_model(file(), {.compile = false})->compiled());
  const auto loaded =
      load_model(file(), {.custom_objects = {{"OwnLoss",
                                              [](const std::string& config) {
                                                return std::make_shared<OwnLoss>(
                                                    Json::parse(config)["power"].get<double>());
                                              }},
                                             {"Largest", [](const std::string&) {
                                                return metrics::Metric(std::make_shared<Largest>());
                                              }}}});
  const History straight = model.fit(rows(8, 3), rows(8, 2), quiet(2, 1));
  EXPECT_EQ(loaded->fit(rows(8, 3), rows(8, 2), quiet(2, 1)).history, straight.history);
  EXPECT_EQ(straight.history.count("largest"), 1u);
}

TEST_F(SavingGraphs, ALossThatIsAFunctionComesByItsName) {
  const auto quartic = [](const Tensor& y_true, const Tensor& y_pred) {
    return (y_true - y_pred).pow(4).mean(1);
  };
  Sequential model({Dense(2, {.input_shape = {3}})});
  model.compile({.optimizer = "sgd", .loss = losses::from_function(quartic, "quartic")});
  model.save(file());
  EXPECT_THROW(load_model(file()), InvalidArgument);
  const auto loaded =
      load_model(file(), {.custom_objects = {{"quartic", [&](const std::string&) {
                                                return losses::from_function(quartic, "quartic");
                                              }}}});
  EXPECT_EQ(loaded->evaluate(rows(8, 3), rows(8, 2), {.verbose = 0})["loss"],
            model.evaluate(rows(8, 3), rows(8, 2), {.verbose = 0})["loss"]);
}

class Own : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return dense_(x); }

 private:
  layers::Layer dense_ = track(Dense(2));
};

TEST_F(SavingGraphs, AModelOfTheUsersOwnSaysWhatKeepsIt) {
  Own model;
  model(rows(2, 3));
  EXPECT_ERROR(model.save(file()), Unimplemented, "save_weights or train::Checkpoint");
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(SavingGraphs, AConfigurationThatIsNoJsonIsRefusedBeforeAnythingIsWritten) {
  class Wordy : public Scale {
   public:
    Wordy() : Scale(1) {}
    std::string config() const override { return "factor 1"; }
  };
  Sequential model({std::make_shared<Wordy>(), Dense(1)});
  model.build({-1, 3});
  EXPECT_ERROR(model.save(file()), InvalidArgument, "JSON object");
  EXPECT_FALSE(std::filesystem::exists(file()));
}

// ---- files of strangers

TEST_F(SavingGraphs, AFileThatIsTooLargeIsNotRead) {
  Sequential model({Dense(2, {.input_shape = {3}})});
  model.save(file());
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file()));
  EXPECT_ERROR(load_model(file(), {.max_bytes = bytes - 1}), InvalidArgument, "max_bytes");
  EXPECT_NO_THROW(load_model(file(), {.max_bytes = bytes}));
}

std::unique_ptr<Functional> small_graph() {
  Input a({2}, "a");
  const Dense both(2, {.name = "d"});
  auto model = std::make_unique<Functional>(
      SymbolicNest{{"a", a}},
      SymbolicNest{both(both(a)), Sequential({Dense(1, {.name = "e"})}, {.name = "s"})(a)},
      FunctionalName{"m"});
  model->compile({.optimizer = optimizers::SGD({.momentum = .9}), .loss = {"mse", "mae"}});
  model->train_on_batch({{"a", rows(2, 2)}}, {rows(2, 2), rows(2, 1)});
  return model;
}

TEST_F(SavingGraphs, DamageIsAlwaysNoticed) {
  small_graph()->save(file());
  const std::string whole = bytes_of(file());
  const auto refused = [&](const std::string& bytes) {
    write("damaged", bytes);
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

/// The checksums are right, the description is not.
TEST_F(SavingGraphs, AnyDescriptionIsLoadedOrRefused) {
  small_graph()->save(file());
  const io::TensorFile good = io::read_tensor_file(file());
  int loaded = 0, refused = 0;
  const auto attempt = [&](const std::string& description) {
    io::write_tensor_file(path("other"), {description, good.tensors});
    try {
      load_model(path("other"));
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t at = 0; at < good.metadata.size(); ++at) {
    std::string less = good.metadata, other = good.metadata;
    attempt(less.erase(at, 1));
    other[at] = other[at] == '9' ? '0' : '9';
    attempt(other);
  }
  EXPECT_GT(refused, 100);
  // Parts of the description taken out, or put in the place of others.
  const Json json = Json::parse(good.metadata);
  std::vector<Json::json_pointer> places;
  const auto visit = [&](auto&& self, const Json& part, const Json::json_pointer& place) -> void {
    if (!place.empty()) places.push_back(place);
    if (part.is_object()) {
      for (const auto& [key, value] : part.items()) self(self, value, place / key);
    } else if (part.is_array()) {
      for (std::size_t i = 0; i < part.size(); ++i) self(self, part[i], place / i);
    }
  };
  visit(visit, json, Json::json_pointer());
  for (const auto& place : places) {
    for (const Json& with : {Json(), Json(-1), Json(1e300), Json("x"), Json::array(),
                             Json::object(), Json::array({Json::array()}), json["model"]}) {
      Json other = json;
      other[place] = with;
      attempt(other.dump());
    }
  }
  EXPECT_GT(loaded, 0);
}

TEST_F(SavingGraphs, LayersNestedWithoutEndAreRefused) {
  Sequential model({Dense(2, {.input_shape = {3}})});
  model.save(file());
  const io::TensorFile good = io::read_tensor_file(file());
  Json layer{{"class_name", "Dense"}, {"config", {{"units", 2}}}};
  for (int i = 0; i < 1000; ++i) {
    layer = {{"class_name", i % 2 ? "Sequential" : "TimeDistributed"},
             {"config", {{"layer", layer}, {"layers", Json::array({layer})}}}};
    layer["config"].erase(i % 2 ? "layer" : "layers");
  }
  Json json = Json::parse(good.metadata);
  json["layers"] = Json::array({layer});
  io::write_tensor_file(path("deep"), {json.dump(), good.tensors});
  EXPECT_ERROR(load_model(path("deep")), DataLoss, "too deep");
}

TEST_F(SavingGraphs, DescriptionsNestedWithoutEndAreRefused) {
  Sequential model({Dense(2, {.input_shape = {3}})});
  model.save(file());
  const io::TensorFile good = io::read_tensor_file(file());
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  for (const char* key : {"layers", "input_shape", "compiled", "anything"}) {
    std::string json = good.metadata;
    json.insert(1, cat('"', key, "\":", deep, ","));
    io::write_tensor_file(path("deep"), {json, good.tensors});
    SCOPED_TRACE(key);
    EXPECT_ERROR(load_model(path("deep")), DataLoss, "too deep");
  }
  EXPECT_ERROR(layers::layer_from_config("Dense", deep), DataLoss, "too deep");
  EXPECT_EQ(load_model(file())->weights().size(), 2u);
}

}  // namespace
}  // namespace tutti::keras
