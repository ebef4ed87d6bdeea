#pragma once
// Tensors of strings, which LibTorch does not have.

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

/// A dense row-major array of byte strings (TensorFlow's dtype `string`): any bytes, no encoding.
/// An immutable value: copies, rows and reshapes share the strings. Safe to read from any thread.
class StringTensor {
 public:
  /// A scalar: the empty string.
  StringTensor() : StringTensor(std::string()) {}
  explicit StringTensor(std::string scalar);
  /// A vector.
  explicit StringTensor(std::vector<std::string> values);
  StringTensor(std::initializer_list<std::string> values)
      : StringTensor(std::vector<std::string>(values)) {}
  /// InvalidArgument when the sizes are negative or do not hold as many values.
  StringTensor(std::vector<std::string> values, std::vector<int64_t> sizes);

  int64_t dim() const { return static_cast<int64_t>(sizes_.size()); }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  /// Negative axes count from the end. OutOfRange for an axis that is not there.
  int64_t size(int64_t axis) const;
  int64_t numel() const { return count_; }
  /// All of them, row by row; valid while this or a copy of it lives.
  std::span<const std::string> values() const;
  /// Of a tensor of one string; InvalidArgument otherwise.
  const std::string& item() const;

  /// Entry `index` along the first axis. OutOfRange; InvalidArgument for a scalar.
  StringTensor operator[](int64_t index) const;
  /// `length` entries of the first axis from `start` on.
  StringTensor narrow(int64_t start, int64_t length) const;
  /// Entries `indices` of the first axis, copied.
  StringTensor index_select(const std::vector<int64_t>& indices) const;
  /// One size may be -1. InvalidArgument when the numbers of strings differ.
  StringTensor reshape(std::vector<int64_t> sizes) const;

  /// Along a new first axis; sizes must agree (InvalidArgument). `rows` must not be empty.
  static StringTensor stack(const std::vector<StringTensor>& rows);
  /// Along the first axis; the other sizes must agree (InvalidArgument).
  static StringTensor cat(const std::vector<StringTensor>& parts);

  bool operator==(const StringTensor& other) const;

 private:
  int64_t check_index(int64_t index) const;
  StringTensor part(int64_t first, std::vector<int64_t> sizes) const;

  std::shared_ptr<const std::vector<std::string>> strings_;
  int64_t first_ = 0;
  int64_t count_ = 1;
  std::vector<int64_t> sizes_;
};

/// NumPy's text: `[b'a' b'b']`, bytes that are not printable as \xNN.
std::ostream& operator<<(std::ostream& out, const StringTensor& strings);
std::string to_string(const StringTensor& strings);

}  // namespace tutti
