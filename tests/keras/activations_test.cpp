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
  };
  for (const auto& [name, low, high] : expected) {
    SCOPED_TRACE(name);
    EXPECT_TENSOR_NEAR(Activation(name)(at::tensor({-1.f, 2.f})), at::tensor({low, high}), 1e-6);
    EXPECT_EQ(Activation(name).name(), name);
  }
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

TEST(Regularizers, NoneIsUndefinedAndGivesZero) {
  EXPECT_FALSE(Regularizer().defined());
  EXPECT_TRUE(regularizers::L1().defined());
  EXPECT_EQ(Regularizer()(at::ones({3})).item<float>(), 0);
}

}  // namespace
}  // namespace tutti::keras
