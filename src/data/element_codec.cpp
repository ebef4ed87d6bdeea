#include "data/element_codec.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "data/iteration.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::data {
namespace {

enum Tag : char { kNone = 0, kTensor = 1, kStrings = 2, kTuple = 3, kList = 4, kMap = 5 };

constexpr int kDeepest = 64;
constexpr uint64_t kMostDims = 64;

void append_number(uint64_t number, std::string& bytes) {
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
}
void append_text(std::string_view text, std::string& bytes) {
  append_number(text.size(), bytes);
  bytes.append(text);
}
void append_sizes(at::IntArrayRef sizes, std::string& bytes) {
  append_number(sizes.size(), bytes);
  for (int64_t size : sizes) append_number(static_cast<uint64_t>(size), bytes);
}

void append_tensor(const Tensor& leaf, std::string& bytes) {
  if (!leaf.defined() || leaf.layout() != at::kStrided)
    throw InvalidArgument("cache: an element with a tensor that is not dense, expected dense ones");
  const Tensor plain = is_plain(leaf) ? leaf : leaf.cpu().resolve_conj().resolve_neg().contiguous();
  append_text(dtype_name(plain.scalar_type()), bytes);
  append_sizes(plain.sizes(), bytes);
  if (plain.nbytes() > 0)
    bytes.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }

  Nest nest(int depth = 0) {
    if (depth > kDeepest) damaged();
    const char tag = take(1)[0];
    switch (tag) {
      case kNone:
        return {};
      case kTensor:
        return Nest(tensor());
      case kStrings:
        return Nest(strings());
      case kTuple:
      case kList:
      case kMap: {
        std::vector<std::string> keys;
        std::vector<Nest> items;
        for (uint64_t left = count(1); left > 0; --left) {
          if (tag == kMap) {
            std::string key(text());
            if (!keys.empty() && key <= keys.back()) damaged();  // as a nest has them
            keys.push_back(std::move(key));
          }
          items.push_back(nest(depth + 1));
        }
        const NestKind kind = tag == kTuple  ? NestKind::kTuple
                              : tag == kList ? NestKind::kList
                                             : NestKind::kMap;
        return Nest(kind, std::move(keys), std::move(items));
      }
      default:
        damaged();
    }
  }

 private:
  [[noreturn]] static void damaged() {
    throw DataLoss("cached element: bytes that are none, expected those of an element");
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) damaged();
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  uint64_t number() {
    uint64_t number = 0;
    const std::string_view taken = take(8);
    for (std::size_t i = 0; i < 8; ++i)
      number |= static_cast<uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    return number;
  }
  /// Of things that take so many bytes at least.
  uint64_t count(std::size_t least_bytes) {
    const uint64_t count = number();
    if (count > bytes_.size() / least_bytes) damaged();
    return count;
  }
  std::string_view text() { return take(number()); }
  /// And how many entries they make; 0 dimensions make one.
  std::vector<int64_t> sizes(uint64_t& entries) {
    const uint64_t dims = count(8);
    if (dims > kMostDims) damaged();
    entries = 1;
    int64_t extent = 1;  // without the sizes that are 0: the strides must fit too
    std::vector<int64_t> sizes;
    for (uint64_t d = 0; d < dims; ++d) {
      const uint64_t size = number();
      if (size > INT64_MAX || __builtin_mul_overflow(extent, std::max<uint64_t>(size, 1), &extent))
        damaged();
      entries *= size;
      sizes.push_back(static_cast<int64_t>(size));
    }
    return sizes;
  }
  Tensor tensor() {
    at::ScalarType dtype;
    try {
      dtype = dtype_from_name(std::string(text()));
    } catch (const Error&) {
      damaged();
    }
    if (dtype == kString) damaged();
    uint64_t entries = 0, size = 0;
    const std::vector<int64_t> shape = sizes(entries);
    if (__builtin_mul_overflow(entries, c10::elementSize(dtype), &size)) damaged();
    const std::string_view content = take(size);
    // A bool of another byte than 0 or 1 would be undefined behaviour.
    if (dtype == at::kBool &&
        !std::all_of(content.begin(), content.end(), [](char c) { return c == 0 || c == 1; }))
      damaged();
    Tensor tensor = at::empty(shape, dtype);
    if (size > 0) std::memcpy(tensor.data_ptr(), content.data(), size);
    return tensor;
  }
  StringTensor strings() {
    uint64_t entries = 0;
    std::vector<int64_t> shape = sizes(entries);
    if (entries > bytes_.size() / 8) damaged();
    std::vector<std::string> values;
    values.reserve(entries);
    for (uint64_t i = 0; i < entries; ++i) values.emplace_back(text());
    return StringTensor(std::move(values), std::move(shape));
  }

  std::string_view bytes_;
};

}  // namespace

void append_element(const Nest& element, std::string& bytes) {
  switch (element.kind()) {
    case NestKind::kNone:
      bytes.push_back(kNone);
      return;
    case NestKind::kLeaf:
      bytes.push_back(kTensor);
      return append_tensor(element.leaf(), bytes);
    case NestKind::kStrings:
      bytes.push_back(kStrings);
      append_sizes(element.strings().sizes(), bytes);
      for (const std::string& text : element.strings().values()) append_text(text, bytes);
      return;
    case NestKind::kObject:
      throw InvalidArgument(cat("cache: an element with ", element.structure(),
                                " in it, expected tensors and strings; cache in front of window"));
    case NestKind::kTuple:
    case NestKind::kList:
    case NestKind::kMap:
      bytes.push_back(element.kind() == NestKind::kTuple  ? kTuple
                      : element.kind() == NestKind::kList ? kList
                                                          : kMap);
      append_number(element.size(), bytes);
      for (std::size_t i = 0; i < element.size(); ++i) {
        if (element.kind() == NestKind::kMap) append_text(element.keys()[i], bytes);
        append_element(element.items()[i], bytes);
      }
  }
}

Nest element_of(std::string_view bytes) {
  Reader reader(bytes);
  Nest element = reader.nest();
  if (!reader.at_end())
    throw DataLoss("cached element: bytes behind its end, expected those of one element");
  return element;
}

}  // namespace tutti::data
