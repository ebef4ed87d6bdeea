#include "fuzz/target.h"
#include "tutti/io/image.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  io::decode_png(bytes);
  // The other ways, of an image that is one.
  for (const int64_t channels : {1, 2, 3, 4}) {
    for (const auto dtype : {at::ScalarType::Byte, at::ScalarType::UInt16})
      io::decode_png(bytes, {.channels = channels, .dtype = dtype});
  }
}

}  // namespace tutti::fuzz
