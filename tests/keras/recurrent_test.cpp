// Recurrent layers: what Keras' numbers (keras_layers_test.cpp) do not say.

#include "tutti/keras/layers/recurrent.h"

#include "keras/line_model.h"
#include "keras/wave.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/keras/layers/sequence_wrappers.h"

namespace tutti::keras::layers {
namespace {

using testing::replicas;

std::vector<std::string> weight_names(const Layer& layer) {
  std::vector<std::string> names;
  for (const Variable& weight : layer->weights()) names.push_back(weight.name());
  return names;
}
void set_all(const Layer& layer, double from = .3) {
  std::vector<Variable> weights = layer->weights();
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i].assign(wave(weights[i].sizes().vec(), from + static_cast<double>(i)) * .5);
}
Tensor line(double from, double to, const Shape& shape) {
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return at::linspace(from, to, numel, at::kFloat).view(shape);
}
Tensor steps() { return at::tensor({1.f, 2.f, -1.f}).view({1, 3, 1}); }

// ---- numbers

TEST(SimpleRNN, GivesTheNumbersOfTheSpecification) {
  const SimpleRNN layer(2);
  layer->build_for({1, 3, 1});
  std::vector<Variable> weights = layer->weights();
  weights[0].assign(at::tensor({.5f, -.5f}).view({1, 2}));
  weights[1].assign(at::tensor({.1f, .2f, .3f, -.4f}).view({2, 2}));
  weights[2].assign(at::tensor({.1f, 0.f}));
  EXPECT_TENSOR_NEAR(layer(steps()), at::tensor({-.4668172f, .7149679f}).view({1, 2}), 1e-5);
}

TEST(LSTM, GivesTheNumbersOfTheSpecification) {
  const LSTM layer(2);
  layer->build_for({1, 3, 1});
  std::vector<Variable> weights = layer->weights();
  EXPECT_TENSOR_EQ(weights[2].value(), at::tensor({0.f, 0.f, 1.f, 1.f, 0.f, 0.f, 0.f, 0.f}));
  weights[0].assign(line(-.4, .3, {1, 8}));
  weights[1].assign(line(.2, -.5, {2, 8}));
  EXPECT_TENSOR_NEAR(layer(steps()), at::tensor({-.0067483f, .0001647f}).view({1, 2}), 1e-5);
}

TEST(GRU, GivesTheNumbersOfTheSpecification) {
  for (bool after : {true, false}) {
    const GRU layer(2, {.reset_after = after});
    layer->build_for({1, 3, 1});
    std::vector<Variable> weights = layer->weights();
    weights[0].assign(line(-.4, .3, {1, 6}));
    weights[1].assign(line(.2, -.5, {2, 6}));
    const Tensor bias = line(-.1, .1, {2, 6});
    weights[2].assign(after ? bias : bias[0]);
    EXPECT_TENSOR_NEAR(
        layer(steps()),
        (after ? at::tensor({.0296115f, .0534225f}) : at::tensor({.0016936f, .019995f}))
            .view({1, 2}),
        1e-5);
  }
}

TEST(Recurrent, WeightsHaveKerasNamesShapesAndStarts) {
  const LSTM layer(3, {.name = "l"});
  layer->build_for({-1, -1, 5});
  EXPECT_EQ(weight_names(layer),
            (std::vector<std::string>{"l/lstm_cell/kernel", "l/lstm_cell/recurrent_kernel",
                                      "l/lstm_cell/bias"}));
  const Tensor recurrent = layer->weights()[1].value();
  EXPECT_EQ(recurrent.sizes().vec(), (Shape{3, 12}));
  EXPECT_TENSOR_NEAR(at::matmul(recurrent, recurrent.t()), at::eye(3), 1e-5);
  EXPECT_EQ(LSTM(3, {.unit_forget_bias = false, .name = "m"})->name(), "m");
  const GRU gru(2, {.name = "g"});
  gru->build_for({-1, -1, 5});
  EXPECT_EQ(gru->weights()[2].sizes().vec(), (Shape{2, 6}));
  EXPECT_ERROR(SimpleRNN(2)->weights(), FailedPrecondition, "not built");
}

TEST(Recurrent, PenaltiesAndTrainabilityReachTheCell) {
  const GRU layer(2, {.kernel_regularizer = regularizers::L2(.1),
                      .recurrent_regularizer = regularizers::L1(.1)});
  layer(wave({1, 2, 3}));
  EXPECT_EQ(layer->losses().size(), 2);
  EXPECT_EQ(layer->trainable_weights().size(), 3);
  layer->set_trainable(false);
  EXPECT_TRUE(layer->losses().empty());
  EXPECT_TRUE(layer->trainable_weights().empty());
}

/// Descriptions that are not trusted cannot ask for endless weights inside either.
TEST(Recurrent, TheLimitOfWeightsHoldsForTheCell) {
  const LSTM layer(50);
  layer->limit_weights(1000);
  EXPECT_ERROR(layer(wave({1, 2, 8})), InvalidArgument, "at most 1000 entries");
}

// ---- one operation and step by step

struct Run {
  std::vector<Tensor> outputs;
  std::vector<Tensor> gradients;
};
Run run(const Layer& layer, const Tensor& given, const Tensor& mask) {
  Tensor x = given.clone();
  GradientTape tape({.persistent = true});
  tape.watch(x);
  CallArguments arguments;
  arguments.masks = {mask};
  Run result{(*layer)(std::vector<Tensor>{x}, arguments), {}};
  Tensor target;
  for (const Tensor& output : result.outputs) {
    const Tensor part = (output * wave(output.sizes().vec(), 1.7)).sum();
    target = target.defined() ? target + part : part;
  }
  result.gradients = tape.gradient(target, layer->trainable_weights());
  result.gradients.push_back(tape.gradient(target, x));
  return result;
}
void expect_same(const Run& a, const Run& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (std::size_t i = 0; i < a.outputs.size(); ++i)
    EXPECT_TENSOR_NEAR(a.outputs[i], b.outputs[i], tolerance);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_TENSOR_NEAR(a.gradients[i], b.gradients[i], tolerance);
}

/// A mask that hides nothing keeps the layer from the one operation for all steps.
TEST(LSTM, AsOneOperationEqualsStepByStep) {
  for (bool use_bias : {true, false}) {
    for (bool backwards : {true, false}) {
      const LSTM layer(7, {.use_bias = use_bias,
                           .return_sequences = true,
                           .return_state = true,
                           .go_backwards = backwards});
      layer->build_for({-1, 5, 4});
      set_all(layer);
      const Tensor x = wave({3, 5, 4}), nothing_hidden = at::ones({3, 5}, at::kBool);
      expect_same(run(layer, x, {}), run(layer, x, nothing_hidden), 2e-5);
    }
  }
}

TEST(LSTM, GivesTheSameWithAndWithoutGradients) {
  const LSTM layer(7, {.return_sequences = true});
  layer->build_for({-1, 5, 4});
  set_all(layer);
  const Tensor x = wave({3, 5, 4});
  const Tensor with = layer(x);
  at::NoGradGuard no_grad;
  EXPECT_TENSOR_NEAR(layer(x), with, 1e-6);
}

TEST(LSTM, ComputesInThePolicysDtype) {
  const LSTM full(4), half(4);
  half->set_dtype_policy("mixed_bfloat16");
  for (const Layer& layer : {Layer(full), Layer(half)}) {
    layer->build_for({-1, 5, 3});
    set_all(layer);
  }
  const Tensor x = wave({2, 5, 3});
  EXPECT_EQ(half(x).scalar_type(), at::kBFloat16);
  EXPECT_EQ(half->weights()[0].dtype(), at::kFloat);
  EXPECT_TENSOR_NEAR(half(x), full(x), 2e-2);
}

// ---- states and masks

TEST(Recurrent, StatefulLayersGoOnWhereTheyEnded) {
  const Tensor x = wave({2, 6, 3});
  const LSTM whole(4, {.return_sequences = true});
  const LSTM parts(4, {.return_sequences = true, .stateful = true});
  for (const Layer& layer : {Layer(whole), Layer(parts)}) {
    layer->build_for({-1, 6, 3});
    set_all(layer);
  }
  const Tensor first = parts(x.narrow(1, 0, 2)), second = parts(x.narrow(1, 2, 4));
  EXPECT_TENSOR_NEAR(at::cat({first, second}, 1), whole(x), 1e-5);
  EXPECT_ERROR(parts(wave({3, 2, 3})), InvalidArgument, "reset_state");
  parts.reset_state();
  EXPECT_TENSOR_NEAR(parts(x.narrow(1, 0, 2)), first, 1e-6);
  EXPECT_ERROR(whole.reset_state(), FailedPrecondition, "stateful");
}

TEST(Recurrent, StatefulReplicasKeepStatesOfTheirOwn) {
  auto strategy = replicas(2);
  auto scope = strategy->scope();
  const GRU layer(3, {.stateful = true});
  const auto second = [&] {
    return strategy->run([&] {
      const auto replica = distribute::get_replica_context()->replica_id_in_sync_group();
      return layer(wave({1, 2, 3}, replica));
    });
  };
  const auto one = second(), two = second();
  EXPECT_FALSE(at::equal(one[0], one[1]));
  EXPECT_FALSE(at::equal(one[0], two[0]));
  EXPECT_FALSE(at::equal(two[0], two[1]));
}

TEST(Recurrent, OutputsOfMaskedStepsMayBeZero) {
  const Tensor mask = at::tensor({1, 0, 1}).view({1, 3}).to(at::kBool);
  const RNN layer(SimpleRNNCell(2), {.return_sequences = true, .zero_output_for_mask = true});
  CallArguments arguments;
  arguments.masks = {mask};
  const Tensor x = wave({1, 3, 2});
  const Tensor output = (*layer)(std::vector<Tensor>{x}, arguments)[0];
  EXPECT_TENSOR_EQ(output[0][1], at::zeros({2}));
  EXPECT_FALSE(output[0][2].equal(at::zeros({2})));
}

TEST(Recurrent, HandsTheMaskOnWithSequencesOnly) {
  CallArguments arguments;
  arguments.masks = {at::ones({1, 3}, at::kBool)};
  const Tensor x = wave({1, 3, 2});
  EXPECT_TRUE(GRU(2, {.return_sequences = true})->compute_mask({x}, arguments).defined());
  EXPECT_FALSE(GRU(2)->compute_mask({x}, arguments).defined());
}

TEST(Recurrent, SaysWhatItCannotTake) {
  EXPECT_ERROR(LSTM(0), InvalidArgument, "units 0");
  EXPECT_ERROR(LSTM(2, {.dropout = 1}), InvalidArgument, "dropout 1");
  EXPECT_ERROR(LSTM(2)(at::ones({2, 3})), InvalidArgument, "(batch, time, features)");
  EXPECT_ERROR(LSTM(2)(at::ones({2, 0, 3})), InvalidArgument, "at least one step");
  const LSTM layer(2, {.name = "l"});
  const Tensor x = at::ones({2, 3, 4});
  layer(x);
  EXPECT_ERROR(layer(at::ones({2, 3, 5})), InvalidArgument, "expected 4 features");
  EXPECT_ERROR((*layer)(std::vector<Tensor>{x, at::ones({2, 2})}, {}), InvalidArgument,
               "1 initial states, expected none or 2");
  EXPECT_ERROR((*layer)(std::vector<Tensor>{x, at::ones({2, 2}), at::ones({2, 3})}, {}),
               InvalidArgument, "initial state 1 of shape (2, 3)");
  EXPECT_ERROR((*layer)(std::vector<Tensor>{x, at::ones({1, 2}), at::ones({1, 2})}, {}),
               InvalidArgument, "1 rows for 2 sequences");
  CallArguments arguments;
  arguments.masks = {at::ones({2, 4}, at::kBool)};
  EXPECT_ERROR((*layer)(std::vector<Tensor>{x}, arguments), InvalidArgument, "a mask of shape");
  EXPECT_ERROR(RNN(Layer(Dense(2))), InvalidArgument, "RNN: Dense");
}

// ---- dropout

/// h' = x kernel with one drop mask: what comes out is the mask, the same in every step.
TEST(Recurrent, InputDropoutHoldsForAWholeSequence) {
  const SimpleRNN layer(64, {.activation = "linear",
                             .use_bias = false,
                             .recurrent_initializer = initializers::Zeros(),
                             .dropout = .5,
                             .return_sequences = true});
  layer->build_for({-1, 3, 64});
  layer->weights()[0].assign(at::eye(64));
  const Tensor x = at::ones({2, 3, 64});
  EXPECT_TENSOR_EQ(layer(x), x);
  const Tensor dropped = layer(x, true);
  EXPECT_TENSOR_EQ(dropped.select(1, 0), dropped.select(1, 2));
  EXPECT_FALSE(at::equal(dropped[0], dropped[1]));
  EXPECT_EQ((dropped.eq(0).logical_or(dropped.eq(2))).all().item<bool>(), true);
  const double kept = dropped.select(1, 0).ne(0).to(at::kFloat).mean().item<double>();
  EXPECT_GT(kept, .3);
  EXPECT_LT(kept, .7);
}

TEST(Recurrent, RecurrentDropoutLeavesTheInputAlone) {
  const SimpleRNN layer(64, {.activation = "linear",
                             .use_bias = false,
                             .recurrent_dropout = .5,
                             .return_sequences = true});
  layer->build_for({-1, 2, 64});
  layer->weights()[0].assign(at::eye(64));
  layer->weights()[1].assign(at::eye(64));
  const Tensor x = at::ones({1, 2, 64});
  const Tensor dropped = layer(x, true);
  EXPECT_TENSOR_EQ(dropped.select(1, 0), at::ones({1, 64}));
  const Tensor second = dropped.select(1, 1);
  EXPECT_TRUE(second.eq(1).logical_or(second.eq(3)).all().item<bool>());
  EXPECT_TRUE(second.eq(1).any().item<bool>() && second.eq(3).any().item<bool>());
}

TEST(Recurrent, ASeedMakesDropoutRepeatable) {
  for (const char* kind : {"LSTM", "GRU", "SimpleRNN"}) {
    std::vector<Tensor> drawn;
    for (int i = 0; i < 2; ++i) {
      set_seed(3);
      const Layer layer = layer_from_config(
          kind, R"({"units": 5, "dropout": 0.4, "recurrent_dropout": 0.4, "seed": 9})");
      layer->build_for({-1, 4, 6});
      set_all(layer);
      drawn.push_back(layer(wave({3, 4, 6}), true));
    }
    EXPECT_TENSOR_EQ(drawn[0], drawn[1]);
  }
}

// ---- cells

TEST(Cells, AreLayersOfTheirStates) {
  const LSTMCell cell(3);
  const std::vector<Tensor> first = (*cell)(std::vector<Tensor>{wave({2, 4})}, {});
  ASSERT_EQ(first.size(), 3);
  EXPECT_TENSOR_EQ(first[0], first[1]);
  const std::vector<Tensor> second =
      (*cell)(std::vector<Tensor>{wave({2, 4}, 1), first[1], first[2]}, {});
  const RNN layer{RNNCell(cell)};
  const Tensor x = at::stack({wave({2, 4}), wave({2, 4}, 1)}, 1);
  EXPECT_TENSOR_NEAR(layer(x), second[0], 1e-6);
  EXPECT_ERROR((*cell)(std::vector<Tensor>{wave({2, 4}), first[1]}, {}), InvalidArgument,
               "and 2 states");
  EXPECT_ERROR((*cell)(std::vector<Tensor>{wave({2, 4}), first[1], wave({2, 2})}, {}),
               InvalidArgument, "state 1 of shape (2, 2)");
}

/// A user's own: adds what it is given.
class Adding : public RNNCellImpl {
 public:
  Adding() : RNNCellImpl("Adding", "", {}) {}
  std::string class_name() const override { return "Adding"; }
  std::string config() const override { return "{}"; }
  std::vector<int64_t> state_size() const override { return {2}; }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs, const CallArguments&) override {
    const Tensor sum = inputs[0] + inputs[1];
    return {sum, sum};
  }
};

