#include "rpc/message.h"

#include <algorithm>
#include <cstring>

#include "rpc/limits.h"
#include "tutti/base/text.h"
#include "tutti/remote.pb.h"

namespace tutti::rpc {
namespace {

// Field 1 and field 2 of Message, both of a declared length.
constexpr char kHeaderTag = 0x0a;
constexpr char kDataTag = 0x12;

void append_varint(uint64_t value, std::string& bytes) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
}

[[noreturn]] void refuse(const std::string& found) {
  throw InvalidArgument(
      cat("remote message: ", found, "; the two sides must be of the same version of the library"));
}

uint64_t read_varint(PieceReader& reader) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    unsigned char byte = 0;
    reader.read(&byte, 1);
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  refuse("a length of more than 64 bits, expected one of a field");
}

void read_tag(PieceReader& reader, char expected, const char* field) {
  char tag = 0;
  reader.read(&tag, 1);
  if (tag != expected) refuse(cat("another field, expected ", field));
}

remote::v1::Header header_of(const Message& message) {
  remote::v1::Header header;
  header.set_method(message.method);
  for (const MessageNode& node : message.nodes) {
    auto* out = header.add_nodes();
    out->set_kind(static_cast<remote::v1::Node::Kind>(node.kind));
    out->set_items(node.items);
    for (const std::string& key : node.keys) out->add_keys(key);
    out->set_dtype(node.dtype);
    for (int64_t size : node.shape) out->add_shape(size);
    out->set_bytes(node.bytes);
  }
  if (message.failure) {
    auto* failure = header.mutable_failure();
    failure->set_code(static_cast<int>(message.failure->code));
    failure->set_message(message.failure->message.substr(0, kMostFailureText));
  }
  return header;
}

MessageNode node_of(const remote::v1::Node& in) {
  MessageNode node;
  if (!remote::v1::Node::Kind_IsValid(in.kind())) refuse(cat("a node of kind ", in.kind()));
  node.kind = static_cast<NodeKind>(in.kind());
  node.items = in.items();
  node.keys.assign(in.keys().begin(), in.keys().end());
  node.dtype = in.dtype();
  node.shape.assign(in.shape().begin(), in.shape().end());
  node.bytes = in.bytes();
  const bool inner =
      node.kind == NodeKind::kTuple || node.kind == NodeKind::kList || node.kind == NodeKind::kMap;
  const bool held = node.kind == NodeKind::kTensor || node.kind == NodeKind::kStrings;
  if (!inner && node.items != 0) refuse("children of a leaf");
  if (node.keys.size() != (node.kind == NodeKind::kMap ? node.items : 0))
    refuse("keys that do not fit the children, expected one for each child of a map");
  if (std::adjacent_find(node.keys.begin(), node.keys.end(), std::greater_equal<>()) !=
      node.keys.end())
    refuse("keys of a map that do not ascend");
  if (!held && (!node.shape.empty() || node.bytes != 0)) refuse("a shape of what has none");
  if (node.kind != NodeKind::kTensor && !node.dtype.empty()) refuse("a dtype of what has none");
  return node;
}

/// One nest, depth first, not too deep, whose parts of the data are all of it.
void check_nodes(const std::vector<MessageNode>& nodes, std::size_t data_bytes) {
  std::vector<uint32_t> open;  // children still to come, from the outermost on
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    while (!open.empty() && open.back() == 0) open.pop_back();
    if (open.empty() && i > 0) refuse("nodes behind the nest's end");
    if (!open.empty()) --open.back();
    if (nodes[i].items > nodes.size() - i - 1) refuse("fewer nodes than children");
    if (nodes[i].items > 0) open.push_back(nodes[i].items);
    if (open.size() > kDeepestNest) refuse(cat("a nest deeper than ", kDeepestNest));
    if (nodes[i].bytes > data_bytes - bytes)
      refuse(cat("tensors of more bytes than the ", data_bytes, " of the data"));
    bytes += nodes[i].bytes;
  }
  for (uint32_t missing : open) {
    if (missing != 0) refuse("fewer nodes than children");
  }
  if (bytes != data_bytes)
    refuse(cat("tensors of ", bytes, " bytes in all, expected the ", data_bytes, " of the data"));
}

}  // namespace

