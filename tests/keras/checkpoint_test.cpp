// Models, optimizers, metrics and iterators in train::Checkpoint.

#include "tutti/train/checkpoint.h"

#include "keras/line_model.h"
#include "support/temporary_folder.h"
#include "tutti/data/dataset.h"
#include "tutti/io/tensor_file.h"

namespace tutti::keras {
namespace {

using layers::BatchNormalization;
using layers::Dense;
using layers::Shape;
using testing::replicas;
using train::Checkpoint;

Tensor rows(int64_t count, int64_t width) {
  return (at::arange(count * width, at::kFloat) * .7).sin().reshape({count, width});
}
Tensor inputs() { return rows(12, 3); }
Tensor targets() { return rows(12, 2) * .5; }

/// With names of its own, as every model of a program has.
std::unique_ptr<Sequential> network(bool built = true) {
  layers::DenseOptions first{.activation = "tanh"};
  if (built) first.input_shape = {3};
  return std::make_unique<Sequential>(std::vector<layers::Layer>{
      Dense(4, first), BatchNormalization({.synchronized = true}), Dense(2)});
}

void compile(Model& model, const optimizers::Optimizer& optimizer) {
  model.compile({.optimizer = optimizer, .loss = "mse"});
}
void train(Model& model, int steps) {
  for (int i = 0; i < steps; ++i) model.train_on_batch(inputs(), targets());
}
Checkpoint checkpoint_of(Model& model) {
  return Checkpoint({{"model", model}, {"optimizer", model.optimizer()}});
}

void expect_near(const Model& one, const Model& other, double tolerance) {
  const auto found = one.get_weights(), wanted = other.get_weights();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TENSOR_NEAR(found[i], wanted[i], tolerance);
}
/// The weights, and what the optimizer knows.
struct Known {
  explicit Known(Model& model)
      : weights(model.get_weights()), iterations(model.optimizer().iterations()) {
    if (model.optimizer().class_name() != "MultiOptimizer")
      learning_rate = model.optimizer().learning_rate();
    for (const std::string& slot : model.optimizer().slot_names()) {
      for (const Variable& variable : model.optimizer().slots(slot))
        slots[slot].push_back(variable.read_value().clone());
    }
  }
  std::vector<Tensor> weights;
  int64_t iterations;
  double learning_rate = 0;
  std::map<std::string, std::vector<Tensor>> slots;
};
void expect_equal(const Known& found, const Known& wanted, double tolerance = 0) {
  const auto expect_near_each = [&](const std::vector<Tensor>& one,
                                    const std::vector<Tensor>& other) {
    ASSERT_EQ(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TENSOR_NEAR(one[i], other[i], tolerance);
  };
  expect_near_each(found.weights, wanted.weights);
  EXPECT_EQ(found.iterations, wanted.iterations);
  EXPECT_EQ(found.learning_rate, wanted.learning_rate);
  ASSERT_EQ(found.slots.size(), wanted.slots.size());
  for (const auto& [slot, values] : wanted.slots) expect_near_each(found.slots.at(slot), values);
}
/// What several replicas have added up towards an update goes on as one sum: another order.
double rounding_of(const std::string& name) { return name == "accumulation" ? 1e-6 : 0; }

/// Under `strategy`, or under none.
template <class Body>
void under(distribute::Strategy* strategy, Body body) {
  if (strategy == nullptr) return body();
  auto scope = strategy->scope();
  body();
}

/// Makes an optimizer anew each time: a handle's copies are one.
using MakeOptimizer = std::function<optimizers::Optimizer()>;
std::vector<std::pair<std::string, MakeOptimizer>> optimizers_to_save() {
  using namespace optimizers;
  return {
      {"adam", [] { return Adam({.learning_rate = .02, .amsgrad = true}); }},
      {"momentum", [] { return SGD({.learning_rate = .05, .momentum = .9, .nesterov = true}); }},
      {"plain", [] { return SGD({.learning_rate = .1}); }},
      {"accumulation",
       [] { return Adam({.learning_rate = .02, .gradient_accumulation_steps = 3}); }},
      {"average", [] { return Adam({.learning_rate = .02, .use_ema = true, .ema_momentum = .5}); }},
      {"rmsprop", [] { return RMSprop({.learning_rate = .01, .momentum = .5, .centered = true}); }},
      {"adagrad", [] { return Adagrad({.learning_rate = .1}); }},
      {"adamax", [] { return Adamax(); }},
      {"nadam", [] { return Nadam(); }},
      {"adadelta", [] { return Adadelta({.learning_rate = 1}); }},
      {"ftrl", [] { return Ftrl({.learning_rate = .1}); }},
      {"lion", [] { return Lion(); }},
      {"lamb", [] { return Lamb(); }},
      {"adafactor", [] { return Adafactor(); }},
      {"muon", [] { return Muon(); }},
      {"schedule_free", [] { return ScheduleFreeAdamW({.learning_rate = .01}); }},
      {"scaled", [] { return LossScaleOptimizer(Adam(), {.dynamic_growth_steps = 4}); }},
      {"several",
       [] {
         return MultiOptimizer(OptimizerMap(Adam(), {{".*/bias", SGD({.momentum = .9})}}));
       }},
      {"schedule",
       [] {
         return SGD({.learning_rate = schedules::ExponentialDecay(
                         {.initial_learning_rate = .1, .decay_steps = 3, .decay_rate = .5})});
       }},
      {"adamw", [] { return AdamW({.learning_rate = .01, .weight_decay = .1}); }}};
}

class KerasCheckpoints : public tutti::testing::TemporaryFolder {};

TEST_F(KerasCheckpoints, TrainingGoesOnUnderAnyStrategyWithEveryOptimizer) {
  auto two = replicas(2), three = replicas(3);
  distribute::OneDeviceStrategy one("cpu:0");
  for (const auto& [name, make] : optimizers_to_save()) {
    std::unique_ptr<Sequential> saved;
    std::string file;
    std::optional<Known> known;
    under(two.get(), [&] {
      saved = network();
      compile(*saved, make());
      train(*saved, 5);  // of accumulation 3 the last two are in flight
      file = checkpoint_of(*saved).write(path(name));
      known.emplace(*saved);
    });
    const std::vector<std::pair<std::string, distribute::Strategy*>> strategies{
        {"none", nullptr}, {"one device", &one}, {"three", three.get()}, {"two", two.get()}};
    std::vector<std::unique_ptr<Sequential>> resumed;
    for (const auto& [to, strategy] : strategies) {
      SCOPED_TRACE(cat(name, " to ", to));
      under(strategy, [&] {
        auto model = network();
        compile(*model, make());
        train(*model, 1);  // what it has learned must go
        if (name == "accumulation") train(*model, 3);
        checkpoint_of(*model).read(file).assert_consumed();
        expect_equal(Known(*model), *known);
        for (const Variable& weight : model->weights()) {
          for (const Tensor& component : weight.components())
            EXPECT_TENSOR_EQ(component, weight.read_value());
        }
        train(*model, 2);
        resumed.push_back(std::move(model));
      });
    }
    under(two.get(), [&] { train(*saved, 2); });
    for (std::size_t i = 0; i < resumed.size(); ++i) {
      SCOPED_TRACE(cat(name, " to ", strategies[i].first));
      expect_near(*resumed[i], *saved,
                  strategies[i].second == two.get() ? rounding_of(name) : 2e-4);
      EXPECT_EQ(resumed[i]->optimizer().iterations(), saved->optimizer().iterations());
    }
  }
}

TEST_F(KerasCheckpoints, WeightsToEvaluateWithComeBackAsThose) {
  auto saved = network();
  compile(*saved, optimizers::ScheduleFreeAdamW({.learning_rate = .05}));
  train(*saved, 3);
  saved->optimizer().finalize_variable_values();
  checkpoint_of(*saved).write(path("x"));
  auto other = network(), late = network();
  for (Model* model : {other.get(), late.get()})
    compile(*model, optimizers::ScheduleFreeAdamW({.learning_rate = .05}));
  train(*other, 1);
  for (Model* model : {other.get(), late.get()}) {
    train::LoadStatus status = checkpoint_of(*model).read(path("x"));
    model->optimizer().begin_training();
    train(*model, 2);
    status.assert_consumed();
  }
  saved->optimizer().begin_training();
  train(*saved, 2);
  expect_near(*other, *saved, 0);
  expect_near(*late, *saved, 0);
}

TEST_F(KerasCheckpoints, AModelAndAnOptimizerThatAreNotBuiltTakeTheirStatesInTheFirstStep) {
  auto two = replicas(2);
  auto scope = two->scope();
  for (const auto& [name, make] : optimizers_to_save()) {
    SCOPED_TRACE(name);
    auto saved = network();
    compile(*saved, make());
    train(*saved, 5);
    const std::string file = checkpoint_of(*saved).write(path(name));
    auto late = network(/*built=*/false);
    compile(*late, make());
    train::LoadStatus status = checkpoint_of(*late).restore(file);
    EXPECT_ERROR(status.assert_consumed(), InvalidArgument, "model, optimizer not built yet");
    EXPECT_EQ(late->optimizer().iterations(), saved->optimizer().iterations());
    train(*late, 2);
    train(*saved, 2);
    status.assert_consumed();
    expect_equal(Known(*late), Known(*saved), rounding_of(name));
  }
}

/// A model of the user's own, of two inputs, whose layers its first call builds.
class Pair : public Model {
 public:
  Nest call_all(const Nest& inputs, bool) override {
    return Nest(out_(left_(inputs["a"].leaf()) * right_(inputs["b"].leaf())));
  }

 private:
  layers::Layer left_ = track(Dense(4));
  layers::Layer right_ = track(Dense(4, {.activation = "tanh"}));
  layers::Layer out_ = track(Dense(2));
};

TEST_F(KerasCheckpoints, AModelOfTheUsersOwnIsBuiltBeforeItsFirstCallToTakeItsState) {
  auto two = replicas(2);
  auto scope = two->scope();
  const Arrays x{{"a", inputs()}, {"b", inputs() + 1}};
  Pair saved, late;
  compile(saved, optimizers::Adam());
  compile(late, optimizers::Adam());
  saved.train_on_batch(x, targets());
  const std::string file = checkpoint_of(saved).write(path("pair"));
  train::LoadStatus status = checkpoint_of(late).read(file);
  saved.train_on_batch(x, targets());
  late.train_on_batch(x, targets());
  status.assert_consumed();
  expect_equal(Known(late), Known(saved));
}

/// Its own build leaves no hook.
class Doubler : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return 2 * dense_(x); }
  void build(const Shape& shape) override { dense_->build_for(shape); }
  bool built() const override { return dense_->built(); }
  std::vector<layers::Layer> layers() const override { return {dense_}; }

