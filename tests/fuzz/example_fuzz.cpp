#include "fuzz/target.h"
#include "tutti/io/example.h"
#include "tutti/io/parsing.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  try {
    train::Example::parse(bytes);
  } catch (const InvalidArgument&) {
  }
  try {
    train::SequenceExample::parse(bytes);
  } catch (const InvalidArgument&) {
  }
  io::parse_single_example(bytes, {{"a", io::FixedLenFeature{{2}, at::ScalarType::Long}},
                                   {"b", io::VarLenFeature{at::ScalarType::Float}}});
}

}  // namespace tutti::fuzz
