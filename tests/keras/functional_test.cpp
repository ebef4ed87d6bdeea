// Graphs of layers. The tables and the order of the layers are those that Keras 3.15 printed.

#include "tutti/keras/functional.h"

#include "keras/graph_layers.h"
#include "keras/line_model.h"
#include "support/expect.h"
#include "tutti/tutti.h"

namespace tutti::keras {
namespace {

using layers::Dense;
using layers::Layer;
using testing::fill_weights;
using testing::join_layer;
using testing::replicas;
using testing::summary_of;
using testing::total_layer;

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) names.push_back(layer->name());
  return names;
}

// ---- making one

TEST(Functional, ALayerCalledWithAnInputGivesASymbolicTensor) {
  const KerasTensor hidden = Dense(10, {.name = "h"})(Input({4}));
  EXPECT_EQ(hidden.shape(), (layers::Shape{-1, 10}));
  EXPECT_EQ(hidden.dtype(), at::kFloat);
  EXPECT_EQ(hidden.layer()->name(), "h");
  EXPECT_TRUE(hidden.layer()->built());
  EXPECT_EQ(Input({7}, {.dtype = at::kLong}).tensor().dtype(), at::kLong);
  EXPECT_ERROR(KerasTensor().shape(), InvalidArgument, "an empty handle");
  EXPECT_ERROR(layers::Conv2D(1, 3)(hidden), InvalidArgument, "Conv2D");
}

TEST(Functional, ComputesWhatItsLayersDo) {
  Input x({2});
  const KerasTensor hidden = Dense(3, {.activation = "relu"})(x);
  Functional model(x, Dense(1)(hidden), {.name = "m"});
  fill_weights(model);
  const auto w = model.get_weights();
  const Tensor input = at::tensor({1.f, 2.f, -3.f, 1.f}).view({2, 2});
  const Tensor expected = at::matmul(at::relu(at::matmul(input, w[0]) + w[1]), w[2]) + w[3];
  EXPECT_TENSOR_NEAR(model(input), expected, 1e-6);
  EXPECT_TENSOR_NEAR(model.predict(input, {.verbose = 0}), expected, 1e-6);
  EXPECT_EQ(model.name(), "m");
}

TEST(Functional, TakesItsArgumentsByNameToo) {
  Input a({2}), b({2});
  Functional model(
      {.inputs = {a, b}, .outputs = {{"sum", total_layer()({a, b})}}, .name = "by_name"});
  EXPECT_EQ(model.output_names(), (std::vector<std::string>{"sum"}));
  const Nest result = model(Nest::tuple({at::ones({1, 2}), at::ones({1, 2})}));
  EXPECT_TENSOR_EQ(result["sum"].leaf(), at::full({1, 2}, 2.f));
}

TEST(Functional, ASharedLayerHasOneSetOfWeights) {
  Input a({4}), b({4});
  const Dense shared(2);
  Functional model({a, b}, total_layer()({shared(a), shared(b)}));
  EXPECT_EQ(model.weights().size(), 2u);
  fill_weights(model);
  const Tensor one = at::ones({1, 4}), two = at::full({1, 4}, 2.f);
  EXPECT_TENSOR_NEAR(model(Nest::tuple({one, two})).leaf(), shared(one) + shared(two), 1e-6);
}

TEST(Functional, LayersAreInKerasOrder) {
  Input i({2}, "i");
  const KerasTensor x = Dense(2, {.name = "d1"})(i);
  const KerasTensor y = Dense(2, {.name = "d2"})(x);
  const KerasTensor w = Dense(1, {.name = "d3"})(total_layer()({y, i}));
  const KerasTensor late = Dense(2, {.name = "late"})(i);
  const Functional model(i, join_layer("join")({w, late}));
  auto names = names_of(model);
  names[3] = "add";
  EXPECT_EQ(names, (std::vector<std::string>{"i", "d1", "d2", "add", "d3", "late", "join"}));
  EXPECT_EQ(model.weights()[4].name(), "d3/kernel");
  EXPECT_EQ(model.weights()[6].name(), "late/kernel");
}

