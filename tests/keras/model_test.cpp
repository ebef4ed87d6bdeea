#include "tutti/keras/model.h"

#include <sstream>

#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/layers.h"

namespace tutti::keras {
namespace {

using distribute::MirroredStrategy;
using layers::BatchNormalization;
using layers::Conv2D;
using layers::Dense;
using layers::Dropout;
using layers::Flatten;
using layers::Input;
using layers::MaxPooling2D;
using layers::Shape;

std::string summary_of(const Model& model) {
  std::ostringstream out;
  model.summary(out);
  return out.str();
}

// ---- the table, as Keras 3.15 prints it

TEST(Summary, OfAnMlpIsKerasText) {
  clear_session();
  const Sequential model({Input({4}), Dense(8, {.activation = "relu"}), Dense(3)});
  EXPECT_EQ(summary_of(model), R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ dense (Dense)                   │ (None, 8)              │            40 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 3)              │            27 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 67 (268.00 B)
 Trainable params: 67 (268.00 B)
 Non-trainable params: 0 (0.00 B)
)");
  EXPECT_EQ(model.count_params(), 67);
}

TEST(Summary, OfACnnIsKerasText) {
  clear_session();
  const Sequential model({Input({28, 28, 1}), Conv2D(32, 3, {.activation = "relu"}),
                          BatchNormalization(), MaxPooling2D(), Dropout(.25), Flatten(),
                          Dense(64, {.activation = "relu"}), Dense(10)});
  EXPECT_EQ(summary_of(model), R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ conv2d (Conv2D)                 │ (None, 26, 26, 32)     │           320 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ batch_normalization             │ (None, 26, 26, 32)     │           128 │
│ (BatchNormalization)            │                        │               │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ max_pooling2d (MaxPooling2D)    │ (None, 13, 13, 32)     │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dropout (Dropout)               │ (None, 13, 13, 32)     │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ flatten (Flatten)               │ (None, 5408)           │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense (Dense)                   │ (None, 64)             │       346,176 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 10)             │           650 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 347,274 (1.32 MB)
 Trainable params: 347,210 (1.32 MB)
 Non-trainable params: 64 (256.00 B)
)");
}

TEST(Summary, CountsTheOptimizerOnceItIsBuilt) {
  Sequential model({Dense(1, {.input_shape = {2}})});
  model.compile({.optimizer = "adam", .loss = "mse"});
  EXPECT_EQ(summary_of(model).find("Optimizer"), std::string::npos);
  model.train_on_batch(at::ones({2, 2}), at::ones({2, 1}));
  EXPECT_NE(summary_of(model).find(" Total params: 11 (48.00 B)\n Trainable params: 3 (12.00 B)\n "
                                   "Non-trainable params: 0 (0.00 B)\n"
                                   " Optimizer params: 8 (36.00 B)\n"),
            std::string::npos)
      << summary_of(model);
}

TEST(Summary, LongShapesAreWrappedAndLongNamesEndInAnEllipsis) {
  const Sequential model({layers::Reshape({1000, 1000, 1000, 1},
                                          {.name = "a_name_that_is_longer_than_the_column_is_wide",
                                           .input_shape = {1000000000}})},
                         {.name = "m"});
  EXPECT_NE(summary_of(model).find(
                "│ a_name_that_is_longer_than_the… │ (None, 1000, 1000,     │             0 │\n"
                "│ (Reshape)                       │ 1000, 1)               │               │\n"),
            std::string::npos)
      << summary_of(model);
}

// ---- building

TEST(Sequential, BeforeItIsBuiltThereIsNothingToAskFor) {
  Sequential model({Dense(2)}, {.name = "m"});
  EXPECT_FALSE(model.built());
  EXPECT_ERROR(model.weights(), FailedPrecondition, "weights [m]: the model is not built");
  EXPECT_ERROR(summary_of(model), FailedPrecondition, "call build(), or call the model once");
  EXPECT_ERROR(model.get_weights(), FailedPrecondition, "not built");
  EXPECT_ERROR(model.count_params(), FailedPrecondition, "not built");
  EXPECT_ERROR(model.trainable_variables(), FailedPrecondition, "not built");
  EXPECT_ERROR(Sequential()(at::ones({1, 1})), FailedPrecondition, "without layers");
}

