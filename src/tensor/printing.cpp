// NumPy's rules. A column of floats is positional unless its largest magnitude is 1e8 or more, its
// smallest nonzero one below 1e-4, or their ratio above 1000; digits are the fewest that give the
// number back, at most 8 behind the point; columns are aligned.

#include "tutti/tensor/printing.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {
namespace {

constexpr int kPrecision = 8;
constexpr int64_t kThreshold = 1000;
constexpr int64_t kEdge = 3;
constexpr std::size_t kLineWidth = 75;

std::string shortest(double value, bool single, std::chars_format format) {
  char buffer[512];
  const auto end =
      single ? std::to_chars(buffer, buffer + sizeof(buffer), static_cast<float>(value), format).ptr
             : std::to_chars(buffer, buffer + sizeof(buffer), value, format).ptr;
  return std::string(buffer, end);
}

/// Digits behind the point are cut to kPrecision (rounded), trailing zeros dropped; there is always
/// a point.
std::string positional(double value, bool single) {
  std::string text = shortest(value, single, std::chars_format::fixed);
  auto point = text.find('.');
  if (point != std::string::npos &&
      text.size() - point - 1 > static_cast<std::size_t>(kPrecision)) {
    char buffer[512];
    std::snprintf(buffer, sizeof(buffer), "%.*f", kPrecision, value);
    text = buffer;
    while (text.back() == '0') text.pop_back();
  }
  if (text.find('.') == std::string::npos) text += '.';
  return text;
}

struct Scientific {
  std::string mantissa;  // "-1.25" or "1."
  std::string exponent;  // "e-05"
};
Scientific scientific(double value, bool single) {
  std::string text = shortest(value, single, std::chars_format::scientific);
  auto e = text.find('e');
  std::string mantissa = text.substr(0, e);
  const auto point = mantissa.find('.');
  if (point != std::string::npos &&
      mantissa.size() - point - 1 > static_cast<std::size_t>(kPrecision)) {
    char buffer[64];
    std::snprintf(buffer, sizeof(buffer), "%.*e", kPrecision, value);
    text = buffer;
    e = text.find('e');
    mantissa = text.substr(0, e);
    while (mantissa.back() == '0') mantissa.pop_back();
  }
  if (mantissa.find('.') == std::string::npos) mantissa += '.';
  return {mantissa, text.substr(e)};
}

std::string special(double value) { return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf"; }

/// Texts of floats, all of one width.
std::vector<std::string> format_floats(const std::vector<double>& values, bool single) {
  double largest = 0;
  double smallest = INFINITY;
  for (double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    largest = std::max(largest, std::abs(value));
    smallest = std::min(smallest, std::abs(value));
  }
  const bool exponential =
      largest > 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
  std::vector<std::string> left(values.size()), right(values.size()), tail(values.size());
  std::size_t left_width = 0, right_width = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    std::string text;
    if (exponential) {
      auto [mantissa, exponent] = scientific(values[i], single);
      text = mantissa;
      tail[i] = exponent;
    } else {
      text = positional(values[i], single);
    }
    const auto point = text.find('.');
    left[i] = text.substr(0, point);
    right[i] = text.substr(point + 1);
    left_width = std::max(left_width, left[i].size());
    right_width = std::max(right_width, right[i].size());
  }
  std::vector<std::string> texts(values.size());
  std::size_t width = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      texts[i] = special(values[i]);
    } else {
      const std::string pad(right_width - right[i].size(), exponential ? '0' : ' ');
      texts[i] =
          std::string(left_width - left[i].size(), ' ') + left[i] + "." + right[i] + pad + tail[i];
    }
    width = std::max(width, texts[i].size());
  }
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

std::vector<std::string> format_aligned(std::vector<std::string> texts) {
  std::size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

/// Index of the entries that are printed, per dimension: all, or the edges when the array is
/// summarised (-1 stands for `...`).
std::vector<int64_t> shown(int64_t size, bool summarise) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < size; ++i) {
    if (summarise && size > 2 * kEdge && i == kEdge) {
      indices.push_back(-1);
      i = size - kEdge;
    }
    indices.push_back(i);
  }
  return indices;
}