TEST(Functional, AnInputThatNoOutputNeedsIsAllowed) {
  Input a({4}), b({3});
  Functional model({a, b}, Dense(2)(a));
  EXPECT_EQ(model.layers().size(), 3u);
  EXPECT_EQ(model(Nest::tuple({at::ones({5, 4}), at::ones({5, 3})})).leaf().size(0), 5);
}

TEST(Functional, AnInputMayAlsoBeAnOutput) {
  Input a({1});
  Functional model(a, {a, Dense(1, {.kernel_initializer = "ones"})(a)});
  const Nest result = model(Nest(at::full({1, 1}, 3.f)));
  EXPECT_TENSOR_EQ(result[0].leaf(), at::full({1, 1}, 3.f));
  EXPECT_TENSOR_EQ(result[1].leaf(), at::full({1, 1}, 3.f));
}

TEST(Functional, AGraphOfThousandLayersKeepsFewTensors) {
  Input x({2});
  KerasTensor at = x;
  for (int i = 0; i < 1000; ++i) at = layers::Activation("linear")(at);
  Functional model(x, at);
  EXPECT_TENSOR_EQ(model(at::ones({1, 2})), at::ones({1, 2}));
}

// ---- what is refused

TEST(Functional, AMissingInputIsNamed) {
  Input a({4}, "a"), b({4}, "b");
  EXPECT_ERROR(Functional(a, total_layer()({a, b})), InvalidArgument,
               "disconnected: the outputs need the Input \"b\", which is not among the inputs (a)");
}

TEST(Functional, ANameThatComesTwiceIsRefused) {
  Input a({4});
  EXPECT_ERROR(Functional(a, Dense(2, {.name = "x"})(Dense(2, {.name = "x"})(a))), InvalidArgument,
               "a second layer of the name \"x\"");
}

TEST(Functional, EmptyEndsAreRefused) {
  Input a({4});
  EXPECT_ERROR(Functional({a, a}, Dense(1)(a)), InvalidArgument, "twice");
  EXPECT_ERROR(Functional(std::vector<KerasTensor>{}, Dense(1)(a)), InvalidArgument,
               "expected at least one of each");
  EXPECT_ERROR(Functional(KerasTensor(), Dense(1)(a)), InvalidArgument, "an empty handle");
}

TEST(Functional, InputsThatDoNotFitAreRefusedByName) {
  Input a({4}, "a"), b({2}, "b");
  Functional model({a, b}, join_layer()({a, b}), {.name = "m"});
  const Tensor four = at::ones({1, 4}), two = at::ones({1, 2});
  EXPECT_ERROR(model(Nest::tuple({four, four})), InvalidArgument,
               "shape (1, 4) for the input \"b\", expected (None, 2)");
  EXPECT_ERROR(model(Nest(four)), InvalidArgument, "1 inputs, expected 2");
  EXPECT_ERROR(model(Nest::map({{"a", four}, {"c", two}})), InvalidArgument,
               "inputs a, c without \"b\", expected a, b");
}

TEST(Functional, LayersOfAnotherStrategyAreRefused) {
  auto strategy = replicas(2);
  Input a({4});
  const KerasTensor outside = Dense(1)(a);
  auto scope = strategy->scope();
  EXPECT_ERROR(Functional(a, outside), FailedPrecondition, "expected both in one scope");
}

TEST(Functional, ALayerOfSeveralOutputsNeedsCallAll) {
  Input a({2});
  const Layer both = std::make_shared<testing::BothImpl>("both");
  EXPECT_ERROR(both(a), InvalidArgument, "Both [both]: 2 outputs, expected one; use call_all");
  const auto outputs = both.call_all({a});
  Functional model(a, total_layer()({outputs[0], outputs[1]}));
  EXPECT_TENSOR_EQ(model(at::ones({1, 2})), at::zeros({1, 2}));
}

