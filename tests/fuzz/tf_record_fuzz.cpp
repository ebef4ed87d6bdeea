#include "fuzz/target.h"
#include "tutti/io/tf_record.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  const char* const packings[] = {"", "GZIP", "ZLIB"};
  io::TFRecordReader reader(file.path(), {.compression_type = packings[bytes.size() % 3]});
  for (;;) {
    try {
      if (!reader.next()) break;
    } catch (const DataLoss&) {  // the next call goes on
    }
  }
}

}  // namespace tutti::fuzz