class ArrayPrinter {
 public:
  explicit ArrayPrinter(const Tensor& tensor)
      : tensor_(tensor.detach().cpu()), summarise_(tensor.numel() > kThreshold) {}

  std::string print() {
    collect(tensor_, 0);
    if (tensor_.is_floating_point()) {
      texts_ = format_floats(values_, tensor_.scalar_type() != at::kDouble);
    } else if (tensor_.scalar_type() == at::kBool) {
      for (double value : values_) texts_.push_back(value != 0 ? "True" : "False");
      texts_ = format_aligned(std::move(texts_));
    } else {
      for (int64_t value : integers_) texts_.push_back(std::to_string(value));
      texts_ = format_aligned(std::move(texts_));
    }
    return format(0, " ", 0);
  }

 private:
  void collect(const Tensor& part, int64_t dim) {
    if (part.dim() == 0) {
      if (part.is_floating_point() || part.scalar_type() == at::kBool) {
        values_.push_back(part.to(at::kDouble).item<double>());
      } else {
        integers_.push_back(part.item<int64_t>());
      }
      return;
    }
    for (int64_t i : shown(part.size(0), summarise_)) {
      if (i >= 0) collect(part.select(0, i), dim + 1);
    }
  }

  std::string format(int64_t dim, const std::string& indent, std::size_t closing) {
    const int64_t left = tensor_.dim() - dim;
    if (left == 0) return texts_[next_++];
    const auto indices = shown(tensor_.size(dim), summarise_);
    if (left == 1) return format_row(indices, indent, closing + 1);
    std::string text = "[";
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (i) text += std::string(static_cast<std::size_t>(left - 1), '\n') + indent;
      text += indices[i] < 0 ? "..." : format(dim + 1, indent + " ", closing + 1);
    }
    return text + "]";
  }

  std::string format_row(const std::vector<int64_t>& indices, const std::string& indent,
                         std::size_t closing) {
    std::string text = "[";
    std::size_t column = indent.size();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::string word = indices[i] < 0 ? "..." : texts_[next_++];
      const std::size_t limit = kLineWidth - (i + 1 == indices.size() ? closing : 0);
      if (i) {
        if (column + 1 + word.size() > limit) {
          text += "\n" + indent;
          column = indent.size();
        } else {
          text += " ";
          ++column;
        }
      }
      text += word;
      column += word.size();
    }
    return text + "]";
  }

  Tensor tensor_;
  bool summarise_;
  std::vector<double> values_;
  std::vector<int64_t> integers_;
  std::vector<std::string> texts_;
  std::size_t next_ = 0;
};

}  // namespace

std::string number_to_string(double value, bool single_precision) {
  if (!std::isfinite(value)) return special(value);
  const double magnitude = std::abs(value);
  if (magnitude != 0 && (magnitude >= 1e16 || magnitude < 1e-4)) {
    const std::string text = shortest(value, single_precision, std::chars_format::scientific);
    return text;
  }
  std::string text = shortest(value, single_precision, std::chars_format::fixed);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string values_to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (tensor.dim() > 0) {
    if (tensor.numel() == 0) return "[]";
    return ArrayPrinter(tensor).print();
  }
  if (tensor.is_floating_point())
    return number_to_string(tensor.item<double>(), tensor.scalar_type() != at::kDouble);
  if (tensor.scalar_type() == at::kBool) return tensor.item<bool>() ? "True" : "False";
  return std::to_string(tensor.item<int64_t>());
}

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "Tensor(undefined)";
  return cat("Tensor(", tensor.dim() >= 2 ? "\n" : "", values_to_string(tensor),
             ", shape=", shape_text(tensor.sizes()), ", dtype=", dtype_name(tensor.scalar_type()),
             ")");
}

}  // namespace tutti
