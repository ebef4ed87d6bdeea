#include "fuzz/target.h"
#include "train/state_file.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  train::read_state(file.path());
}

}  // namespace tutti::fuzz