TEST(Sequential, TheFirstBatchBuildsIt) {
  Sequential model({Dense(2), Dense(1)});
  EXPECT_EQ(model(at::ones({5, 3})).sizes().vec(), (Shape{5, 1}));
  EXPECT_EQ(model.input_shape(), (Shape{-1, 3}));
  EXPECT_EQ(model.weights().size(), 4);
}

TEST(Sequential, AnInputShapeBuildsItAtOnce) {
  EXPECT_EQ(Sequential({Dense(2, {.input_shape = {3}})}).count_params(), 8);
  EXPECT_EQ(Sequential({Input({3}), Dense(2)}).count_params(), 8);
}

TEST(Sequential, GrowsByAdd) {
  Sequential model;
  model.add(Input({4}));
  model.add(Dense(3));
  EXPECT_EQ(model.count_params(), 15);
  model.add(Dense(2));
  EXPECT_EQ(model.count_params(), 23);
  EXPECT_EQ(model(at::ones({1, 4})).sizes().vec(), (Shape{1, 2}));
}

TEST(Sequential, WhatDoesNotFitIsRefusedAndNothingHappens) {
  Sequential model({Dense(2, {.name = "d"}), Conv2D(1, 3)});
  EXPECT_ERROR(model.build({-1, 3}), InvalidArgument, "Conv2D");
  EXPECT_ERROR(model.layers()[0]->weights(), FailedPrecondition, "not built");
  EXPECT_NO_THROW(model.build({-1, 4, 4, 3}));
  EXPECT_ERROR(model.add(Dense(1, {.name = "d"})), InvalidArgument,
               "a second layer of the name \"d\"");
  EXPECT_ERROR(model.add(layers::Reshape({7})), InvalidArgument, "same number of entries");
  EXPECT_ERROR(model.add(layers::Layer()), InvalidArgument, "empty layer handle");
  EXPECT_EQ(model.layers().size(), 2);
}

TEST(Sequential, TakesIntegersAsNumbers) {
  Sequential model({Dense(1, {.kernel_initializer = "ones"})});
  EXPECT_TENSOR_EQ(model(at::full({1, 3}, 2, at::kByte)), at::full({1, 1}, 6.f));
  EXPECT_ERROR(model(at::tensor(1.f).squeeze()), InvalidArgument, "scalar");
  EXPECT_ERROR(model(Tensor()), InvalidArgument, "undefined");
}

TEST(Sequential, ReplicasBuildItTogether) {
  for (int round = 0; round < 20; ++round) {
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}});
    auto scope = strategy.scope();
    Sequential model({Conv2D(2, 3), BatchNormalization(), Flatten(), Dense(3)});
    const auto outputs = strategy.run([&] { return model(at::ones({1, 5, 5, 1})); });
    EXPECT_EQ(model.weights().size(), 8);
    EXPECT_TENSOR_EQ(outputs[0], outputs[3]);
    for (const Variable& weight : model.weights()) EXPECT_EQ(&weight.strategy(), &strategy);
  }
}

TEST(Sequential, WeightsBelongToTheStrategyOfTheModelWhereverItIsBuilt) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  std::unique_ptr<Sequential> model;
  {
    auto scope = strategy.scope();
    model = std::make_unique<Sequential>(std::vector<layers::Layer>{Dense(2)});
  }
  (*model)(at::ones({1, 3}));
  EXPECT_EQ(&model->weights()[0].strategy(), &strategy);
  model->add(Dense(1));
  EXPECT_EQ(&model->weights()[2].strategy(), &strategy);
}

