#include "tutti/keras/constraints.h"

#include "support/expect.h"

namespace tutti::keras {
namespace {

Tensor weight() { return at::tensor({1.f, -2.f, .1f, 2.f, 2.f, .2f}).view({2, 3}); }
Tensor matrix(const std::vector<float>& numbers) { return at::tensor(numbers).view({2, 3}); }

// Numbers of Keras 3.15.
TEST(Constraints, GiveKerasNumbers) {
  EXPECT_TENSOR_NEAR(
      constraints::MaxNorm(1.5)(weight()),
      matrix({0.67082036f, -1.0606602f, 0.099999957f, 1.3416407f, 1.0606602f, 0.19999991f}), 1e-6);
  EXPECT_TENSOR_NEAR(
      constraints::MaxNorm(1.5, {1})(weight()),
      matrix({0.67015058f, -1.3403012f, 0.067015059f, 1.0580184f, 1.0580184f, 0.10580184f}), 1e-6);
  EXPECT_TENSOR_NEAR(
      constraints::UnitNorm()(weight()),
      matrix({0.44721359f, -0.70710677f, 0.44721338f, 0.89442718f, 0.70710677f, 0.89442676f}),
      1e-6);
  EXPECT_TENSOR_NEAR(constraints::NonNeg()(weight()), matrix({1.f, 0.f, .1f, 2.f, 2.f, .2f}), 0);
  EXPECT_TENSOR_NEAR(
      constraints::MinMaxNorm(.5, 1, .5)(weight()),
      matrix({0.72360677f, -1.3535534f, 0.16180332f, 1.4472135f, 1.3535534f, 0.32360664f}), 1e-6);
}

TEST(Constraints, TakeSeveralAxes) {
  const Tensor kernel = at::ones({3, 3, 2, 4}) * 5;
  const Tensor norms = constraints::MaxNorm(2, {0, 1, 2})(kernel).square().sum({0, 1, 2}).sqrt();
  EXPECT_TENSOR_NEAR(norms, at::full({4}, 2.f), 1e-5);
  EXPECT_ERROR(constraints::UnitNorm({2})(at::ones({2, 2})), InvalidArgument, "axis 2");
}

TEST(Constraints, ComeBackFromTheirConfig) {
  for (const Constraint& one :
       {constraints::MaxNorm(1, {0, 1}), constraints::NonNeg(), constraints::UnitNorm({1}),
        constraints::MinMaxNorm(.1, .2, .3, {1})}) {
    const Constraint again = Constraint::from_config(one.class_name(), one.config());
    EXPECT_EQ(again.config(), one.config());
    EXPECT_TENSOR_EQ(again(weight()), one(weight()));
  }
  EXPECT_TENSOR_EQ(Constraint::from_config("UnitNorm", R"({"axis": 1})")(weight()),
                   constraints::UnitNorm({1})(weight()));
}

TEST(Constraints, HaveNamesAndUsersFunctions) {
  EXPECT_EQ(Constraint("max_norm").class_name(), "MaxNorm");
  EXPECT_ERROR(Constraint("norm"), InvalidArgument, "\"norm\", expected max_norm");
  const Constraint half = [](const Tensor& w) { return w / 2; };
  EXPECT_TENSOR_EQ(half(weight()), weight() / 2);
  const std::function<Tensor(const Tensor&)> function = half;
  EXPECT_TENSOR_EQ(function(weight()), weight() / 2);
  EXPECT_ERROR(Constraint::from_config(half.class_name(), half.config()), InvalidArgument,
               "given in code");
  EXPECT_ERROR(constraints::MaxNorm(-1), InvalidArgument, "max_value -1");
  EXPECT_ERROR(constraints::MinMaxNorm(2, 1), InvalidArgument, "the least first");
}

TEST(Constraints, NoneLeavesTheWeight) {
  EXPECT_FALSE(Constraint().defined());
  EXPECT_FALSE(Constraint().function());
  EXPECT_TENSOR_EQ(Constraint()(weight()), weight());
}

}  // namespace
}  // namespace tutti::keras
