#pragma once
// Bytes of messages. Only for sources of this module.

#include <climits>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::proto {

template <class Message>
bool parse_message(Message& message, std::string_view bytes) {
  return bytes.size() <= INT_MAX &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

template <class Message>
std::string serialize_message(const Message& message, const char* what) {
  const std::size_t size = message.ByteSizeLong();
  if (size > INT_MAX) {
    throw InvalidArgument(cat("serialize [", what, "]: ", size,
                              " bytes, expected less than 2 GiB; make several of it"));
  }
  std::string bytes(size, '\0');
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

}  // namespace tutti::proto