TEST(Sequential, AnotherStrategyCannotBuildIt) {
  Sequential model({Dense(2)}, {.name = "m"});
  distribute::OneDeviceStrategy other("cpu:0");
  auto scope = other.scope();
  EXPECT_ERROR(model(at::ones({1, 3})), FailedPrecondition,
               "build [m]: called under OneDeviceStrategy");
  EXPECT_FALSE(model.built());
}

// ---- weights

TEST(Model, WeightsAreInTheOrderOfTheLayers) {
  Sequential model({Conv2D(2, 3, {.name = "c", .input_shape = {5, 5, 3}}),
                    BatchNormalization({.name = "n"}), Flatten(), Dense(4, {.name = "d"})});
  std::vector<std::string> names;
  for (const Variable& weight : model.weights()) names.push_back(weight.name());
  EXPECT_EQ(names,
            (std::vector<std::string>{"c/kernel", "c/bias", "n/gamma", "n/beta", "n/moving_mean",
                                      "n/moving_variance", "d/kernel", "d/bias"}));
  EXPECT_EQ(model.trainable_variables().size(), 6);
  EXPECT_EQ(model.non_trainable_variables().size(), 2);
  model.layers()[0]->set_trainable(false);
  EXPECT_EQ(model.trainable_variables().size(), 4);
  EXPECT_EQ(model.non_trainable_variables().size(), 4);
}

TEST(Model, GetWeightsGivesCopiesInKerasLayout) {
  Sequential model({Conv2D(2, 3, {.input_shape = {5, 5, 3}})});
  std::vector<Tensor> weights = model.get_weights();
  EXPECT_EQ(weights[0].sizes().vec(), (Shape{3, 3, 3, 2}));
  EXPECT_TRUE(weights[0].is_contiguous());
  EXPECT_FALSE(weights[0].requires_grad());
  weights[0].zero_();
  EXPECT_FALSE(at::equal(model.get_weights()[0], weights[0]));
}

TEST(Model, SetWeightsReachesEveryReplica) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  Sequential model({Conv2D(2, 1, {.input_shape = {2, 2, 3}}), BatchNormalization()});
  std::vector<Tensor> values;
  for (const Tensor& weight : model.get_weights())
    values.push_back(at::arange(weight.numel(), at::kDouble).view(weight.sizes()) + 1);
  model.set_weights(values);
  const auto read = model.get_weights();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TENSOR_EQ(read[i], values[i]);
    for (const Tensor& component : model.weights()[i].components())
      EXPECT_TENSOR_EQ(component, values[i]);
  }
}

TEST(Model, SetWeightsChangesAllOrNothing) {
  Sequential model({Dense(2, {.input_shape = {3}})});
  const auto before = model.get_weights();
  EXPECT_ERROR(model.set_weights({at::zeros({3, 2})}), InvalidArgument, "1 tensors for 2 weights");
  EXPECT_ERROR(model.set_weights({at::zeros({3, 2}), at::zeros({3})}), InvalidArgument,
               "shape (3,)");
  EXPECT_ERROR(model.set_weights({at::zeros({3, 2}), Tensor()}), InvalidArgument, "undefined");
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TENSOR_EQ(model.get_weights()[i], before[i]);
}

TEST(Model, LossesAreThePenaltiesOfItsLayers) {
  const Regularizer l2 = regularizers::L2(.1);
  Sequential model(
      {Dense(2, {.kernel_initializer = "ones", .kernel_regularizer = l2, .input_shape = {3}}),
       Dense(2),
       Dense(1, {.kernel_initializer = "ones",
                 .bias_initializer = "ones",
                 .bias_regularizer = regularizers::L1(.5)})});
  ASSERT_EQ(model.losses().size(), 2);
  EXPECT_NEAR(model.losses()[0].item<double>(), .6, 1e-6);
  EXPECT_NEAR(model.losses()[1].item<double>(), .5, 1e-6);
}

}  // namespace
}  // namespace tutti::keras
