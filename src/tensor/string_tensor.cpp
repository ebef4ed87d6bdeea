#include "tutti/tensor/string_tensor.h"

#include <algorithm>
#include <ostream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

std::string sizes_text(const std::vector<int64_t>& sizes) { return "(" + join(sizes, ", ") + ")"; }

/// InvalidArgument for negative sizes or more entries than an int64 counts.
int64_t entries(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count))
      throw InvalidArgument(
          cat("StringTensor: sizes ", sizes_text(sizes), ", expected none below 0"));
  }
  return count;
}

void append_quoted(std::string& text, const std::string& bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  text += "b'";
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else if (c == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte >= 0x7f) {
      text += "\\x";
      text += kHex[byte >> 4];
      text += kHex[byte & 15];
    } else {
      if (c == '\\' || c == '\'') text += '\\';
      text += c;
    }
  }
  text += "'";
}

void append_text(std::string& text, const StringTensor& strings, std::size_t indent) {
  if (strings.dim() == 0) return append_quoted(text, strings.item());
  text += '[';
  for (int64_t i = 0; i < strings.size(0); ++i) {
    if (i > 0 && strings.dim() == 1) text += ' ';
    if (i > 0 && strings.dim() > 1) text.append("\n").append(indent + 1, ' ');
    append_text(text, strings[i], indent + 1);
  }
  text += ']';
}

}  // namespace

StringTensor::StringTensor(std::string scalar)
    : strings_(std::make_shared<const std::vector<std::string>>(1, std::move(scalar))) {}

StringTensor::StringTensor(std::vector<std::string> values)
    : strings_(std::make_shared<const std::vector<std::string>>(std::move(values))),
      count_(static_cast<int64_t>(strings_->size())),
      sizes_{count_} {}

StringTensor::StringTensor(std::vector<std::string> values, std::vector<int64_t> sizes)
    : count_(entries(sizes)), sizes_(std::move(sizes)) {
  if (count_ != static_cast<int64_t>(values.size()))
    throw InvalidArgument(tutti::cat("StringTensor: ", values.size(), " strings for sizes ",
                                     sizes_text(sizes_), ", expected ", count_));
  strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
}

int64_t StringTensor::size(int64_t axis) const {
  const int64_t found = axis < 0 ? axis + dim() : axis;
  if (found < 0 || found >= dim())
    throw OutOfRange(tutti::cat("StringTensor: axis ", axis, " of sizes ", sizes_text(sizes_),
                                ", expected one of ", dim()));
  return sizes_[static_cast<std::size_t>(found)];
}

std::span<const std::string> StringTensor::values() const {
  return std::span(*strings_).subspan(static_cast<std::size_t>(first_),
                                      static_cast<std::size_t>(count_));
}

const std::string& StringTensor::item() const {
  if (count_ != 1)
    throw InvalidArgument(tutti::cat("StringTensor.item: ", count_, " strings of sizes ",
                                     sizes_text(sizes_), ", expected one; use values()"));
  return (*strings_)[static_cast<std::size_t>(first_)];
}

StringTensor StringTensor::part(int64_t first, std::vector<int64_t> sizes) const {
  StringTensor found(*this);
  found.first_ = first;
  found.count_ = entries(sizes);
  found.sizes_ = std::move(sizes);
  return found;
}

int64_t StringTensor::check_index(int64_t index) const {
  if (sizes_.empty())
    throw InvalidArgument("StringTensor: a row of a scalar, expected at least one axis");
  const int64_t found = index < 0 ? index + sizes_[0] : index;
  if (found < 0 || found >= sizes_[0])
    throw OutOfRange(tutti::cat("StringTensor: index ", index, " along an axis of ", sizes_[0],
                                " entries, expected below it"));
  return found;
}

StringTensor StringTensor::operator[](int64_t index) const {
  const int64_t row = check_index(index);
  return part(first_ + row * (count_ / sizes_[0]), {sizes_.begin() + 1, sizes_.end()});
}

