// What calls add to the loss: add_loss and penalties on outputs. Numbers of Keras 3.15.

#include "keras/line_model.h"
#include "keras/wave.h"
#include "support/expect.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using layers::LayerImpl;
using layers::Shape;
using layers::wave;
using testing::replicas;

double total(const std::vector<Tensor>& losses) {
  double sum = 0;
  for (const Tensor& loss : losses) sum += loss.item<double>();
  return sum;
}
Dense penalised(const layers::DenseOptions& options = {}) {
  layers::DenseOptions all = options;
  all.use_bias = false;
  all.kernel_initializer = "ones";
  all.activity_regularizer = regularizers::L2(.1);
  return Dense(2, all);
}
/// A layer that is called twice, with a penalty on its outputs.
std::unique_ptr<Functional> shared_model() {
  const Input a({2}), b({2});
  const Dense both = penalised();
  const KerasTensor sum = layers::add({both(a), both(b)});
  return std::make_unique<Functional>(
      SymbolicNest{a, b}, Dense(1, {.use_bias = false, .kernel_initializer = "ones"})(sum));
}

TEST(ActivityRegularizer, OfALayerCalledTwiceInAModelCountsBothCallsOnAnyNumberOfReplicas) {
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = shared_model();
    model->compile({.optimizer = optimizers::SGD({.learning_rate = .05}), .loss = "mse"});
    const History history =
        model->fit({wave({4, 2}), wave({4, 2}, 1)}, wave({4, 1}, 2),
                   {.batch_size = 2, .epochs = 2, .verbose = 0, .shuffle = false});
    EXPECT_NEAR(history.history.at("loss")[0], 12.074344635009766, 1e-4);
    EXPECT_NEAR(history.history.at("loss")[1], 0.8063437938690186, 1e-5);
    EXPECT_TENSOR_NEAR(
        model->get_weights()[0],
        at::tensor({0.2458261251449585, 0.2458261251449585, 0.2781693935394287, 0.2781693935394287})
            .view({2, 2}),
        1e-5);
  }
}

TEST(ActivityRegularizer, ForgetsWhatEarlierCallsOfTheModelAdded) {
  auto model = shared_model();
  const Tensor x = wave({4, 2});
  const Nest inputs = Nest::list({x, x});
  (*model)(inputs);
  const double once = total(model->losses());
  EXPECT_EQ(model->losses().size(), 2u);
  for (int i = 0; i < 3; ++i) model->predict_all({x, x}, {.verbose = 0});
  (*model)(inputs);
  EXPECT_EQ(model->losses().size(), 2u);
  EXPECT_NEAR(total(model->losses()), once, 1e-6);
}

TEST(ActivityRegularizer, OfALayerInALayerCountsEachCallWithinTheOuterOnes) {
  const layers::TimeDistributed steps(penalised());
  const Sequential twice({steps}, {.name = "twice"});
  const Tensor x = at::ones({3, 2, 2});
  steps(x);
  EXPECT_EQ(steps->losses().size(), 1u);
  // Ones times a kernel of ones: 2 everywhere. .1 * 12 * 4 / 6 rows.
  EXPECT_NEAR(total(steps->losses()), .8, 1e-6);
  steps(x);
  EXPECT_NEAR(total(steps->losses()), .8, 1e-6) << "of the last call alone";
  twice.layer()(x);
  EXPECT_NEAR(total(twice.losses()), .8, 1e-6);
}

/// Adds a mean and, as a larger tensor, what it was given.
class Adding : public LayerImpl {
 public:
  Adding() : LayerImpl("Adding", "", {}) {}
  std::string class_name() const override { return "Adding"; }
  std::string config() const override { return "{}"; }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    add_loss(input.square().mean());
    add_loss(input * .1);
    return input;
  }
};

struct Net : Model {
  Tensor call(const Tensor& x, bool training) override {
    const Tensor y = dense(x);
    add_loss(.01 * x.square().sum());
    return adding(adding(y));
  }
  Dense dense = track(Dense(1, {.use_bias = false, .kernel_initializer = "ones"}));
  layers::Layer adding = track(layers::Layer(std::make_shared<Adding>()));
};

TEST(AddLoss, CountsInFitAndEvaluateAsInKeras) {
  Net model;
  model.compile({.optimizer = optimizers::SGD({.learning_rate = .05}), .loss = "mse"});
  const History history = model.fit(wave({4, 2}), wave({4, 1}, 2),
                                    {.batch_size = 2, .epochs = 2, .verbose = 0, .shuffle = false});
  EXPECT_NEAR(history.history.at("loss")[0], 3.6292543411254883, 1e-5);
  EXPECT_NEAR(history.history.at("loss")[1], 1.1775362491607666, 1e-5);
  EXPECT_TENSOR_NEAR(model.get_weights()[0],
                     at::tensor({0.3617894947528839, 0.35760265588760376}).view({2, 1}), 1e-5);
  EXPECT_NEAR(
      model.evaluate(wave({4, 2}), wave({4, 1}, 2), {.batch_size = 2, .verbose = 0})["loss"],
      0.6200454831123352, 1e-5);
}

TEST(AddLoss, OfALayerByItselfIsThatOfItsLastCall) {
  const layers::Layer layer(std::make_shared<Adding>());
  EXPECT_TRUE(layer->losses().empty());
  for (int i = 0; i < 3; ++i) {
    layer(at::full({2, 1}, 2.f));
    ASSERT_EQ(layer->losses().size(), 2u);
    EXPECT_NEAR(total(layer->losses()), 4 + .4, 1e-6);
  }
  layer->clear_losses();
  EXPECT_TRUE(layer->losses().empty());
}

TEST(AddLoss, OfAModelInAModelCountsEachOfItsCalls) {
  const layers::Layer inner = as_layer(std::make_shared<Net>());
  const Input a({2}), b({2});
  Functional model(SymbolicNest{a, b}, layers::add({inner(a), inner(b)}));
  const Nest ones = Nest::list({at::ones({1, 2}), at::ones({1, 2})});
  for (int i = 0; i < 2; ++i) {
    model(ones);
    EXPECT_EQ(model.losses().size(), 2u * 5u) << "one of the model, two of each call of the layer";
  }
}

TEST(AddLoss, IsEachReplicasOwn) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const layers::Layer layer(std::make_shared<Adding>());
  const auto sums = strategy->run([&] {
    const auto id = distribute::get_replica_context()->replica_id_in_sync_group() + 1;
    for (int i = 0; i < 20; ++i) layer(at::full({1, 1}, static_cast<float>(id)));
    return at::scalar_tensor(total(layer->losses()), at::kDouble);
  });
  EXPECT_NEAR(sums[0].item<double>(), 1.1, 1e-6);
  EXPECT_NEAR(sums[1].item<double>(), 4.2, 1e-6);
}

TEST(AddLoss, HasAGradientAndIsNoPenaltyOnWeights) {
  Net model;
  model.build({-1, 2});
  model.set_trainable(false);
  GradientTape tape;
  Tensor x = at::ones({1, 2});
  tape.watch(x);
  model(x);
  EXPECT_EQ(model.losses().size(), 5u) << "though nothing is trained";
  // d/dx of .01 (a^2 + b^2), where a = b = 1.
  EXPECT_TENSOR_NEAR(tape.gradient(model.losses()[0], x), at::full({1, 2}, .02f), 1e-6);
}

TEST(AddLoss, RefusesAnUndefinedTensor) {
  Net model;
  EXPECT_ERROR(model.add_loss(Tensor()), InvalidArgument, "an undefined tensor, expected a scalar");
}

}  // namespace
}  // namespace tutti::keras
