// Replays a corpus without libFuzzer: every file of the folders named, each as it is, cut in the
// middle, and with a byte changed at sixteen places. Any exception but an Error, and any crash,
// fails.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size);

namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file),
                              std::istreambuf_iterator<char>()};
      std::cout << entry.path().filename().string()
                << std::endl;  // the last one shown is the culprit
      run(bytes);
      run(bytes.substr(0, bytes.size() / 2));
      for (std::size_t place = 0; place < 16 && !bytes.empty(); ++place) {
        std::string changed = bytes;
        char& byte = changed[place * changed.size() / 16];
        byte = static_cast<char>(byte ^ 0x55);
        run(changed);
      }
      ++inputs;
    }
  }
  std::cout << inputs << " inputs replayed\n";
  return inputs > 0 ? 0 : 1;
}
