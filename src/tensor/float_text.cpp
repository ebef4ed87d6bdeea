// The standard library has the shortest text of float and double. For the 16-bit types digits are
// added until the text reads back as the same number.

#include "tensor/float_text.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace tutti::internal {
namespace {

// Enough for a double below 1e17 with 17 digits behind the point, and for any with an exponent.
constexpr std::size_t kBufferSize = 400;

template <class... Format>
std::string chars(Format... format) {
  char buffer[kBufferSize];
  return std::string(buffer, std::to_chars(buffer, buffer + kBufferSize, format...).ptr);
}

std::string shortest_scientific(double value, at::ScalarType dtype) {
  constexpr auto kScientific = std::chars_format::scientific;
  if (dtype == at::ScalarType::Double) return chars(value, kScientific);
  if (dtype != at::ScalarType::Half && dtype != at::ScalarType::BFloat16) {
    return chars(static_cast<float>(value), kScientific);
  }
  // Of two texts equally near, one may lie too far below a power of two, where the numbers are
  // denser; the slightly larger number gives the other one.
  const double above = std::nextafter(value, std::copysign(INFINITY, value));
  for (int fraction = 0;; ++fraction) {
    for (double number : {value, above}) {
      const std::string text = chars(number, kScientific, fraction);
      double read = 0;
      std::from_chars(text.data(), text.data() + text.size(), read);
      if (round_to_dtype(read, dtype) == value) return text;
    }
  }
}

void drop_trailing_zeros(std::string& text) {
  while (text.back() == '0') text.pop_back();
}

}  // namespace

double round_to_dtype(double value, at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Double:
      return value;
    case at::ScalarType::Half:
      return static_cast<c10::Half>(static_cast<float>(value));
    case at::ScalarType::BFloat16:
      return static_cast<c10::BFloat16>(static_cast<float>(value));
    default:
      return static_cast<float>(value);
  }
}

ScientificText scientific_text(double value, at::ScalarType dtype, int max_fraction,
                               int min_fraction) {
  std::string text = shortest_scientific(value, dtype);
  const auto point = text.find('.');
  const int fraction =
      point == std::string::npos ? 0 : static_cast<int>(text.find('e') - point - 1);
  if (fraction > max_fraction || fraction < min_fraction) {
    const int wanted = std::clamp(fraction, min_fraction, max_fraction);
    text = chars(value, std::chars_format::scientific, wanted);
  }
  const auto e = text.find('e');
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') == std::string::npos) mantissa += '.';
  if (min_fraction == 0) drop_trailing_zeros(mantissa);
  return {std::move(mantissa), text.substr(e + 1)};
}

std::string positional_text(double value, at::ScalarType dtype, int max_fraction) {
  // The shortest digits d.ddd × 10^exponent with the point moved; to_chars' own fixed format would
  // show all digits of a large float, also those that the float does not need.
  const std::string text = shortest_scientific(value, dtype);
  const auto e = text.find('e');
  const bool negative = text[0] == '-';
  std::string digits = text.substr(negative, e - negative);
  std::erase(digits, '.');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < 0) digits.insert(0, static_cast<std::size_t>(-exponent), '0');
  const std::size_t whole = static_cast<std::size_t>(std::max(exponent, 0)) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  std::string result;
  if (digits.size() - whole > static_cast<std::size_t>(max_fraction)) {
    result = chars(value, std::chars_format::fixed, max_fraction);
  } else {
    result = (negative ? "-" : "") + digits.substr(0, whole) + "." + digits.substr(whole);
  }
  drop_trailing_zeros(result);
  return result;
}

}  // namespace tutti::internal
