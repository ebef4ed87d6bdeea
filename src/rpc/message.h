#pragma once
// Messages of remote.proto without copies of what they carry: the bytes of tensors are pieces of
// memory that others own. No LibTorch, no gRPC.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::rpc {

/// Bytes, and what keeps them where they are.
struct Piece {
  const char* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> owner;
};
/// Bytes one after another.
using Pieces = std::vector<Piece>;

std::size_t size_of(const Pieces& pieces);
/// A piece that owns its bytes.
Piece piece_of(std::string bytes);

/// What of a nest stands at one place.
enum class NodeKind : uint8_t { kNone, kTensor, kStrings, kTuple, kList, kMap };

struct MessageNode {
  NodeKind kind = NodeKind::kNone;
  uint32_t items = 0;
  std::vector<std::string> keys;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

struct MessageFailure {
  ErrorCode code;
  std::string message;
};

/// One call or one reply.
struct Message {
  std::string method;
  std::vector<MessageNode> nodes;
  std::optional<MessageFailure> failure;
  Pieces data;
};

/// A header above this is refused: protobuf makes many times the memory of its bytes.
constexpr std::size_t kMostHeaderBytes = 256 << 10;
/// Nests deeper than this are refused.
constexpr int kDeepestNest = 64;
/// An error's text is cut there.
constexpr std::size_t kMostFailureText = 16 << 10;

/// The bytes of `message`: the data's pieces behind new ones. ResourceExhausted above the caps of
/// headers and messages; `operation` begins the message.
Pieces encode_message(const Message& message, const std::string& operation);

/// What those bytes say; the data's pieces stay where they are. Throws InvalidArgument unless the
/// nodes are one nest and the data has the bytes that they say; ResourceExhausted for a header
/// above its cap. Whether a tensor's shape and dtype fit its bytes is for the reader of tensors to
/// check. The memory that it takes is a small multiple of the header's bytes.
Message decode_message(const Pieces& bytes);

/// Reads the pieces of a message's data in order.
class PieceReader {
 public:
  explicit PieceReader(const Pieces& pieces) : pieces_(pieces) {}
  std::size_t left() const;
  /// Copies the next `size` bytes; InvalidArgument when there are fewer.
  void read(void* to, std::size_t size);
  void skip(std::size_t size) { read(nullptr, size); }

 private:
  const Pieces& pieces_;
  std::size_t piece_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace tutti::rpc
