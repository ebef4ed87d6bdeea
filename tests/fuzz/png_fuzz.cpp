#include "fuzz/target.h"
#include "tutti/io/image.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) { io::decode_png(bytes); }

}  // namespace tutti::fuzz
