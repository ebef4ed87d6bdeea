#include "fuzz/target.h"
#include "tutti/io/image.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  io::decode_jpeg(bytes, {.try_recover_truncated = bytes.size() % 2 == 0});
}

}  // namespace tutti::fuzz
