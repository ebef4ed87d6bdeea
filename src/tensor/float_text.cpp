// The standard library has the shortest text of float and double. For the 16-bit types digits are
// added until the text reads back as the same number.

#include "tensor/float_text.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <charconv>
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
  for (int fraction = 0;; ++fraction) {
    const std::string text = chars(value, kScientific, fraction);
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (round_to_dtype(read, dtype) == value) return text;
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

ScientificText scientific_text(double value, at::ScalarType dtype, int max_fraction) {
  std::string text = shortest_scientific(value, dtype);
  auto e = text.find('e');
  const auto point = text.find('.');
  if (point != std::string::npos && e - point - 1 > static_cast<std::size_t>(max_fraction)) {
    text = chars(value, std::chars_format::scientific, max_fraction);
    e = text.find('e');
  }
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') == std::string::npos) mantissa += '.';
  drop_trailing_zeros(mantissa);
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
