// NumPy's rules (numpy/_core/arrayprint.py, 2.3 and later). An array of floats is positional unless
// its largest magnitude reaches a limit of the dtype, its smallest nonzero one is below 1e-4, or
// their ratio is above 1000; at most 8 digits stand behind the point; entries have one width.
// Above 1000 entries only the three at each end of a dimension are shown, and only those count.

#include "tutti/tensor/printing.h"

#include <cmath>
#include <ostream>

#include "tensor/float_text.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {
namespace {

constexpr int kPrecision = 8;
constexpr int kAllDigits = 400;
constexpr int64_t kThreshold = 1000;
constexpr int64_t kEdge = 3;
constexpr std::size_t kLineWidth = 75;
constexpr const char* kSummary = "...";

std::string special_text(double value) {
  return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

/// From here on a scalar has an exponent: 10 to the decimal digits that the dtype is sure to hold.
double scalar_limit(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e16;
  return dtype == at::kHalf || dtype == at::kBFloat16 ? 1e3 : 1e6;
}

std::string scalar_text(double value, at::ScalarType dtype) {
  if (!std::isfinite(value)) return special_text(value);
  const double magnitude = std::abs(value);
  if (magnitude == 0 || (magnitude >= 1e-4 && magnitude < scalar_limit(dtype))) {
    const std::string text = internal::positional_text(value, dtype, kAllDigits);
    return text.back() == '.' ? text + "0" : text;
  }
  auto [mantissa, exponent] = internal::scientific_text(value, dtype, kAllDigits);
  if (mantissa.back() == '.') mantissa.pop_back();
  return mantissa + "e" + exponent;
}

/// `(1+2j)`, as Python has it.
std::string complex_text(c10::complex<double> value, at::ScalarType dtype) {
  const auto part = [&](double number) {
    const std::string text = scalar_text(number, dtype);
    return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
  };
  const std::string imaginary = part(value.imag());
  return cat("(", part(value.real()), imaginary[0] == '-' ? "" : "+", imaginary, "j)");
}

/// The comparisons are made in the dtype, as NumPy makes them: the float nearest to 1e-4 is below
/// 1e-4 but not below itself.
bool needs_exponent(const std::vector<double>& values, at::ScalarType dtype) {
  double largest = 0;
  double smallest = INFINITY;
  for (double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    largest = std::max(largest, std::abs(value));
    smallest = std::min(smallest, std::abs(value));
  }
  if (largest == 0) return false;
  return largest >= std::min(1e8, scalar_limit(dtype)) ||
         smallest < internal::round_to_dtype(1e-4, dtype) ||
         internal::round_to_dtype(largest / smallest, dtype) > 1000;
}

void align_right(std::vector<std::string>& texts, std::size_t width = 0) {
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
}

std::vector<std::string> positional_texts(const std::vector<double>& values, at::ScalarType dtype) {
  std::vector<std::string> texts;
  std::vector<std::size_t> fractions;
  for (double value : values) {
    texts.push_back(std::isfinite(value) ? internal::positional_text(value, dtype, kPrecision)
                                         : special_text(value));
    fractions.push_back(texts.back().size() -
                        std::min(texts.back().size(), texts.back().find('.')));
  }
  const std::size_t widest = *std::max_element(fractions.begin(), fractions.end());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (std::isfinite(values[i])) texts[i].append(widest - fractions[i], ' ');
  }
  return texts;
}

std::vector<std::string> exponent_texts(const std::vector<double>& values, at::ScalarType dtype) {
  int fraction = 0;
  std::size_t exponent = 0;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    const auto [mantissa, power] = internal::scientific_text(value, dtype, kPrecision);
    fraction = std::max(fraction, static_cast<int>(mantissa.size() - mantissa.find('.')) - 1);
    exponent = std::max(exponent, power.size());
  }
  std::vector<std::string> texts;
  for (double value : values) {
    if (!std::isfinite(value)) {
      texts.push_back(special_text(value));
      continue;
    }
    auto [mantissa, power] = internal::scientific_text(value, dtype, fraction, fraction);
    power.insert(1, exponent - std::min(exponent, power.size()), '0');
    texts.push_back(mantissa + "e" + power);
  }
  return texts;
}

/// What is printed of the tensor, in order: all of it, or its corners.
Tensor shown_part(Tensor tensor) {
  if (tensor.numel() <= kThreshold) return tensor;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const int64_t size = tensor.size(dim);
    if (size <= 2 * kEdge) continue;
    tensor = at::cat({tensor.narrow(dim, 0, kEdge), tensor.narrow(dim, size - kEdge, kEdge)}, dim);
  }
  return tensor;
}

template <class Value>
std::vector<Value> to_vector(const Tensor& tensor, at::ScalarType dtype) {
  const Tensor values = tensor.to(at::kCPU, dtype).contiguous();
  const Value* data = values.const_data_ptr<Value>();
  return std::vector<Value>(data, data + values.numel());
}