std::size_t size_of(const Pieces& pieces) {
  std::size_t size = 0;
  for (const Piece& piece : pieces) size += piece.size;
  return size;
}

Piece piece_of(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  return Piece{owner->data(), owner->size(), owner};
}

Pieces encode_message(const Message& message, const std::string& operation) {
  const std::string header = header_of(message).SerializeAsString();
  const std::size_t data_bytes = size_of(message.data);
  if (header.size() > kMostHeaderBytes) {
    throw ResourceExhausted(cat(operation, ": a nest whose description takes ", header.size(),
                                " bytes, expected at most ", kMostHeaderBytes,
                                "; stack its tensors, or send them by several calls"));
  }
  std::string front(1, kHeaderTag);
  append_varint(header.size(), front);
  front += header;
  front.push_back(kDataTag);
  append_varint(data_bytes, front);
  if (front.size() + data_bytes > static_cast<std::size_t>(kMostMessageBytes)) {
    throw ResourceExhausted(cat(operation, ": a message of ", front.size() + data_bytes,
                                " bytes, expected at most ", kMostMessageBytes,
                                "; send the tensors in parts"));
  }
  Pieces pieces;
  pieces.reserve(message.data.size() + 1);
  pieces.push_back(piece_of(std::move(front)));
  for (const Piece& piece : message.data) {
    if (piece.size > 0) pieces.push_back(piece);
  }
  return pieces;
}

Message decode_message(const Pieces& bytes) {
  PieceReader reader(bytes);
  read_tag(reader, kHeaderTag, "the header");
  const uint64_t header_bytes = read_varint(reader);
  if (header_bytes > kMostHeaderBytes) {
    throw ResourceExhausted(cat("remote message: a header of ", header_bytes,
                                " bytes, expected at most ", kMostHeaderBytes));
  }
  if (header_bytes > reader.left()) refuse("a header that ends behind the message");
  std::string header_text(header_bytes, '\0');
  reader.read(header_text.data(), header_bytes);
  remote::v1::Header header;
  if (!header.ParseFromString(header_text)) refuse("a damaged header");
  read_tag(reader, kDataTag, "the data");
  const uint64_t data_bytes = read_varint(reader);
  if (data_bytes != reader.left())
    refuse(cat("data of ", reader.left(), " bytes, expected ", data_bytes));

  Message message;
  message.method = header.method();
  message.nodes.reserve(header.nodes_size());
  for (const auto& node : header.nodes()) message.nodes.push_back(node_of(node));
  check_nodes(message.nodes, data_bytes);
  if (header.has_failure()) {
    const int code = header.failure().code();
    const bool known =
        code > 0 && code <= static_cast<int>(ErrorCode::kUnauthenticated) && code != 2;
    message.failure = {known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal,
                       header.failure().message()};
  }
  std::size_t skipped = size_of(bytes) - data_bytes;
  for (const Piece& piece : bytes) {
    const std::size_t front = std::min(skipped, piece.size);
    skipped -= front;
    if (piece.size > front)
      message.data.push_back({piece.data + front, piece.size - front, piece.owner});
  }
  return message;
}

std::size_t PieceReader::left() const {
  std::size_t left = 0;
  for (std::size_t i = piece_; i < pieces_.size(); ++i) left += pieces_[i].size;
  return left - offset_;
}

void PieceReader::read(void* to, std::size_t size) {
  auto* out = static_cast<char*>(to);
  while (size > 0) {
    if (piece_ == pieces_.size()) refuse("fewer bytes than were declared");
    const Piece& piece = pieces_[piece_];
    const std::size_t part = std::min(size, piece.size - offset_);
    if (out != nullptr && part > 0) {
      std::memcpy(out, piece.data + offset_, part);
      out += part;
    }
    size -= part;
    offset_ += part;
    if (offset_ == piece.size) {
      ++piece_;
      offset_ = 0;
    }
  }
}

}  // namespace tutti::rpc
