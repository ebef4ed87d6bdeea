#pragma once
// Building of messages: what std::format would do, which g++ 12 lacks.

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The arguments printed one after the other.
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// The parts with `separator` between them.
template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out << separator;
    first = false;
    out << part;
  }
  return out.str();
}

/// A shape as TensorFlow prints it: `(2, 3)`, `(2,)`, `()`; -1 is printed as `None`.
template <class Sizes>
std::string shape_text(const Sizes& sizes) {
  std::ostringstream out;
  out << "(";
  std::size_t rank = 0;
  for (auto size : sizes) {
    if (rank++) out << ", ";
    if (size < 0) {
      out << "None";
    } else {
      out << size;
    }
  }
  out << (rank == 1 ? ",)" : ")");
  return out.str();
}

/// Lower-case copy (ASCII).
std::string to_lower(std::string_view text);

/// The pieces between `separator`s; "" gives one empty piece.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace tutti
