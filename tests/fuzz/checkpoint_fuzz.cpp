// The input is a file, and else the description in one.

#include "fuzz/sealed.h"
#include "fuzz/target.h"
#include "train/state_file.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  if (!bytes.empty() && bytes[0] != '{') {
    const MemoryFile file(bytes);
    train::read_state(file.path());
    return;
  }
  const Sealed file(bytes, {{"a", at::ones({2})},
                            {"b.bytes", at::ones({4}, at::kByte)},
                            {"b.lengths", at::full({2}, 2, at::kLong)}});
  train::read_state(file.path());
}

}  // namespace tutti::fuzz
