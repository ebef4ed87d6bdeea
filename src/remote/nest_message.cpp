#include "remote/nest_message.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::remote {
namespace {

constexpr std::size_t kMostDims = 64;
constexpr std::size_t kLengthBytes = 8;  // in front of each string's bytes

[[noreturn]] void refuse(const std::string& found) {
  throw InvalidArgument(cat("remote message: ", found));
}

/// Whether nobody else can write its memory.
bool is_sole(const Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

Tensor sendable(Tensor tensor, const std::string& operation, Sharing sharing) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw InvalidArgument(cat(
        operation, ": ", !tensor.defined() ? "an undefined tensor" : "a tensor that is not dense",
        ", expected dense ones; send the parts that it is made of"));
  }
  if (tensor.requires_grad()) tensor = tensor.detach();
  const bool plain =
      tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (!plain) return tensor.cpu().resolve_conj().resolve_neg().contiguous();
  return sharing == Sharing::kCopy ? tensor.clone() : tensor;
}

void append_tensor(const Tensor& leaf, const std::string& operation, Sharing sharing,
                   rpc::Message& message) {
  if (sharing == Sharing::kCopy && leaf.defined() && is_sole(leaf)) sharing = Sharing::kKeep;
  const auto owner = std::make_shared<const Tensor>(sendable(leaf, operation, sharing));
  rpc::MessageNode node;
  node.kind = rpc::NodeKind::kTensor;
  node.dtype = dtype_name(owner->scalar_type());
  node.shape = owner->sizes().vec();
  node.bytes = owner->nbytes();
  if (node.bytes > 0)
    message.data.push_back({static_cast<const char*>(owner->const_data_ptr()), node.bytes, owner});
  message.nodes.push_back(std::move(node));
}

void append_strings(const StringTensor& strings, rpc::Message& message) {
  std::string bytes;
  for (const std::string& text : strings.values()) {
    for (std::size_t i = 0; i < kLengthBytes; ++i)
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i)));
  }
  for (const std::string& text : strings.values()) bytes += text;
  rpc::MessageNode node;
  node.kind = rpc::NodeKind::kStrings;
  node.shape = strings.sizes();
  node.bytes = bytes.size();
  message.data.push_back(rpc::piece_of(std::move(bytes)));
  message.nodes.push_back(std::move(node));
}

class Reader {
 public:
  explicit Reader(const rpc::Message& message) : message_(message), data_(message.data) {}

  Nest next() {
    if (at_ == message_.nodes.size()) refuse("no nest");
    const rpc::MessageNode& node = message_.nodes[at_++];
    switch (node.kind) {
      case rpc::NodeKind::kNone:
        return {};
      case rpc::NodeKind::kTensor:
        return Nest(tensor(node));
      case rpc::NodeKind::kStrings:
        return Nest(strings(node));
      default:
        break;
    }
    std::vector<Nest> items;
    items.reserve(node.items);
    for (uint32_t i = 0; i < node.items; ++i) items.push_back(next());
    const NestKind kind = node.kind == rpc::NodeKind::kTuple  ? NestKind::kTuple
                          : node.kind == rpc::NodeKind::kList ? NestKind::kList
                                                              : NestKind::kMap;
    return Nest(kind, node.keys, std::move(items));
  }

 private:
  /// The number of entries.
  static uint64_t entries_of(const rpc::MessageNode& node) {
    if (node.shape.size() > kMostDims)
      refuse(cat("a tensor of ", node.shape.size(), " dimensions, expected at most ", kMostDims));
    uint64_t entries = 1;
    int64_t extent = 1;  // without the sizes that are 0: the strides must fit too
    for (int64_t size : node.shape) {
      if (size < 0 || __builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent))
        refuse(cat("a tensor of shape ", shape_text(node.shape), ", which cannot be"));
      entries *= static_cast<uint64_t>(size);
    }
    return entries;
  }

  Tensor tensor(const rpc::MessageNode& node) {
    at::ScalarType dtype = kString;
    try {
      dtype = dtype_from_name(node.dtype);
    } catch (const Error&) {
    }
    if (dtype == kString) refuse("a dtype that is not known, expected TensorFlow's name of one");
    uint64_t size = 0;
    if (__builtin_mul_overflow(entries_of(node), c10::elementSize(dtype), &size) ||
        size != node.bytes) {
      refuse(cat("a tensor of shape ", shape_text(node.shape), " and dtype ", node.dtype, " in ",
                 node.bytes, " bytes, which do not fit"));
    }
    Tensor tensor = at::empty(node.shape, dtype);
    if (size == 0) return tensor;
    data_.read(tensor.data_ptr(), size);
    if (dtype == at::kBool) check_bools(tensor, size);
    return tensor;
  }
  /// A bool of another byte than 0 or 1 would be undefined behaviour.
  static void check_bools(const Tensor& tensor, uint64_t size) {
    const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    if (std::any_of(bytes, bytes + size, [](unsigned char byte) { return byte > 1; }))
      refuse("a bool that is neither 0 nor 1");
  }

  StringTensor strings(const rpc::MessageNode& node) {
    const uint64_t entries = entries_of(node);
    if (entries > node.bytes / kLengthBytes) refuse("more strings than bytes");
    std::vector<uint64_t> lengths(entries);
    uint64_t left = node.bytes - entries * kLengthBytes;
    for (uint64_t& length : lengths) {
      unsigned char bytes[kLengthBytes];
      data_.read(bytes, kLengthBytes);
      length = 0;
      for (std::size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t{bytes[i]} << (8 * i);
      if (length > left) refuse("strings of more bytes than there are");
      left -= length;
    }
    if (left != 0) refuse("strings of fewer bytes than there are");
    std::vector<std::string> values(entries);
    for (uint64_t i = 0; i < entries; ++i) {
      values[i].resize(lengths[i]);
      data_.read(values[i].data(), lengths[i]);
    }
    return StringTensor(std::move(values), node.shape);
  }

  const rpc::Message& message_;
  rpc::PieceReader data_;
  std::size_t at_ = 0;
};

}  // namespace

void append_nest(const Nest& nest, const std::string& operation, Sharing sharing,
                 rpc::Message& message) {
  rpc::MessageNode node;
  switch (nest.kind()) {
    case NestKind::kLeaf:
      return append_tensor(nest.leaf(), operation, sharing, message);
    case NestKind::kStrings:
      return append_strings(nest.strings(), message);
    case NestKind::kObject:
      throw InvalidArgument(cat(operation, ": ", nest.structure(),
                                ", expected tensors and strings; make the dataset on the server"));
    case NestKind::kNone:
      break;
    case NestKind::kTuple:
      node.kind = rpc::NodeKind::kTuple;
      break;
    case NestKind::kList:
      node.kind = rpc::NodeKind::kList;
      break;
    case NestKind::kMap:
      node.kind = rpc::NodeKind::kMap;
      node.keys = nest.keys();
      break;
  }
  node.items = static_cast<uint32_t>(nest.size());
  message.nodes.push_back(std::move(node));
  for (const Nest& item : nest.items()) append_nest(item, operation, sharing, message);
}

Nest nest_of(const rpc::Message& message) { return Reader(message).next(); }

}  // namespace tutti::remote
