#include "fuzz/target.h"
#include "tutti/io/tensor_file.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  io::read_tensor_file(file.path());
}

}  // namespace tutti::fuzz