StringTensor StringTensor::narrow(int64_t start, int64_t length) const {
  if (sizes_.empty() || start < 0 || length < 0 || start > sizes_[0] - length)
    throw OutOfRange(tutti::cat("StringTensor.narrow: ", length, " rows from ", start, " on of ",
                                sizes_text(sizes_), ", expected rows that are there"));
  std::vector<int64_t> sizes = sizes_;
  const int64_t row = sizes_[0] == 0 ? 0 : count_ / sizes_[0];
  sizes[0] = length;
  return part(first_ + start * row, std::move(sizes));
}

StringTensor StringTensor::index_select(const std::vector<int64_t>& indices) const {
  std::vector<std::string> chosen;
  std::vector<int64_t> sizes = sizes_;
  if (sizes.empty())
    throw InvalidArgument(
        "StringTensor.index_select: rows of a scalar, expected at least one axis");
  const int64_t row = sizes_[0] == 0 ? 0 : count_ / sizes_[0];
  chosen.reserve(indices.size() * static_cast<std::size_t>(row));
  for (int64_t index : indices) {
    const auto from = strings_->begin() + first_ + check_index(index) * row;
    chosen.insert(chosen.end(), from, from + row);
  }
  sizes[0] = static_cast<int64_t>(indices.size());
  return StringTensor(std::move(chosen), std::move(sizes));
}

StringTensor StringTensor::reshape(std::vector<int64_t> sizes) const {
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    *open = 1;
    const int64_t others = entries(sizes);
    *open = others == 0 ? 0 : count_ / others;
  }
  if (entries(sizes) != count_)
    throw InvalidArgument(tutti::cat("StringTensor.reshape: ", sizes_text(sizes), " for ", count_,
                                     " strings, expected as many"));
  return part(first_, std::move(sizes));
}

StringTensor StringTensor::stack(const std::vector<StringTensor>& rows) {
  if (rows.empty()) throw InvalidArgument("StringTensor.stack: no rows, expected at least one");
  std::vector<std::string> values;
  values.reserve(rows.size() * static_cast<std::size_t>(rows[0].numel()));
  for (const StringTensor& row : rows) {
    if (row.sizes_ != rows[0].sizes_)
      throw InvalidArgument(tutti::cat("StringTensor.stack: rows of sizes ",
                                       sizes_text(rows[0].sizes_), " and ", sizes_text(row.sizes_),
                                       ", expected equal ones"));
    values.insert(values.end(), row.values().begin(), row.values().end());
  }
  std::vector<int64_t> sizes = rows[0].sizes_;
  sizes.insert(sizes.begin(), static_cast<int64_t>(rows.size()));
  return StringTensor(std::move(values), std::move(sizes));
}

StringTensor StringTensor::cat(const std::vector<StringTensor>& parts) {
  if (parts.empty()) throw InvalidArgument("StringTensor.cat: no parts, expected at least one");
  std::vector<std::string> values;
  std::vector<int64_t> sizes = parts[0].sizes_;
  if (sizes.empty())
    throw InvalidArgument("StringTensor.cat: scalars, expected at least one axis; use stack");
  sizes[0] = 0;
  for (const StringTensor& part : parts) {
    const bool fits = part.dim() == parts[0].dim() &&
                      std::equal(part.sizes_.begin() + 1, part.sizes_.end(), sizes.begin() + 1);
    if (!fits)
      throw InvalidArgument(tutti::cat("StringTensor.cat: parts of sizes ",
                                       sizes_text(parts[0].sizes_), " and ",
                                       sizes_text(part.sizes_), ", expected equal rows"));
    sizes[0] += part.sizes_[0];
    values.insert(values.end(), part.values().begin(), part.values().end());
  }
  return StringTensor(std::move(values), std::move(sizes));
}

bool StringTensor::operator==(const StringTensor& other) const {
  return sizes_ == other.sizes_ && std::ranges::equal(values(), other.values());
}

std::string to_string(const StringTensor& strings) {
  std::string text;
  append_text(text, strings, 0);
  return text;
}

std::ostream& operator<<(std::ostream& out, const StringTensor& strings) {
  return out << to_string(strings);
}

}  // namespace tutti
