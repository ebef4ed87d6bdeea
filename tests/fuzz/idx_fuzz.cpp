#include "fuzz/target.h"
#include "tutti/datasets/datasets.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  datasets::read_idx(file.path());
}

}  // namespace tutti::fuzz
