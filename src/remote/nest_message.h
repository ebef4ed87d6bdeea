#pragma once
// Nests of tensors and strings as messages of remote calls.

#include <string>

#include "rpc/message.h"
#include "tutti/tensor/nest.h"

namespace tutti::remote {

/// What is said of tensors whose memory others may still write.
enum class Sharing {
  kKeep,  ///< they are sent from where they lie; the caller leaves them alone until then
  kCopy,  ///< they are copied first, unless nobody else holds their memory
};

/// Adds `nest` to the message: its nodes, and pieces that own the tensors. A tensor that is not
/// dense, contiguous and on the CPU is copied so. Throws InvalidArgument for an undefined tensor,
/// one of a sparse layout or a quantized dtype, and an object; `operation` begins the message.
void append_nest(const Nest& nest, const std::string& operation, Sharing sharing,
                 rpc::Message& message);

/// The nest that a message carries; its tensors have memory of their own. Shapes, dtypes and sizes
/// are checked before memory is taken, which is never more than the message's bytes and a small
/// multiple of its header's. Throws InvalidArgument.
Nest nest_of(const rpc::Message& message);

}  // namespace tutti::remote
