#include "fuzz/target.h"
#include "tutti/io/npy.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  io::load_npy(file.path());
}

}  // namespace tutti::fuzz