 private:
  Dense dense_{2};
};

TEST_F(KerasCheckpoints, AModelThatIsBuiltByCallingBuildHasItsWeightsAtOnce) {
  Doubler saved;
  saved.build({-1, 3});
  auto wide = network();
  const std::string file = Checkpoint({{"own", saved}, {"wide", *wide}}).write(path("built"));
  Doubler own;
  auto late = network(/*built=*/false);
  Checkpoint({{"own", own}, {"wide", *late}}).read(file).expect_partial();
  own.build({-1, 3});
  late->build({-1, 3});
  expect_near(own, saved, 0);
  expect_near(*late, *wide, 0);
  EXPECT_TENSOR_EQ(own(inputs()), saved(inputs()));
}

TEST_F(KerasCheckpoints, AModelThatIsNotBuiltHasNoStateToWrite) {
  auto model = network(/*built=*/false);
  EXPECT_ERROR(Checkpoint({{"model", *model}}).write(path("x")), FailedPrecondition, "not built");
  EXPECT_FALSE(std::filesystem::exists(path("x.tutti")));
}

TEST_F(KerasCheckpoints, WeightsAreInTheFileByTheirNames) {
  Sequential model({Dense(2, {.name = "hidden", .input_shape = {3}})});
  compile(model, optimizers::SGD({.momentum = .9}));
  train(model, 1);
  checkpoint_of(model).write(path("x"));
  const auto tensors = io::load_safetensors(path("x.tutti"));
  EXPECT_TENSOR_EQ(tensors.at("model/weights/hidden/kernel"), model.get_weights()[0]);
  EXPECT_EQ(tensors.count("optimizer/slots/momentum/hidden/kernel"), 1u);
  EXPECT_EQ(tensors.at("optimizer/iterations").item<int64_t>(), 1);
}

TEST_F(KerasCheckpoints, NamesCountWhereBothHaveThemAndPlacesWhereNot) {
  const auto make = [](const std::string& first, const std::string& second) {
    return std::make_unique<Sequential>(std::vector<layers::Layer>{
        Dense(3, {.name = first, .input_shape = {3}}), Dense(3, {.name = second})});
  };
  auto saved = make("a", "b");
  Checkpoint({{"model", *saved}}).write(path("x"));
  auto turned = make("b", "a");
  Checkpoint({{"model", *turned}}).read(path("x")).assert_consumed();
  EXPECT_TENSOR_EQ(turned->get_weights()[0], saved->get_weights()[2]);
  auto others = make("c", "d");
  Checkpoint({{"model", *others}}).read(path("x")).assert_consumed();
  expect_near(*others, *saved, 0);
}

TEST_F(KerasCheckpoints, AStateOfAnotherModelOrOptimizerChangesNothing) {
  auto saved = network();
  compile(*saved, optimizers::Adam());
  train(*saved, 2);
  checkpoint_of(*saved).write(path("x"));

  Sequential narrow({Dense(1, {.input_shape = {3}}), BatchNormalization(), Dense(2)});
  compile(narrow, optimizers::Adam());
  const auto before = narrow.get_weights();
  EXPECT_ERROR(checkpoint_of(narrow).read(path("x")), InvalidArgument, "nothing was changed");
  EXPECT_TENSOR_EQ(narrow.get_weights()[0], before[0]);
  EXPECT_EQ(narrow.optimizer().iterations(), 0);

  Sequential fewer({Dense(2, {.input_shape = {3}})});
  EXPECT_ERROR(Checkpoint({{"model", fewer}}).read(path("x")), InvalidArgument, "8 variables");

  auto momentum = network();
  compile(*momentum, optimizers::SGD({.momentum = .9}));
  train(*momentum, 1);
  EXPECT_ERROR(checkpoint_of(*momentum).read(path("x")), InvalidArgument, "expected momentum");
  EXPECT_EQ(momentum->optimizer().iterations(), 1);
}

TEST_F(KerasCheckpoints, AStateThatWaitedAndDoesNotFitFailsTheBuildUntilAnotherComes) {
  auto saved = network();
  Checkpoint({{"model", *saved}}).write(path("x"));
  Sequential late({Dense(3)});
  Checkpoint({{"model", late}}).read(path("x")).expect_partial();
  EXPECT_ERROR(late(inputs()), InvalidArgument, "is of another one");
  EXPECT_ERROR(late(inputs()), InvalidArgument, "is of another one");
  Sequential like({Dense(3, {.input_shape = {3}})});
  Checkpoint({{"model", like}}).write(path("y"));
  Checkpoint({{"model", late}}).read(path("y")).assert_consumed();
  EXPECT_TENSOR_EQ(late(inputs()), like(inputs()));
}

TEST_F(KerasCheckpoints, AnOptimizerBeforeItsFirstStepHasOnlyItsNumbers) {
  auto saved = network();
  compile(*saved, optimizers::Adam({.learning_rate = .5}));
  checkpoint_of(*saved).write(path("x"));
  auto fresh = network();
  compile(*fresh, optimizers::Adam());
  checkpoint_of(*fresh).read(path("x")).assert_consumed();
  EXPECT_EQ(fresh->optimizer().learning_rate(), .5);
  train(*fresh, 1);
  EXPECT_ERROR(checkpoint_of(*fresh).read(path("x")), InvalidArgument, "make a new optimizer");
}

TEST_F(KerasCheckpoints, GradientsOnTheirWayNeedAnOptimizerThatAccumulates) {
  auto saved = network();
  compile(*saved, optimizers::Adam({.gradient_accumulation_steps = 4}));
  train(*saved, 3);
  checkpoint_of(*saved).write(path("x"));
  auto other = network();
  compile(*other, optimizers::Adam({.gradient_accumulation_steps = 3}));
  train(*other, 1);
  EXPECT_ERROR(checkpoint_of(*other).read(path("x")), InvalidArgument, "fewer than 3");
}

TEST_F(KerasCheckpoints, SumsWithDenominatorsGoOn) {
  auto one = network(), other = network();
  other->set_weights(one->get_weights());
  const auto step = [](Model& model, optimizers::Optimizer& optimizer, double denominator) {
    std::vector<Tensor> gradients;
    for (const Variable& variable : model.trainable_variables())
      gradients.push_back(variable.read_value() * denominator);
    optimizer.apply_gradient_sums(gradients, model.trainable_variables(), denominator);
  };
  optimizers::SGD first({.learning_rate = .1, .gradient_accumulation_steps = 2});
  step(*one, first, 3);
  Checkpoint({{"optimizer", first}}).write(path("x"));
  optimizers::SGD second({.learning_rate = .1, .gradient_accumulation_steps = 2});
  Checkpoint({{"optimizer", second}}).read(path("x")).expect_partial();
  step(*one, first, 5);
  step(*other, second, 5);
  expect_near(*other, *one, 0);
}

TEST_F(KerasCheckpoints, MetricsGoOnWithAllThatWasAdded) {
  const Tensor labels = at::arange(12).remainder(2), scores = at::arange(12) / 12.0f;
  const Tensor one_hot = at::one_hot(labels, 2);
  const Tensor predictions = at::stack({1 - scores, scores}, 1);
  auto two = replicas(2), three = replicas(3);
  const auto fill = [&](const metrics::Mean& mean, const metrics::AUC& auc,
                        const metrics::F1Score& f1) {
    mean.update_state(scores);
    auc.update_state(labels, scores);
    f1.update_state(one_hot, predictions);
  };
  std::vector<Tensor> wanted;
  under(two.get(), [&] {
    metrics::Mean mean;
    metrics::AUC auc;
    metrics::F1Score f1;
    two->run([&] { fill(mean, auc, f1); });
    Checkpoint({{"mean", mean}, {"auc", auc}, {"f1", f1}}).write(path("metrics"));
    two->run([&] { fill(mean, auc, f1); });
    wanted = {mean.result(), auc.result(), f1.result()};
  });
  under(three.get(), [&] {
    metrics::Mean mean;
    metrics::AUC auc;
    metrics::F1Score f1;
    train::LoadStatus status =
        Checkpoint({{"mean", mean}, {"auc", auc}, {"f1", f1}}).read(path("metrics"));
    EXPECT_ERROR(status.assert_consumed(), InvalidArgument, "f1 not built yet");
    three->run([&] {
      if (distribute::get_replica_context()->replica_id_in_sync_group() < 2)
        return fill(mean, auc, f1);
      mean.update_state(scores.slice(0, 0, 0));
      auc.update_state(labels.slice(0, 0, 0), scores.slice(0, 0, 0));
      f1.update_state(one_hot.slice(0, 0, 0), predictions.slice(0, 0, 0));
    });
    status.assert_consumed();
    EXPECT_TENSOR_NEAR(mean.result(), wanted[0], 1e-6);
    EXPECT_TENSOR_NEAR(auc.result(), wanted[1], 1e-6);
    EXPECT_TENSOR_NEAR(f1.result(), wanted[2], 1e-6);
  });
}

TEST_F(KerasCheckpoints, AMetricThatWasNeverUpdatedSavesThatNothingWasAdded) {
  metrics::F1Score empty;
  Checkpoint({{"f1", empty}}).write(path("x"));
  metrics::F1Score full;
  full.update_state(at::eye(3), at::eye(3));
  Checkpoint({{"f1", full}}).read(path("x")).assert_consumed();
  EXPECT_TENSOR_EQ(full.result(), at::zeros({3}));
}

TEST_F(KerasCheckpoints, VariablesOfTheLoopStandBesideTheModel) {
  auto two = replicas(2);
  auto scope = two->scope();
  auto model = network();
  Variable epoch(at::scalar_tensor(3, at::kLong), {.trainable = false, .name = "epoch"});
  Checkpoint checkpoint({{"model", *model}, {"epoch", epoch}});
  train::CheckpointManager manager(checkpoint, folder_.string(), {.max_to_keep = 1});
  manager.save();
  epoch.assign(at::scalar_tensor(7, at::kLong));
  EXPECT_EQ(manager.restore_or_initialize(), path("ckpt-1"));
  EXPECT_EQ(epoch.read_value().item<int64_t>(), 3);
}

/// Counts; its place is one number.
class Counter : public data::Iterator {
 public:
  std::optional<Nest> next() override { return Nest(at::scalar_tensor(at_++, at::kLong)); }
  Nest save() const override { return Nest(at::scalar_tensor(at_, at::kLong)); }
  void restore(const Nest& state) override { at_ = state.leaf().item<int64_t>(); }

