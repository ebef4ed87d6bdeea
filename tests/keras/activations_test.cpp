#include "tutti/keras/activations.h"

#include "support/expect.h"
#include "tutti/keras/regularizers.h"

namespace tutti::keras {
namespace {

// -1 and 2 through each function, as Keras gives them.
TEST(Activations, HaveKerasValues) {
  const std::vector<std::tuple<const char*, float, float>> expected = {
      {"linear", -1.f, 2.f},
      {"relu", 0.f, 2.f},
      {"leaky_relu", -.2f, 2.f},
      {"elu", -.63212055f, 2.f},
      {"selu", -1.1113307f, 2.101402f},
      {"gelu", -.1586553f, 1.9544997f},
      {"silu", -.26894143f, 1.7615942f},
      {"swish", -.26894143f, 1.7615942f},
      {"sigmoid", .26894143f, .880797f},
      {"hard_sigmoid", .33333334f, .8333333f},
      {"tanh", -.7615942f, .9640276f},
      {"softmax", .047425874f, .95257413f},
      {"log_softmax", -3.0485873f, -.04858735f},
      {"softplus", .31326166f, 2.126928f},
      {"softsign", -.5f, .6666667f},
      {"exponential", .36787945f, 7.389056f},
      {"mish", -0.30340144f, 1.943959f},
      {"log_sigmoid", -1.3132617f, -0.126928f},
      {"hard_silu", -0.33333334f, 1.6666667f},
      {"hard_swish", -0.33333334f, 1.6666667f},
      {"celu", -0.63212055f, 2.f},
      {"hard_tanh", -1.f, 1.f},
      {"tanh_shrink", -0.23840582f, 1.0359724f},
      {"hard_shrink", -1.f, 2.f},
      {"soft_shrink", -0.5f, 1.5f},
      {"squareplus", 0.61803401f, 2.4142137f},
      {"sparse_plus", 0.f, 2.f},
      {"sparse_sigmoid", 0.f, 1.f},
      {"sparsemax", 0.f, 1.f},
  };
  for (const auto& [name, low, high] : expected) {
    SCOPED_TRACE(name);
    EXPECT_TENSOR_NEAR(Activation(name)(at::tensor({-1.f, 2.f})), at::tensor({low, high}), 1e-6);
    EXPECT_EQ(Activation(name).name(), name);
  }
}

// Numbers of Keras 3.15.
TEST(Activations, FunctionsTakeKerasArguments) {
  const Tensor x = at::tensor({-2.f, -.5f, .25f, .75f, 3.f, 8.f});
  EXPECT_TENSOR_NEAR(activations::relu(x, .1, 5, .5),
                     at::tensor({-0.25f, -0.1f, -0.025f, 0.75f, 3.f, 5.f}), 1e-6);
  EXPECT_TENSOR_EQ(activations::relu(x, 0, 1), at::tensor({0.f, 0.f, .25f, .75f, 1.f, 1.f}));
  EXPECT_TENSOR_NEAR(activations::relu(x, .5), at::tensor({-1.f, -.25f, .25f, .75f, 3.f, 8.f}),
                     1e-6);
  EXPECT_TENSOR_NEAR(activations::gelu(at::tensor({-1.f, 2.f}), /*approximate=*/true),
                     at::tensor({-0.15880796f, 1.9545977f}), 1e-6);
  EXPECT_TENSOR_EQ(activations::threshold(x, .5, -7),
                   at::tensor({-7.f, -7.f, -7.f, .75f, 3.f, 8.f}));
  EXPECT_TENSOR_EQ(activations::hard_shrink(x, 1), at::tensor({-2.f, 0.f, 0.f, 0.f, 3.f, 8.f}));
  EXPECT_TENSOR_NEAR(activations::soft_shrink(x), at::tensor({-1.5f, 0.f, 0.f, .25f, 2.5f, 7.5f}),
                     1e-6);
  EXPECT_TENSOR_NEAR(activations::sparse_plus(x),
                     at::tensor({0.f, .0625f, .390625f, .765625f, 3.f, 8.f}), 1e-6);
  EXPECT_TENSOR_NEAR(activations::sparse_sigmoid(x),
                     at::tensor({0.f, .25f, .625f, .875f, 1.f, 1.f}), 1e-6);
  EXPECT_TENSOR_NEAR(
      activations::squareplus(x),
      at::tensor({0.41421354f, 0.78077638f, 1.1327822f, 1.4430004f, 3.3027756f, 8.123106f}), 1e-6);
  EXPECT_TENSOR_NEAR(activations::sparsemax(at::tensor({.1f, .2f, -3.f, .5f})),
                     at::tensor({.16666667f, .26666668f, 0.f, .56666666f}), 1e-6);
  EXPECT_TENSOR_NEAR(activations::softmax(x.view({2, 3}), 0), at::softmax(x.view({2, 3}), 0), 1e-6);
}

TEST(Activations, GluHalvesAnAxis) {
  EXPECT_TENSOR_NEAR(Activation("glu")(at::tensor({-1.f, 2.f})), at::tensor({-0.88079703f}), 1e-6);
  EXPECT_ERROR(activations::glu(at::ones({2, 3})), InvalidArgument, "even length");
}

TEST(Activations, MayBeAUsersFunction) {
  const Activation own([](const Tensor& x) { return x * 2; }, "twice");
  EXPECT_TENSOR_EQ(own(at::ones({2})), at::full({2}, 2.f));
  EXPECT_EQ(own.name(), "twice");
  const Activation copy = own;
  EXPECT_TENSOR_EQ(copy(at::ones({1})), at::full({1}, 2.f));
}

TEST(Activations, Relu6AndHardSigmoidAreCutOnBothSides) {
  EXPECT_TENSOR_EQ(Activation("relu6")(at::tensor({-1.f, 5.f, 7.f})), at::tensor({0.f, 5.f, 6.f}));
  EXPECT_TENSOR_EQ(Activation("hard_sigmoid")(at::tensor({-4.f, 4.f})), at::tensor({0.f, 1.f}));
}

TEST(Activations, SoftmaxGoesAlongTheLastAxis) {
  EXPECT_TENSOR_NEAR(Activation("softmax")(at::zeros({2, 4})), at::full({2, 4}, .25f), 1e-6);
}

TEST(Activations, LinearGivesTheTensorItself) {
  const Tensor x = at::ones({2});
  EXPECT_TRUE(Activation()(x).is_same(x));
  EXPECT_EQ(Activation("").name(), "linear");
}

TEST(Activations, UnknownNamesListTheKnown) {
  EXPECT_ERROR(Activation("rellu"), InvalidArgument, "\"rellu\", expected one of linear, relu");
}

TEST(Regularizers, AddAbsoluteValuesAndSquares) {
  const Tensor weight = at::tensor({1.f, -2.f});
  EXPECT_NEAR(regularizers::L1(0.5)(weight).item<float>(), 1.5, 1e-6);
  EXPECT_NEAR(regularizers::L2(0.5)(weight).item<float>(), 2.5, 1e-6);
  EXPECT_NEAR(regularizers::L1L2(1, 2)(weight).item<float>(), 13, 1e-6);
  EXPECT_NEAR(regularizers::L2()(weight).item<float>(), .05, 1e-6);
}

TEST(Regularizers, GradientsFlow) {
  const Tensor weight = at::tensor({1.f, -2.f}).requires_grad_();
  regularizers::L1L2(1, 2)(weight).backward();
  EXPECT_TENSOR_NEAR(weight.grad(), at::tensor({5.f, -9.f}), 1e-6);
}

TEST(Regularizers, OrthogonalRegularizerIsTheMeanOfPairs) {
  const Tensor weight = at::tensor({1.f, -2.f, .1f, 2.f, 2.f, .2f}).view({2, 3});
  EXPECT_NEAR(regularizers::OrthogonalRegularizer(.3)(weight).item<float>(), .093592189, 1e-6);
  EXPECT_NEAR(regularizers::OrthogonalRegularizer(.3)(weight.t()).item<float>(), .16324554, 1e-6);
  EXPECT_NEAR(regularizers::OrthogonalRegularizer(.3, "columns")(weight).item<float>(), .16324554,
              1e-6);
  EXPECT_ERROR(regularizers::OrthogonalRegularizer()(at::ones({2})), InvalidArgument, "a matrix");
  EXPECT_ERROR(regularizers::OrthogonalRegularizer(1, "row"), InvalidArgument, "\"rows\" or");
}

TEST(Regularizers, HaveNamesConfigsAndUsersFunctions) {
  const Tensor weight = at::tensor({1.f, -2.f, .5f, 3.f}).view({2, 2});
  EXPECT_NEAR(Regularizer("l2")(weight).item<float>(), .1425, 1e-6);
  EXPECT_NEAR(Regularizer("l1_l2")(weight).item<float>(), .2075, 1e-6);
  for (const Regularizer& one :
       {regularizers::L1(.5), regularizers::L2(.25), regularizers::L1L2(.1, .2),
        regularizers::OrthogonalRegularizer(.5, "columns")}) {
    const Regularizer again = Regularizer::from_config(one.class_name(), one.config());
    EXPECT_EQ(again.config(), one.config());
    EXPECT_TENSOR_EQ(again(weight), one(weight));
  }
  const Regularizer own = [](const Tensor& w) { return w.max(); };
  EXPECT_EQ(own(weight).item<float>(), 3);
  EXPECT_ERROR(Regularizer::from_config(own.class_name(), own.config()), InvalidArgument,
               "\"function\", expected l1");
  EXPECT_ERROR(Regularizer("l3"), InvalidArgument, "\"l3\", expected l1, l2");
  EXPECT_ERROR(regularizers::L2(-1), InvalidArgument, "l2 -1");
}

TEST(Regularizers, NoneIsUndefinedAndGivesZero) {
  EXPECT_FALSE(regularizers::L1L2().defined());
  EXPECT_FALSE(Regularizer().defined());
  EXPECT_TRUE(regularizers::L1().defined());
  EXPECT_EQ(Regularizer()(at::ones({3})).item<float>(), 0);
}

}  // namespace
}  // namespace tutti::keras
