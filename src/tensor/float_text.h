#pragma once
// A finite floating-point number as decimal text, with the digits that its dtype needs.

#include <c10/core/ScalarType.h>

#include <string>

namespace tutti::internal {

/// `value` without an exponent: "-1.25", "3.", "0.001". There is always a point and never a
/// trailing zero behind it. The digits are the fewest that give the number of `dtype` back; more
/// than `max_fraction` of them behind the point are cut, the number itself rounded half to even.
std::string positional_text(double value, at::ScalarType dtype, int max_fraction);

/// The two parts of "-1.25e-05": "-1.25" (with a point, as above) and "-05" (a sign and at least
/// two digits). Fewer than `min_fraction` digits behind the point are filled up with the next ones
/// of the number itself, not with zeros: 0.1f with 9 is "1.000000015e-01".
struct ScientificText {
  std::string mantissa;
  std::string exponent;
};
ScientificText scientific_text(double value, at::ScalarType dtype, int max_fraction,
                               int min_fraction = 0);

/// `value` rounded to the numbers that `dtype` has.
double round_to_dtype(double value, at::ScalarType dtype);

}  // namespace tutti::internal