// ---- inputs

TEST(Functional, InputsComeInOrderOrByName) {
  Input b({1}, "b"), a({1}, "a");
  Functional model({b, a}, join_layer()({b, a}));
  const Tensor one = at::full({1, 1}, 1.f), two = at::full({1, 1}, 2.f);
  const Tensor expected = at::tensor({1.f, 2.f}).view({1, 2});
  EXPECT_TENSOR_EQ(model(Nest::tuple({one, two})).leaf(), expected);
  EXPECT_TENSOR_EQ(model({one, two}).leaf(), expected);
  EXPECT_TENSOR_EQ(model(Nest::map({{"b", one}, {"a", two}})).leaf(), expected);
  EXPECT_EQ(model.input_names(), (std::vector<std::string>{"b", "a"}));
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) model(Nest::map({{"b", one}, {"a", two}, {"unknown", two}}));
  const std::string log = ::testing::internal::GetCapturedStderr();
  const auto first = log.find("inputs a, b, unknown, of which only b, a are the model's");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("of which only", first + 30), std::string::npos) << "said once";
}

TEST(Functional, TheKeysOfAMapAreTheNames) {
  Input x({1}), y({1});
  Functional model({{"first", x}, {"second", y}}, join_layer()({y, x}));
  EXPECT_EQ(model.input_names(), (std::vector<std::string>{"first", "second"}));
  const Nest inputs =
      Nest::map({{"second", at::full({1, 1}, 2.f)}, {"first", at::full({1, 1}, 1.f)}});
  EXPECT_TENSOR_EQ(model(inputs).leaf(), at::tensor({2.f, 1.f}).view({1, 2}));
}

TEST(Functional, ALastAxisOfOneIsAddedOrDropped) {
  Input x({1});
  Functional line(x, Dense(1, {.kernel_initializer = "ones"})(x));
  EXPECT_EQ(line(at::ones({5})).sizes().vec(), (layers::Shape{5, 1}));
  Input row({3});
  Functional flat(row, Dense(1)(row));
  EXPECT_EQ(flat(at::ones({5, 3, 1})).sizes().vec(), (layers::Shape{5, 1}));
}

TEST(Functional, IntegersReachTheLayersAsTheyAre) {
  struct Rows : layers::LayerImpl {
    Rows() : LayerImpl("Rows", "", {}) {}
    std::string class_name() const override { return "Rows"; }
    std::string config() const override { return "{}"; }
    layers::Shape compute_output_shape(const layers::Shape& input) const override {
      return {input[0], 1};
    }
    Tensor call(const Tensor& ids, bool) override {
      EXPECT_EQ(ids.scalar_type(), at::kLong);
      return ids.to(at::kFloat);
    }
    bool autocasts() const override { return false; }
  };
  Input ids({1}, {.dtype = at::kLong});
  Functional model(ids, Layer(std::make_shared<Rows>())(ids));
  const int64_t large = (int64_t{1} << 24) + 1;
  model(at::full({2, 1}, large, at::kLong));
  model(at::full({2, 1}, 3.f));  // floats for an integer Input become integers
  Sequential stack({std::make_shared<Rows>()});
  stack(at::full({2, 1}, large, at::kLong));
}

TEST(Functional, FloatsAreCastToTheComputeDtype) {
  Input x({2});
  Functional model(x, Dense(1)(x));
  EXPECT_EQ(model(at::ones({1, 2}, at::kDouble)).scalar_type(), at::kFloat);
  EXPECT_EQ(model(at::ones({1, 2}, at::kByte)).scalar_type(), at::kFloat) << "Dense counts";
}

// ---- models in models

