#include "fuzz/target.h"
#include "tutti/io/events.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  io::EventFileReader reader(file.path());
  for (;;) {
    try {
      if (!reader.next()) break;
    } catch (const DataLoss&) {  // the next call goes on
    }
  }
}

}  // namespace tutti::fuzz