TEST(Cells, AUsersOwnRunsOverSequences) {
  const RNN layer(RNNCell(std::make_shared<Adding>()), {.return_sequences = true});
  const Tensor x = wave({2, 5, 2});
  EXPECT_TENSOR_NEAR(layer(x), x.cumsum(1), 1e-6);
}

TEST(Cells, StackedOnesHaveTheirNamesBelowTheLayer) {
  const RNN layer(
      StackedRNNCells({LSTMCell(2, {.name = "a"}), GRUCell(3, {.name = "b"})}, {.name = "s"}),
      {.name = "r"});
  layer->build_for({-1, -1, 4});
  EXPECT_EQ(weight_names(layer).front(), "r/s/a/kernel");
  EXPECT_EQ(weight_names(layer).back(), "r/s/b/bias");
  EXPECT_ERROR(StackedRNNCells({}), InvalidArgument, "no cells");
}

// ---- layers around them

TEST(Bidirectional, HasTwoLayersOfItsOwn) {
  const LSTM given(2, {.name = "l"});
  const Bidirectional layer(given, {.name = "b"});
  layer->build_for({-1, -1, 3});
  EXPECT_EQ(weight_names(layer)[0], "b/forward_l/lstm_cell/kernel");
  EXPECT_EQ(weight_names(layer)[3], "b/backward_l/lstm_cell/kernel");
  EXPECT_FALSE(at::equal(layer->weights()[0].value(), layer->weights()[3].value()));
  EXPECT_FALSE(given->built());
}