TEST(NestedModels, AreLayersOfAFunctional) {
  clear_session();
  Sequential base({Input({4}), Dense(3), Dense(2)}, {.name = "base"});
  Input x({4});
  Functional model(x, Dense(1)(base(x)));
  fill_weights(model);
  const Tensor input = at::rand({3, 4});
  EXPECT_TENSOR_NEAR(model(input), model.get_layer("dense_2")(base(input)), 1e-6);
  EXPECT_EQ(model.weights().size(), 6u);
  EXPECT_EQ(summary_of(model), R"(Model: "functional"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ input_layer_1 (InputLayer)      │ (None, 4)              │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ base (Sequential)               │ (None, 2)              │            23 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_2 (Dense)                 │ (None, 1)              │             3 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 26 (104.00 B)
 Trainable params: 26 (104.00 B)
 Non-trainable params: 0 (0.00 B)
)");
}

TEST(NestedModels, AreLayersOfASequential) {
  Sequential base({Dense(3, {.input_shape = {4}}), Dense(2)});
  Sequential model({base, Dense(1)});
  EXPECT_TRUE(model.built()) << "the model in front knows its input";
  EXPECT_EQ(model.weights().size(), 6u);
  Input x({2});
  Functional head(x, Dense(5)(x));
  model.pop();
  model.add(head);
  EXPECT_EQ(model.output_shape(), (layers::Shape{-1, 5}));
  EXPECT_EQ(model(at::ones({1, 4})).sizes().vec(), (layers::Shape{1, 5}));
}

TEST(NestedModels, WithSeveralOutputs) {
  clear_session();
  Input i({2});
  Functional encoder(i, {Dense(2, {.name = "p"})(i), Dense(3, {.name = "q"})(i)}, {.name = "enc"});
  Input skipped({1});  // takes the name input_layer_1
  Input j({2});
  const auto parts = encoder.layer().call_all({j});
  Functional model(j, join_layer()({parts[0], parts[1]}), {.name = "outer"});
  EXPECT_EQ(summary_of(model), R"(Model: "outer"
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓
┃ Layer (type)        ┃ Output Shape      ┃    Param # ┃ Connected to      ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩
│ input_layer_2       │ (None, 2)         │          0 │ -                 │
│ (InputLayer)        │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ enc (Functional)    │ [(None, 2),       │         15 │ input_layer_2[0]… │
│                     │ (None, 3)]        │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ concatenate         │ (None, 5)         │          0 │ enc[0][0],        │
│ (Concatenate)       │                   │            │ enc[0][1]         │
└─────────────────────┴───────────────────┴────────────┴───────────────────┘
 Total params: 15 (60.00 B)
 Trainable params: 15 (60.00 B)
 Non-trainable params: 0 (0.00 B)
)");
  encoder.set_trainable(false);
  EXPECT_EQ(model.trainable_variables().size(), 0u);
  EXPECT_EQ(model.weights().size(), 4u);
  EXPECT_FALSE(encoder.trainable());
}

TEST(NestedModels, OutliveTheObjectTheyWereMadeOf) {
  Input x({4});
  KerasTensor output;
  {
    Sequential base({Dense(2, {.input_shape = {4}})});
    output = base(x);
  }
  Functional model(x, output);
  EXPECT_EQ(model(at::ones({1, 4})).size(1), 2);
}

TEST(NestedModels, AModelInsideAnotherIsFoundByALayersOutput) {
  Input x({4});
  const KerasTensor hidden = Dense(3, {.name = "hidden"})(x);
  Functional model(x, Dense(1)(hidden));
  Functional extractor(model.inputs(), model.layer_output("hidden"));
  const Tensor input = at::rand({2, 4});
  EXPECT_TENSOR_EQ(extractor(input), model.get_layer("hidden")(input));
  EXPECT_ERROR(model.layer_output("none"), NotFound, "expected one of");
  // And the other half: from the hidden tensor on.
  Functional rest(hidden, model.outputs());
  EXPECT_TENSOR_NEAR(rest(extractor(input)), model(input), 1e-6);
  EXPECT_EQ(rest.layers()[0]->class_name(), "InputLayer");
}

// ---- the table

