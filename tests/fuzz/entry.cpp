// libFuzzer's entry: a reader may throw any Error, and nothing else.

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    tutti::fuzz::read_input({reinterpret_cast<const char*>(data), size});
  } catch (const tutti::Error&) {
  }
  return 0;
}