 private:
  int64_t at_ = 0;
};

TEST_F(KerasCheckpoints, AnIteratorGoesOnWithItsNextElement) {
  data::DatasetIterator<Tensor> iterator(std::make_unique<Counter>());
  for (int i = 0; i < 5; ++i) iterator.next();
  Checkpoint({{"iterator", iterator}}).write(path("x"));
  data::DatasetIterator<Tensor> next(std::make_unique<Counter>());
  Checkpoint({{"iterator", next}}).read(path("x")).assert_consumed();
  EXPECT_EQ(next.get_next().item<int64_t>(), 5);
}

TEST_F(KerasCheckpoints, StatesThatCannotBeAreRefused) {
  auto model = network();
  compile(*model, optimizers::Adam());
  train(*model, 1);
  const Nest model_state = trackable(*model)->state();
  const Nest optimizer_state = optimizers::trackable(model->optimizer())->state();
  const auto refused = [](Trackable& object, const Nest& state) {
    EXPECT_THROW(object.check_state(state), InvalidArgument) << state.structure();
  };
  const Nest number(at::scalar_tensor(1, at::kLong));
  auto own = trackable(*model), optimizer = optimizers::trackable(model->optimizer());
  for (const Nest& state :
       {Nest(), number, Nest::map({}), Nest::map({{"weights", number}, {"names", number}}),
        Nest::map({{"weights", model_state["weights"]}, {"names", Nest(StringTensor{"one"})}}),
        Nest::map({{"weights", Nest::map({})}, {"names", model_state["names"]}})})
    refused(*own, state);
  for (const Nest& state :
       {Nest(), number, Nest::map({}), Nest::map({{"iterations", Nest(at::ones({2}))}}),
        Nest::map({{"iterations", number}, {"slots", number}}),
        Nest::map({{"iterations", number}, {"slots", Nest::map({{"no", number}})}}),
        Nest::map({{"iterations", number},
                   {"slots", optimizer_state["slots"]},
                   {"names", optimizer_state["names"]},
                   {"accumulated", number}})})
    refused(*optimizer, state);
  own->check_state(model_state);
  optimizer->check_state(optimizer_state);
}

}  // namespace
}  // namespace tutti::keras