TEST(Bidirectional, TakesABackwardLayer) {
  const LSTM forward(2, {.return_sequences = true});
  const LSTM backward(3, {.return_sequences = true, .go_backwards = true});
  const Bidirectional layer(forward, {.backward_layer = backward});
  const Tensor x = wave({1, 4, 3});
  const Tensor output = layer(x);
  EXPECT_EQ(output.sizes().vec(), (Shape{1, 4, 5}));
  EXPECT_TENSOR_NEAR(output.narrow(2, 0, 2), forward(x), 1e-6);
  EXPECT_TENSOR_NEAR(output.narrow(2, 2, 3), backward(x).flip(1), 1e-6);
}

TEST(Bidirectional, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(Bidirectional(LSTM(2), {.merge_mode = "max"}), InvalidArgument, "merge_mode");
  EXPECT_ERROR(Bidirectional(GRU(2), {.backward_layer = GRU(2)}), InvalidArgument,
               "the other go_backwards");
  EXPECT_ERROR(Bidirectional(RNN(RNNCell(std::make_shared<Adding>()))), Unimplemented, "Adding");
  const Bidirectional uneven(
      GRU(2), {.merge_mode = "sum", .backward_layer = GRU(3, {.go_backwards = true})});
  EXPECT_ERROR(uneven(wave({1, 2, 3})), InvalidArgument, "expected equal ones");
}