/// Texts of all entries of `tensor`.
std::vector<std::string> entry_texts(const Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  std::vector<std::string> texts;
  if (tensor.is_floating_point()) {
    const auto values = to_vector<double>(tensor, at::kDouble);
    if (tensor.dim() == 0) return {scalar_text(values[0], dtype)};
    texts = needs_exponent(values, dtype) ? exponent_texts(values, dtype)
                                          : positional_texts(values, dtype);
    align_right(texts);
  } else if (tensor.is_complex()) {
    for (auto value : to_vector<c10::complex<double>>(tensor, at::kComplexDouble)) {
      texts.push_back(complex_text(value, c10::toRealValueType(dtype)));
    }
    align_right(texts);
  } else if (dtype == at::kBool) {
    for (uint8_t value : to_vector<uint8_t>(tensor, at::kByte)) {
      texts.push_back(value ? "True" : "False");
    }
    align_right(texts, tensor.dim() == 0 ? 0 : 5);
  } else if (dtype == at::kUInt64) {
    for (uint64_t value : to_vector<uint64_t>(tensor, at::kUInt64)) {
      texts.push_back(std::to_string(value));
    }
    align_right(texts);
  } else {
    for (int64_t value : to_vector<int64_t>(tensor, at::kLong)) {
      texts.push_back(std::to_string(value));
    }
    align_right(texts);
  }
  return texts;
}

/// Puts the texts of a tensor's entries into brackets and lines.
class ArrayLayout {
 public:
  ArrayLayout(at::IntArrayRef sizes, bool summarise, std::vector<std::string> texts)
      : sizes_(sizes), summarise_(summarise), texts_(std::move(texts)) {}

  /// The sub-array from dimension `dim` on of the entries that come next; dim + 1 blanks are in
  /// front of what it puts on further lines.
  std::string format(std::size_t dim = 0) {
    if (dim == sizes_.size()) return texts_[next_++];
    if (dim + 1 == sizes_.size()) return format_row(dim);
    const bool gap = has_gap(dim);
    const std::string separator =
        std::string(sizes_.size() - dim - 1, '\n') + std::string(dim + 1, ' ');
    const int64_t num_shown = gap ? 2 * kEdge : sizes_[dim];
    std::string text = "[";
    for (int64_t i = 0; i < num_shown; ++i) {
      if (i > 0) text += separator;
      if (gap && i == kEdge) text += kSummary + separator;
      text += format(dim + 1);
    }
    return text + "]";
  }

 private:
  bool has_gap(std::size_t dim) const { return summarise_ && sizes_[dim] > 2 * kEdge; }

  std::string format_row(std::size_t dim) {
    const bool gap = has_gap(dim);
    const int64_t num_shown = gap ? 2 * kEdge : sizes_[dim];
    const std::string indent(dim + 1, ' ');
    // Room for the closing brackets of all dimensions is kept free on every line.
    const std::size_t width = kLineWidth - std::min(kLineWidth, dim + 1);
    std::string text, line = indent;
    const auto add = [&](const std::string& word) {
      if (line.size() + word.size() > width && line.size() > indent.size()) {
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        line = indent;
      }
      line += word + " ";
    };
    for (int64_t i = 0; i < num_shown; ++i) {
      if (gap && i == kEdge) add(kSummary);
      add(texts_[next_++]);
    }
    line.pop_back();
    return "[" + (text + line).substr(indent.size()) + "]";
  }

  at::IntArrayRef sizes_;
  bool summarise_;
  std::vector<std::string> texts_;
  std::size_t next_ = 0;
};

bool has_plain_entries(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_quantized();
}

}  // namespace

std::string number_to_string(double value, bool single_precision) {
  return single_precision ? scalar_text(static_cast<float>(value), at::kFloat)
                          : scalar_text(value, at::kDouble);
}

std::string values_to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (tensor.is_meta()) return "<unprintable>";
  if (!has_plain_entries(tensor)) return cat(tensor);
  if (tensor.numel() == 0) return "[]";
  const bool summarise = tensor.numel() > kThreshold;
  return ArrayLayout(tensor.sizes(), summarise, entry_texts(shown_part(tensor.detach()))).format();
}

namespace {

std::string described(const std::string& values, at::IntArrayRef sizes, at::ScalarType dtype) {
  const bool several_lines = values.find('\n') != std::string::npos;
  return cat("Tensor(", several_lines ? "\n" : "", values, ", shape=", shape_text(sizes),
             ", dtype=", dtype_name(dtype), ")");
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "Tensor(undefined)";
  return described(values_to_string(tensor), tensor.sizes(), tensor.scalar_type());
}

std::string to_string(const Nest& nest) {
  return layout_nest_text(
      nest.map_parts<NestOf<std::string>>([](const Nest& part) -> NestOf<std::string> {
        if (part.is_leaf()) return to_string(part.leaf());
        if (part.is_strings()) {
          const StringTensor& strings = part.strings();
          return described(to_string(strings), strings.sizes(), kString);
        }
        return part.kind() == NestKind::kNone ? NestOf<std::string>()
                                              : NestOf<std::string>(part.object());
      }));
}

std::ostream& operator<<(std::ostream& out, const Nest& nest) { return out << to_string(nest); }

}  // namespace tutti
