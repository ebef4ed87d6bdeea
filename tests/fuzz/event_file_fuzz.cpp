// The input is a file, and the one record of another.

#include "fuzz/target.h"
#include "tutti/io/events.h"
#include "tutti/io/tf_record.h"

namespace tutti::fuzz {
namespace {

void read_all(const std::string& path) {
  io::EventFileReader reader(path);
  for (;;) {
    try {
      if (!reader.next()) break;
    } catch (const DataLoss&) {  // the next call goes on
    }
  }
}

}  // namespace

void read_input(std::string_view bytes) {
  const MemoryFile file(bytes);
  read_all(file.path());
  const MemoryFile other("");
  io::TFRecordWriter writer(other.path());
  writer.write(bytes);
  writer.close();
  read_all(other.path());
}

}  // namespace tutti::fuzz
