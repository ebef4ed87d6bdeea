// A variable stands where a tensor or a number does: every operator, on either side.

#include "distribute/variable_settings.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::distribute::testing {
namespace {

struct Operands {
  Variable v = Variable(at::tensor({4.0F, 2.0F}));
  Variable w = Variable(at::tensor({2.0F, 2.0F}));
  Tensor t = at::tensor({2.0F, 8.0F});
};

TEST(VariableArithmetic, WithAnotherVariable) {
  Operands o;
  EXPECT_EQ(rows(o.v + o.w), (Values{6, 4}));
  EXPECT_EQ(rows(o.v - o.w), (Values{2, 0}));
  EXPECT_EQ(rows(o.v * o.w), (Values{8, 4}));
  EXPECT_EQ(rows(o.v / o.w), (Values{2, 1}));
  EXPECT_EQ(rows(o.v < o.w), (Values{0, 0}));
  EXPECT_EQ(rows(o.v <= o.w), (Values{0, 1}));
  EXPECT_EQ(rows(o.v > o.w), (Values{1, 0}));
  EXPECT_EQ(rows(o.v >= o.w), (Values{1, 1}));
  EXPECT_EQ(rows(o.v == o.w), (Values{0, 1}));
  EXPECT_EQ(rows(o.v != o.w), (Values{1, 0}));
}

TEST(VariableArithmetic, WithATensorOnEitherSide) {
  Operands o;
  EXPECT_EQ(rows(o.v + o.t), (Values{6, 10}));
  EXPECT_EQ(rows(o.t + o.v), (Values{6, 10}));
  EXPECT_EQ(rows(o.v - o.t), (Values{2, -6}));
  EXPECT_EQ(rows(o.t - o.v), (Values{-2, 6}));
  EXPECT_EQ(rows(o.v * o.t), (Values{8, 16}));
  EXPECT_EQ(rows(o.t * o.v), (Values{8, 16}));
  EXPECT_EQ(rows(o.v / o.t), (Values{2, 0.25}));
  EXPECT_EQ(rows(o.t / o.v), (Values{0.5, 4}));
  EXPECT_EQ(rows(o.v < o.t), (Values{0, 1}));
  EXPECT_EQ(rows(o.t < o.v), (Values{1, 0}));
  EXPECT_EQ(rows(o.v <= o.t), (Values{0, 1}));
  EXPECT_EQ(rows(o.t <= o.v), (Values{1, 0}));
  EXPECT_EQ(rows(o.v > o.t), (Values{1, 0}));
  EXPECT_EQ(rows(o.t > o.v), (Values{0, 1}));
  EXPECT_EQ(rows(o.v >= o.t), (Values{1, 0}));
  EXPECT_EQ(rows(o.t >= o.v), (Values{0, 1}));
  EXPECT_EQ(rows(o.v == o.t), (Values{0, 0}));
  EXPECT_EQ(rows(o.t == o.v), (Values{0, 0}));
  EXPECT_EQ(rows(o.v != o.t), (Values{1, 1}));
  EXPECT_EQ(rows(o.t != o.v), (Values{1, 1}));
  EXPECT_EQ(rows((o.t + 1) * o.v), (Values{12, 18}));  // a temporary too
}

TEST(VariableArithmetic, WithANumberOnEitherSide) {
  Operands o;
  EXPECT_EQ(rows(o.v + 1), (Values{5, 3}));
  EXPECT_EQ(rows(1 + o.v), (Values{5, 3}));
  EXPECT_EQ(rows(o.v - 1.5), (Values{2.5, 0.5}));
  EXPECT_EQ(rows(2.0 - o.v), (Values{-2, 0}));
  EXPECT_EQ(rows(o.v * 2), (Values{8, 4}));
  EXPECT_EQ(rows(2.0F * o.v), (Values{8, 4}));
  EXPECT_EQ(rows(o.v / 2), (Values{2, 1}));
  EXPECT_EQ(rows(int64_t{8} / o.v), (Values{2, 4}));
  EXPECT_EQ(rows(o.v < 3), (Values{0, 1}));
  EXPECT_EQ(rows(3 < o.v), (Values{1, 0}));
  EXPECT_EQ(rows(o.v <= 2), (Values{0, 1}));
  EXPECT_EQ(rows(2 <= o.v), (Values{1, 1}));
  EXPECT_EQ(rows(o.v > 3), (Values{1, 0}));
  EXPECT_EQ(rows(3 > o.v), (Values{0, 1}));
  EXPECT_EQ(rows(o.v >= 4), (Values{1, 0}));
  EXPECT_EQ(rows(4 >= o.v), (Values{1, 1}));
  EXPECT_EQ(rows(o.v == 2), (Values{0, 1}));
  EXPECT_EQ(rows(2 == o.v), (Values{0, 1}));
  EXPECT_EQ(rows(o.v != 2), (Values{1, 0}));
  EXPECT_EQ(rows(2 != o.v), (Values{1, 0}));
  EXPECT_EQ(rows(-o.v), (Values{-4, -2}));
}

TEST(VariableArithmetic, ANumberGivesWayToTheVariablesDtype) {
  Operands o;
  EXPECT_EQ((o.v + 1.5).scalar_type(), at::kFloat);
  EXPECT_EQ((1 - o.v).scalar_type(), at::kFloat);
  Variable count(at::full({}, 3, at::kInt));
  EXPECT_EQ((count * 2).scalar_type(), at::kInt);
  EXPECT_EQ((2 - count).scalar_type(), at::kInt);
  EXPECT_EQ((count + 0.5).item<double>(), 3.5);
}

TEST(VariableArithmetic, WithADistributedValueInsideItsReplicaOrOfOneReplica) {
  Operands o;
  const Mirrored<Tensor> one(std::vector<Tensor>{o.t});
  EXPECT_EQ(rows(o.v + one), (Values{6, 10}));
  EXPECT_EQ(rows(one - o.v), (Values{-2, 6}));
}

TEST(VariableArithmetic, GradientsFlowThroughIt) {
  Variable v(at::full({}, 3.0));
  GradientTape tape;
  const Tensor loss = 2 * v * v - v / 2 + (-v);
  EXPECT_EQ(tape.gradient(loss, v).item<double>(), 12 - 0.5 - 1);
}

TEST(VariableArithmetic, InReplicasItIsWithTheOwnComponent) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable v = make(Sync::kAuto, Agg::kNone, 0);
  strategy->run([&] { v.assign(id_tensor()); });
  const auto doubled = strategy->run([&] { return v * 2 + at::ones({}); });
  EXPECT_EQ(doubled[0].item<double>(), 1);
  EXPECT_EQ(doubled[1].item<double>(), 3);
  EXPECT_EQ((v * 2).item<double>(), 0);  // the first component outside
}

}  // namespace
}  // namespace tutti::distribute::testing