TEST(Summary, OfSeveralInputsAndOutputsIsKerasText) {
  clear_session();
  Input a({2}, "a"), b({3}, "b");
  const KerasTensor h = join_layer()({Dense(4, {.name = "left"})(a), Dense(4)(b)});
  Functional model(
      {a, b}, {Dense(1, {.name = "u"})(h), Dense(3, {.activation = "softmax", .name = "v"})(h)});
  EXPECT_EQ(summary_of(model), R"(Model: "functional"
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓
┃ Layer (type)        ┃ Output Shape      ┃    Param # ┃ Connected to      ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩
│ a (InputLayer)      │ (None, 2)         │          0 │ -                 │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ b (InputLayer)      │ (None, 3)         │          0 │ -                 │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ left (Dense)        │ (None, 4)         │         12 │ a[0][0]           │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ dense (Dense)       │ (None, 4)         │         16 │ b[0][0]           │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ concatenate         │ (None, 8)         │          0 │ left[0][0],       │
│ (Concatenate)       │                   │            │ dense[0][0]       │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ u (Dense)           │ (None, 1)         │          9 │ concatenate[0][0] │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ v (Dense)           │ (None, 3)         │         27 │ concatenate[0][0] │
└─────────────────────┴───────────────────┴────────────┴───────────────────┘
 Total params: 64 (256.00 B)
 Trainable params: 64 (256.00 B)
 Non-trainable params: 0 (0.00 B)
)");
}

TEST(Summary, OfSharedLayersIsKerasText) {
  clear_session();
  Input a({4}), b({4});
  const Dense d(2);
  Functional model({a, b}, total_layer()({d(a), d(b)}));
  EXPECT_EQ(summary_of(model), R"(Model: "functional"
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓
┃ Layer (type)        ┃ Output Shape      ┃    Param # ┃ Connected to      ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩
│ input_layer         │ (None, 4)         │          0 │ -                 │
│ (InputLayer)        │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ input_layer_1       │ (None, 4)         │          0 │ -                 │
│ (InputLayer)        │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ dense (Dense)       │ (None, 2)         │         10 │ input_layer[0][0… │
│                     │                   │            │ input_layer_1[0]… │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ add (Add)           │ (None, 2)         │          0 │ dense[0][0],      │
│                     │                   │            │ dense[1][0]       │
└─────────────────────┴───────────────────┴────────────┴───────────────────┘
 Total params: 10 (40.00 B)
 Trainable params: 10 (40.00 B)
 Non-trainable params: 0 (0.00 B)
)");
}

// ---- descriptions

TEST(FunctionalConfig, MakesTheSameGraphAgain) {
  Input a({4}, "a"), b({4}, "b");
  const Dense shared(4, {.name = "shared"});
  Sequential base({Dense(3, {.input_shape = {4}})}, {.name = "base"});
  base.layers()[0]->set_trainable(false);
  Functional model({a, b}, {Dense(1)(base(shared(shared(a)))), shared(b)}, {.name = "m"});
  fill_weights(model);
  Layer again = layers::layer_from_config("Functional", model.layer()->config());
  EXPECT_EQ(again->name(), "m");
  EXPECT_EQ(again->config(), model.layer()->config());
  EXPECT_EQ(again->trainable_weights().size(), model.trainable_variables().size());
  for (std::size_t i = 0; i < again->weights().size(); ++i)
    again->weights()[i].assign(model.weights()[i].read_value());
  const std::vector<Tensor> inputs{at::rand({2, 4}), at::rand({2, 4})};
  const auto outputs = again.call_all(inputs);
  const Nest expected = model(inputs);
  EXPECT_TENSOR_EQ(outputs[0], expected[0].leaf());
  EXPECT_TENSOR_EQ(outputs[1], expected[1].leaf());
}

TEST(FunctionalConfig, DamageIsDataLoss) {
  auto read = [](const std::string& text) { layers::layer_from_config("Functional", text); };
  EXPECT_ERROR(read(R"({"layers": 3})"), DataLoss, "list of layers");
  EXPECT_ERROR(read(R"({"layers": [{"class_name": "Flatten", "config": {"name": "f"}}]})"),
               DataLoss, "never called");
  EXPECT_ERROR(read(R"({"layers": [{"class_name": "Flatten", "config": {"name": "f"},
                           "inbound": [[["f", 0, 0]]]}], "input_layers": [], "output_layers": [["f", 0, 0]]})"),
               DataLoss, "inputs never come");
  EXPECT_ERROR(read(R"({"layers": [{"class_name": "Flatten", "config": {"name": "f"},
                           "inbound": [[["g", 0, 0]]]}]})"),
               DataLoss, "not there");
  std::string deep = R"({"layers": []})";
  for (int i = 0; i < 200; ++i)
    deep = cat(R"({"layers": [{"class_name": "Sequential", "config": )", deep, "}]}");
  EXPECT_ERROR(layers::layer_from_config("Sequential", deep), DataLoss, "nested too deep");
}

