// The wanted texts are NumPy's (2.4) of the same arrays.

#include "tutti/tensor/printing.h"

#include <cmath>

#include "support/expect.h"

namespace tutti {
namespace {

Tensor floats(std::vector<double> values) { return at::tensor(values, at::kFloat); }
Tensor doubles(std::vector<double> values) { return at::tensor(values, at::kDouble); }

TEST(ValuesToString, AlignsIntegers) {
  EXPECT_EQ(values_to_string(at::tensor({1, 20, -300})), "[   1   20 -300]");
  EXPECT_EQ(values_to_string(at::arange(6).view({2, 3}) * 7 - 10),
            "[[-10  -3   4]\n [ 11  18  25]]");
  EXPECT_EQ(values_to_string(at::tensor({255, 0}).to(at::kByte)), "[255   0]");
}

TEST(ValuesToString, AlignsThePointsOfFloats) {
  EXPECT_EQ(values_to_string(floats({1.5, -2.25, 100})), "[  1.5   -2.25 100.  ]");
  EXPECT_EQ(values_to_string(at::full({2, 1}, 0.7)), "[[0.7]\n [0.7]]");
}

TEST(ValuesToString, ShowsTheDigitsThatTheDtypeNeeds) {
  EXPECT_EQ(values_to_string(floats({1. / 3, 2. / 3})), "[0.33333334 0.6666667 ]");
  EXPECT_EQ(values_to_string(doubles({1. / 3, 2. / 3})), "[0.33333333 0.66666667]");
  EXPECT_EQ(values_to_string(floats({0.1, 0.5}).to(at::kHalf)), "[0.1 0.5]");
}

TEST(ValuesToString, HasExponentsForWideRanges) {
  EXPECT_EQ(values_to_string(floats({1e-5, 1})), "[1.e-05 1.e+00]");
  EXPECT_EQ(values_to_string(floats({1e8, -2.5})), "[ 1.0e+08 -2.5e+00]");
  EXPECT_EQ(values_to_string(doubles({0.001, 1001})), "[1.000e-03 1.001e+03]");
  EXPECT_EQ(values_to_string(doubles({1e-100, 1e10})), "[1.e-100 1.e+010]");
}

TEST(ValuesToString, PrintsBooleans) {
  EXPECT_EQ(values_to_string(at::tensor({1, 0}).to(at::kBool)), "[ True False]");
  EXPECT_EQ(values_to_string(at::scalar_tensor(true, at::kBool)), "True");
}

TEST(ValuesToString, PrintsWhatIsNotFinite) {
  EXPECT_EQ(values_to_string(doubles({NAN, 1.5, -INFINITY, INFINITY})), "[ nan  1.5 -inf  inf]");
}

TEST(ValuesToString, WrapsRowsAt75Columns) {
  EXPECT_EQ(values_to_string(at::arange(40)),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39]");
  EXPECT_EQ(values_to_string(at::arange(13).to(at::kDouble).div(12).to(at::kFloat)),
            "[0.         0.08333334 0.16666667 0.25       0.33333334 0.41666666\n"
            " 0.5        0.5833333  0.6666667  0.75       0.8333333  0.9166667\n"
            " 1.        ]");
}

TEST(ValuesToString, SummarisesAbove1000Elements) {
  EXPECT_EQ(values_to_string(at::arange(1001)), "[   0    1    2 ...  998  999 1000]");
  EXPECT_EQ(values_to_string(at::arange(2000).view({50, 40})),
            "[[   0    1    2 ...   37   38   39]\n"
            " [  40   41   42 ...   77   78   79]\n"
            " [  80   81   82 ...  117  118  119]\n"
            " ...\n"
            " [1880 1881 1882 ... 1917 1918 1919]\n"
            " [1920 1921 1922 ... 1957 1958 1959]\n"
            " [1960 1961 1962 ... 1997 1998 1999]]");
  EXPECT_EQ(values_to_string(at::arange(1000)).find("..."), std::string::npos);
}

TEST(ValuesToString, PutsABlankLineBetweenMatrices) {
  EXPECT_EQ(values_to_string(at::arange(8).view({2, 2, 2})),
            "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
}

TEST(ValuesToString, OfNothingIsEmptyBrackets) {
  EXPECT_EQ(values_to_string(at::zeros({0})), "[]");
}

TEST(ValuesToString, SeesThroughViewsAndGradients) {
  EXPECT_EQ(values_to_string(at::arange(4).view({2, 2}).t()), "[[0 2]\n [1 3]]");
  EXPECT_EQ(values_to_string(at::ones({1}).set_requires_grad(true)), "[1.]");
}

TEST(NumberToString, PrintsAsNumPyPrintsScalars) {
  EXPECT_EQ(number_to_string(0.7f, true), "0.7");
  EXPECT_EQ(number_to_string(1, false), "1.0");
  EXPECT_EQ(number_to_string(-0.0, true), "-0.0");
  EXPECT_EQ(number_to_string(1e-5, false), "1e-05");
  EXPECT_EQ(number_to_string(999999, true), "999999.0");
  EXPECT_EQ(number_to_string(1e6, true), "1e+06");
  EXPECT_EQ(number_to_string(123456.5, false), "123456.5");
  EXPECT_EQ(number_to_string(1e16, false), "1e+16");
  EXPECT_EQ(number_to_string(NAN, false), "nan");
  EXPECT_EQ(number_to_string(-INFINITY, true), "-inf");
}

TEST(ToString, SaysShapeAndDtype) {
  EXPECT_EQ(to_string(at::tensor({1, 2}).to(at::kLong)), "Tensor([1 2], shape=(2,), dtype=int64)");
  EXPECT_EQ(to_string(at::scalar_tensor(0.7)), "Tensor(0.7, shape=(), dtype=float32)");
}

TEST(ToString, StartsSeveralLinesOnALineOfTheirOwn) {
  EXPECT_EQ(to_string(at::full({2, 1}, 0.7)),
            "Tensor(\n[[0.7]\n [0.7]], shape=(2, 1), dtype=float32)");
}

TEST(ToString, ShowsAnUndefinedTensor) { EXPECT_EQ(to_string(Tensor()), "Tensor(undefined)"); }

}  // namespace
}  // namespace tutti