TEST(TimeDistributed, GivesEveryStepToTheLayer) {
  const Dense dense(3);
  const TimeDistributed layer(dense, {.name = "t"});
  const Tensor x = wave({2, 4, 5});
  const Tensor output = layer(x);
  EXPECT_TENSOR_NEAR(output.select(1, 2), dense(x.select(1, 2)), 1e-6);
  EXPECT_EQ(weight_names(layer)[0], cat("t/", dense->name(), "/kernel"));
  EXPECT_EQ(layer->compute_output_shape({-1, -1, 5}), (Shape{-1, -1, 3}));
  const TimeDistributed images(Conv2D(2, 3, {.padding = "same"}));
  EXPECT_EQ(images(wave({2, 3, 4, 4, 1})).sizes().vec(), (Shape{2, 3, 4, 4, 2}));
  EXPECT_ERROR(layer(at::ones({2, 3})), InvalidArgument, "at least 3 axes");
}

// ---- training

std::vector<Tensor> fitted(int count) {
  auto strategy = replicas(count);
  auto scope = strategy->scope();
  Sequential model({Bidirectional(LSTM(3, {.return_sequences = true}), {.input_shape = {4, 2}}),
                    GRU(2), Dense(1)});
  std::vector<Tensor> weights;
  for (const Tensor& weight : model.get_weights())
    weights.push_back(wave(weight.sizes().vec(), static_cast<double>(weights.size())) * .5);
  model.set_weights(weights);
  model.compile({.optimizer = optimizers::Adam({.learning_rate = .01}), .loss = "mse"});
  FitOptions options;
  options.batch_size = 4;
  options.epochs = 3;
  options.shuffle = false;
  options.verbose = 0;
  model.fit(wave({10, 4, 2}), wave({10, 1}, 2), options);
  return model.get_weights();
}

TEST(Recurrent, TrainsTheSameWithAnyNumberOfReplicas) {
  const std::vector<Tensor> one = fitted(1), three = fitted(3);
  ASSERT_EQ(one.size(), 11);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TENSOR_NEAR(three[i], one[i], 1e-4);
}

}  // namespace
}  // namespace tutti::keras::layers
