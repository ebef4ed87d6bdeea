#include "tutti/keras/initializers.h"

#include <cmath>

#include "support/expect.h"
#include "tutti/base/seed.h"

namespace tutti::keras {
namespace {

class Initializers : public ::testing::Test {
 protected:
  void SetUp() override { tutti::internal::set_global_seed(5); }
};

struct Expected {
  const char* name;
  std::vector<int64_t> shape;
  double bound;   // no value beyond it
  double stddev;  // of the values
};

// Bounds and deviations that Keras shows for these shapes.
TEST_F(Initializers, FollowKerasFansAndDistributions) {
  const std::vector<Expected> expected = {
      {"glorot_uniform", {300, 500}, .08661, .0866 / std::sqrt(3)},
      {"glorot_normal", {300, 500}, .1137, .0499},
      {"he_normal", {300, 500}, .1857, .0814},
      {"he_uniform", {300, 500}, .1415, .1414 / std::sqrt(3)},
      {"lecun_normal", {300, 500}, .1313, .0576},
      {"lecun_uniform", {300, 500}, .1, .1 / std::sqrt(3)},
      {"glorot_uniform", {3, 3, 32, 64}, .0834, .0833 / std::sqrt(3)},
      {"he_uniform", {3, 3, 32, 64}, .1444, .1443 / std::sqrt(3)},
      {"random_uniform", {300, 500}, .05, .05 / std::sqrt(3)},
      {"truncated_normal", {300, 500}, .1001, .0439},
      {"variance_scaling", {300, 500}, .1313, .0576},
  };
  for (const Expected& e : expected) {
    SCOPED_TRACE(e.name);
    const Tensor weights = Initializer(e.name)(e.shape);
    EXPECT_EQ(weights.scalar_type(), at::kFloat);
    EXPECT_EQ(weights.sizes(), at::IntArrayRef(e.shape));
    const double largest = weights.abs().max().item<double>();
    EXPECT_LE(largest, e.bound);
    EXPECT_GE(largest, e.bound * 0.98);
    EXPECT_NEAR(weights.std().item<double>(), e.stddev, e.stddev * 0.02);
    EXPECT_NEAR(weights.mean().item<double>(), 0, e.stddev * 0.03);
  }
}

TEST_F(Initializers, NormalIsNotCut) {
  const Tensor weights = Initializer("random_normal")({300, 500});
  EXPECT_NEAR(weights.std().item<double>(), .05, .001);
  EXPECT_GT(weights.abs().max().item<double>(), .15);
}

TEST_F(Initializers, ConstantsAreConstant) {
  EXPECT_TENSOR_EQ(initializers::Zeros()({2}), at::zeros({2}));
  EXPECT_TENSOR_EQ(initializers::Ones()({2}), at::ones({2}));
  EXPECT_TENSOR_EQ(initializers::Constant(2.5)({2, 1}), at::full({2, 1}, 2.5f));
}

TEST_F(Initializers, ScalarsAndVectorsHaveFansToo) {
  EXPECT_LE(Initializer("glorot_uniform")({}).abs().item<double>(), std::sqrt(3.0));
  EXPECT_LE(Initializer("he_uniform")({6}).abs().max().item<double>(), 1);
}

TEST_F(Initializers, TheSeedDecidesAndEachDrawDiffers) {
  const Initializer initializer = initializers::GlorotUniform();
  const Tensor first = initializer({4, 4});
  const Tensor second = initializer({4, 4});
  EXPECT_FALSE(at::equal(first, second));
  tutti::internal::set_global_seed(5);
  EXPECT_TENSOR_EQ(initializer({4, 4}), first);
  tutti::internal::set_global_seed(6);
  EXPECT_FALSE(at::equal(initializer({4, 4}), first));
}

TEST_F(Initializers, NamesMayBeClassesAndUnknownOnesListTheKnown) {
  EXPECT_EQ(Initializer("GlorotUniform").class_name(), "GlorotUniform");
  EXPECT_EQ(Initializer("he_normal").class_name(), "HeNormal");
  EXPECT_ERROR(Initializer("glorot"), InvalidArgument, "\"glorot\", expected zeros");
  EXPECT_ERROR(Initializer()({2}), FailedPrecondition, "empty handle");
  EXPECT_ERROR(initializers::VarianceScaling(1, "fan"), InvalidArgument,
               "fan_in, fan_out or fan_avg");
}

TEST_F(Initializers, ConfigMakesTheSameInitializerAgain) {
  for (const Initializer& initializer :
       {initializers::Constant(3), initializers::RandomUniform(-2, -1),
        initializers::TruncatedNormal(1, 0.1),
        initializers::VarianceScaling(2, "fan_out", "uniform"), initializers::LecunNormal()}) {
    const Initializer again =
        Initializer::from_config(initializer.class_name(), initializer.config());
    EXPECT_EQ(again.config(), initializer.config());
    tutti::internal::set_global_seed(7);
    const Tensor drawn = initializer({3, 5});
    tutti::internal::set_global_seed(7);
    EXPECT_TENSOR_EQ(again({3, 5}), drawn);
  }
}

TEST_F(Initializers, ASeedGivesTheSameValuesEachTime) {
  const std::vector<Initializer> seeded = {
      initializers::RandomNormal(0, 1, 3),
      initializers::RandomUniform(-1, 1, 3),
      initializers::TruncatedNormal(0, 1, 3),
      initializers::GlorotUniform(3),
      initializers::HeNormal(3),
      initializers::LecunUniform(3),
      initializers::Orthogonal(1, 3),
      initializers::VarianceScaling(1, "fan_in", "uniform", 3)};
  for (const Initializer& initializer : seeded) {
    SCOPED_TRACE(initializer.class_name());
    const Tensor first = initializer({4, 5});
    EXPECT_TENSOR_EQ(initializer({4, 5}), first);
    tutti::internal::set_global_seed(99);
    EXPECT_TENSOR_EQ(initializer({4, 5}), first);
    const Initializer again =
        Initializer::from_config(initializer.class_name(), initializer.config());
    EXPECT_TENSOR_EQ(again({4, 5}), first);
  }
  EXPECT_FALSE(at::equal(initializers::HeNormal(4)({4, 5}), initializers::HeNormal(3)({4, 5})));
}

TEST_F(Initializers, ASeedLeavesTheLibrarysStreamAlone) {
  const Tensor drawn = initializers::GlorotUniform()({3});
  tutti::internal::set_global_seed(5);
  initializers::GlorotUniform(1)({3});
  EXPECT_TENSOR_EQ(initializers::GlorotUniform()({3}), drawn);
}

TEST_F(Initializers, OrthogonalHasOrthonormalRowsOrColumns) {
  const Tensor wide = Initializer("orthogonal")({3, 7});
  EXPECT_TENSOR_NEAR(at::matmul(wide, wide.t()), at::eye(3), 1e-5);
  const Tensor tall = initializers::Orthogonal(2)({2, 3, 4});
  const Tensor flat = tall.view({6, 4});
  EXPECT_TENSOR_NEAR(at::matmul(flat.t(), flat), at::eye(4) * 4, 1e-5);
  EXPECT_ERROR(initializers::Orthogonal()({3}), InvalidArgument, "at least two dimensions");
}

TEST_F(Initializers, IdentityIsAMatrix) {
  EXPECT_TENSOR_EQ(initializers::Identity(2)({2, 3}), at::eye(2, 3) * 2);
  EXPECT_ERROR(Initializer("identity")({2}), InvalidArgument, "a matrix");
}

TEST_F(Initializers, AUsersOwnIsTaken) {
  struct Countdown : Initializer::Impl {
    Tensor operator()(const std::vector<int64_t>& shape) const override {
      return at::arange(shape[0], 0, -1, at::kFloat);
    }
    std::string class_name() const override { return "Countdown"; }
    std::string config() const override { return "{}"; }
  };
  EXPECT_TENSOR_EQ(Initializer(std::make_shared<Countdown>())({3}), at::tensor({3.f, 2.f, 1.f}));
}

}  // namespace
}  // namespace tutti::keras
