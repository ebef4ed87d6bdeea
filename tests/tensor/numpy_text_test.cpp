// Cases that are easy to get wrong, with the texts that NumPy 2.4 prints for the same arrays.

#include <cmath>
#include <cstdint>

#include "support/expect.h"
#include "tutti/tensor/printing.h"

namespace tutti {
namespace {

struct FloatCase {
  std::vector<double> values;
  at::ScalarType dtype;
  std::string text;
};

struct ScalarCase {
  double value;
  std::string single, full, half;
};

TEST(NumPyText, SwitchesToExponentsWhereNumPyDoes) {
  const std::vector<FloatCase> cases = {
      {{1000000, 2000000}, at::kFloat, "[1.e+06 2.e+06]"},
      {{999999, 1}, at::kFloat, "[9.99999e+05 1.00000e+00]"},
      {{999999, 1000}, at::kFloat, "[999999.   1000.]"},
      {{1000000, 2000000}, at::kDouble, "[1000000. 2000000.]"},
      {{99999999, 10000000}, at::kDouble, "[99999999. 10000000.]"},
      {{100000000, 200000000}, at::kDouble, "[1.e+08 2.e+08]"},
      {{1000, 2}, at::kHalf, "[1.e+03 2.e+00]"},
      {{999, 2}, at::kHalf, "[999.   2.]"},
      {{0.0001, 0.01}, at::kFloat, "[0.0001 0.01  ]"},
      {{0.0001, 0.01}, at::kDouble, "[0.0001 0.01  ]"},
      {{9.9999e-05}, at::kDouble, "[9.9999e-05]"},
      {{1, 1000}, at::kFloat, "[   1. 1000.]"},
      {{1, 1001}, at::kFloat, "[1.000e+00 1.001e+03]"},
      {{0, 1e-05}, at::kFloat, "[0.e+00 1.e-05]"},
      {{0, 0}, at::kFloat, "[0. 0.]"},
  };
  for (const FloatCase& one : cases) {
    EXPECT_EQ(values_to_string(at::tensor(one.values, at::kDouble).to(one.dtype)), one.text);
  }
}

TEST(NumPyText, ShowsTheDigitsNumPyShows) {
  const std::vector<FloatCase> cases = {
      {{0.1, 100}, at::kFloat, "[  0.1 100. ]"},
      {{0.001953125}, at::kFloat, "[0.00195312]"},
      {{0.005859375}, at::kFloat, "[0.00585938]"},
      {{5.684341886080802e-14}, at::kFloat, "[5.684342e-14]"},
      {{-5186381, 1.2087708711624146, 0.7160164713859558},
       at::kFloat,
       "[-5.1863810e+06  1.2087709e+00  7.1601647e-01]"},
      {{4503599627370496.0, 9.313225746154785e-10}, at::kFloat, "[4.5035996e+15 9.3132257e-10]"},
      {{5e-324, 1.7976931348623157e+308}, at::kDouble, "[4.94065646e-324 1.79769313e+308]"},
      {{0.1, 1024}, at::kHalf, "[9.998e-02 1.024e+03]"},
      {{0.015625, 0.25}, at::kHalf, "[0.01563 0.25   ]"},
      {{65504, 6e-08}, at::kHalf, "[6.55e+04 5.96e-08]"},
      {{0.99999999999}, at::kDouble, "[1.]"},
      {{-0.0, 0}, at::kFloat, "[-0.  0.]"},
      {{16777216, 123456.789}, at::kDouble, "[16777216.      123456.789]"},
  };
  for (const FloatCase& one : cases) {
    EXPECT_EQ(values_to_string(at::tensor(one.values, at::kDouble).to(one.dtype)), one.text);
  }
}

TEST(NumPyText, AlignsWhatIsNotFinite) {
  const std::vector<FloatCase> cases = {
      {{NAN, 1, -INFINITY, 2.5}, at::kFloat, "[ nan  1.  -inf  2.5]"},
      {{NAN, NAN}, at::kFloat, "[nan nan]"},
      {{-INFINITY, NAN}, at::kFloat, "[-inf  nan]"},
      {{INFINITY, 10000000000}, at::kFloat, "[   inf 1.e+10]"},
      {{NAN, -1e-100, 1e+100}, at::kDouble, "[     nan -1.e-100  1.e+100]"},
      {{NAN, 7}, at::kHalf, "[nan  7.]"},
  };
  for (const FloatCase& one : cases) {
    EXPECT_EQ(values_to_string(at::tensor(one.values, at::kDouble).to(one.dtype)), one.text);
  }
}

TEST(NumPyText, LaysOutRowsMatricesAndSummaries) {
  const std::vector<std::pair<Tensor, std::string>> cases = {
      {at::tensor({INT64_MAX, INT64_MIN}), "[ 9223372036854775807 -9223372036854775808]"},
      {at::tensor({-1, 0}, at::kLong).view(at::kUInt64),
       "[18446744073709551615                    0]"},
      {at::tensor({-128, 7}).to(at::kChar), "[-128    7]"},
      {at::ones({2}, at::kBool), "[ True  True]"},
      {at::eye(2).to(at::kBool), "[[ True False]\n [False  True]]"},
      {at::arange(24).view({2, 1, 3, 4}),
       "[[[[ 0  1  2  3]\n"
       "   [ 4  5  6  7]\n"
       "   [ 8  9 10 11]]]\n"
       "\n"
       "\n"
       " [[[12 13 14 15]\n"
       "   [16 17 18 19]\n"
       "   [20 21 22 23]]]]"},
      {at::arange(30).to(at::kFloat) / 4,
       "[0.   0.25 0.5  0.75 1.   1.25 1.5  1.75 2.   2.25 2.5  2.75 3.   3.25\n"
       " 3.5  3.75 4.   4.25 4.5  4.75 5.   5.25 5.5  5.75 6.   6.25 6.5  6.75\n"
       " 7.   7.25]"},
      {at::full({2, 20}, -1.5),
       "[[-1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5\n"
       "  -1.5 -1.5 -1.5 -1.5 -1.5 -1.5]\n"
       " [-1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5 -1.5\n"
       "  -1.5 -1.5 -1.5 -1.5 -1.5 -1.5]]"},
      {at::full({1, 1, 1, 12}, 12345),
       "[[[[12345 12345 12345 12345 12345 12345 12345 12345 12345 12345 12345\n"
       "    12345]]]]"},
      {at::zeros({3, 0}), "[]"},
      {at::arange(1008).view({2, 252, 2}),
       "[[[   0    1]\n"
       "  [   2    3]\n"
       "  [   4    5]\n"
       "  ...\n"
       "  [ 498  499]\n"
       "  [ 500  501]\n"
       "  [ 502  503]]\n"
       "\n"
       " [[ 504  505]\n"
       "  [ 506  507]\n"
       "  [ 508  509]\n"
       "  ...\n"
       "  [1002 1003]\n"
       "  [1004 1005]\n"
       "  [1006 1007]]]"},
      {at::arange(1008).view({8, 1, 126}),
       "[[[   0    1    2 ...  123  124  125]]\n"
       "\n"
       " [[ 126  127  128 ...  249  250  251]]\n"
       "\n"
       " [[ 252  253  254 ...  375  376  377]]\n"
       "\n"
       " ...\n"
       "\n"
       " [[ 630  631  632 ...  753  754  755]]\n"
       "\n"
       " [[ 756  757  758 ...  879  880  881]]\n"
       "\n"
       " [[ 882  883  884 ... 1005 1006 1007]]]"},
      {at::cat({at::zeros({600}), at::full({1}, 1e10), at::ones({600})}),
       "[0. 0. 0. ... 1. 1. 1.]"},
  };
  for (const auto& [tensor, text] : cases) EXPECT_EQ(values_to_string(tensor), text);
}

TEST(NumPyText, PrintsScalarsOfEachDtype) {
  const std::vector<ScalarCase> cases = {
      {0, "0.0", "0.0", "0.0"},
      {-0.0, "-0.0", "-0.0", "-0.0"},
      {0.7, "0.7", "0.7", "0.7"},
      {1, "1.0", "1.0", "1.0"},
      {0.0001, "1e-04", "0.0001", "0.0001"},
      {0.00011, "0.00011", "0.00011", "0.00011"},
      {1e-05, "1e-05", "1e-05", "1e-05"},
      {999999, "999999.0", "999999.0", "inf"},
      {1000000, "1e+06", "1000000.0", "inf"},
      {16777216, "1.6777216e+07", "16777216.0", "inf"},
      {1000000000000000.0, "1e+15", "1000000000000000.0", "inf"},
      {123456.789, "123456.79", "123456.789", "inf"},
      {0.3333333333333333, "0.33333334", "0.3333333333333333", "0.3333"},
      {-2.5e-10, "-2.5e-10", "-2.5e-10", "-0.0"},
      {1e+16, "1e+16", "1e+16", "inf"},
  };
  for (const ScalarCase& one : cases) {
    EXPECT_EQ(number_to_string(one.value, true), one.single);
    EXPECT_EQ(number_to_string(one.value, false), one.full);
    EXPECT_EQ(values_to_string(at::scalar_tensor(one.value).to(at::kFloat)), one.single);
    EXPECT_EQ(values_to_string(at::scalar_tensor(one.value, at::kDouble)), one.full);
    EXPECT_EQ(values_to_string(at::scalar_tensor(one.value, at::kDouble).to(at::kHalf)), one.half);
  }
}

TEST(Bfloat16Text, FollowsTheRulesOfFloat16) {
  const auto text = [](std::vector<double> values) {
    return values_to_string(at::tensor(values, at::kDouble).to(at::kBFloat16));
  };
  EXPECT_EQ(text({0.1, 1.5}), "[0.1 1.5]");
  EXPECT_EQ(text({1e3, 2}), "[1.e+03 2.e+00]");
  EXPECT_EQ(values_to_string(at::scalar_tensor(0.1).to(at::kBFloat16)), "0.1");
}

TEST(ComplexText, HasEachEntryAsPythonHasIt) {
  const Tensor parts = at::tensor({1., 2., -0.5, -1e-5, NAN, INFINITY}).view({3, 2});
  EXPECT_EQ(values_to_string(at::view_as_complex(parts)),
            "[       (1+2j) (-0.5-1e-05j)    (nan+infj)]");
  EXPECT_EQ(values_to_string(at::view_as_complex(parts.to(at::kFloat))[1]), "(-0.5-1e-05j)");
}

TEST(MetaText, SaysThatThereIsNothingToPrint) {
  EXPECT_EQ(to_string(at::empty({2}, at::kMeta)),
            "Tensor(<unprintable>, shape=(2,), dtype=float32)");
}

TEST(AtenText, StandsForWhatHasNoPlainEntries) {
  EXPECT_NE(values_to_string(at::eye(2).to_sparse()).find("Sparse"), std::string::npos);
}

}  // namespace
}  // namespace tutti