TEST(FunctionalFile, GoesOnWhereTheModelWas) {
  const std::string path = cat(::testing::TempDir(), "/functional.tutti");
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Input a({2}, "a"), b({2}, "b");
    const Dense shared(2);
    Sequential base({Dense(3, {.input_shape = {2}})});
    const KerasTensor hidden = base(shared(shared(a)));
    Functional model({{"x", a}, {"y", b}},
                     {{"first", Dense(1)(hidden)}, {"second", Dense(2)(shared(b))}}, {.name = "m"});
    model.compile({.optimizer = "adam",
                   .loss = {{"first", "mse"}, {"second", "mae"}},
                   .loss_weights = {{"first", 2}},
                   .metrics = {{"second", {"mse"}}}});
    const Tensor x = at::rand({6, 2});
    const Arrays inputs{{"x", x}, {"y", x}}, targets{{"first", x.sum(1, true)}, {"second", x}};
    const FitOptions quiet{.batch_size = 4, .verbose = 0, .shuffle = false};
    model.fit(inputs, targets, quiet);
    model.save(path);
    auto again = load_model(path);
    EXPECT_EQ(again->name(), "m");
    EXPECT_EQ(again->output_names(), model.output_names());
    EXPECT_EQ(summary_of(*again), summary_of(model));
    EXPECT_EQ(again->fit(inputs, targets, quiet).history,
              model.fit(inputs, targets, quiet).history);
    for (std::size_t i = 0; i < model.weights().size(); ++i)
      EXPECT_TENSOR_EQ(again->get_weights()[i], model.get_weights()[i]);
  }
}

TEST(FunctionalFile, ASequentialWithModelsInsideIsSavedToo) {
  const std::string path = cat(::testing::TempDir(), "/nested.tutti");
  Input x({3});
  Functional head(x, Dense(2)(x));
  Sequential model({Sequential({Dense(3, {.input_shape = {4}})}), head});
  model.save(path);
  const Tensor input = at::rand({2, 4});
  EXPECT_TENSOR_EQ((*load_model(path))(input), model(input));
}

// ---- training

TEST(Functional, TrainsOnAnyNumberOfReplicas) {
  std::vector<std::vector<Tensor>> weights;
  for (int count : {1, 2, 3}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    Input x({2});
    const Dense shared(2);
    Functional model(x, Dense(1)(total_layer()({shared(x), shared(shared(x))})));
    fill_weights(model);
    model.compile({.optimizer = optimizers::SGD({.learning_rate = .1}), .loss = "mse"});
    const Tensor data = at::arange(10, at::kFloat).view({5, 2}) / 10;
    model.fit(data, data.sum(1, true),
              {.batch_size = 2, .epochs = 2, .verbose = 0, .shuffle = false});
    weights.push_back(model.get_weights());
    for (std::size_t i = 0; i < weights[0].size(); ++i)
      EXPECT_TENSOR_NEAR(weights.back()[i], weights[0][i], 1e-5);
  }
}

}  // namespace
}  // namespace tutti::keras
