#pragma once
// Pieces as gRPC's buffers and back, without copying.

#include <grpcpp/support/byte_buffer.h>

#include "rpc/message.h"

namespace tutti::rpc {

/// gRPC holds the pieces' owners until the bytes are sent.
inline grpc::ByteBuffer buffer_of(Pieces pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(pieces.size());
  for (Piece& piece : pieces) {
    auto* owner = new std::shared_ptr<const void>(std::move(piece.owner));
    slices.emplace_back(
        const_cast<char*>(piece.data), piece.size,
        [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); }, owner);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

/// The pieces own the buffer's slices. Throws InvalidArgument for a buffer that cannot be read.
inline Pieces pieces_of(const grpc::ByteBuffer& buffer) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (buffer.Valid() && !buffer.Dump(slices.get()).ok())
    throw InvalidArgument("remote message: a buffer that cannot be unpacked");
  Pieces pieces;
  pieces.reserve(slices->size());
  for (const grpc::Slice& slice : *slices)
    pieces.push_back({reinterpret_cast<const char*>(slice.begin()), slice.size(), slices});
  return pieces;
}

}  // namespace tutti::rpc
