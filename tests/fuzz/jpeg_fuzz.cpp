#include "fuzz/target.h"
#include "tutti/io/image.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const std::size_t way = bytes.size();
  constexpr int64_t kChannels[] = {0, 1, 3};
  constexpr int64_t kRatios[] = {1, 1, 2, 4, 8};
  io::decode_jpeg(bytes, {.channels = kChannels[way % 3],
                          .ratio = kRatios[way % 5],
                          .try_recover_truncated = way % 2 == 0,
                          .dct_method = way % 7 == 0 ? "INTEGER_ACCURATE" : ""});
}

}  // namespace tutti::fuzz
