// A record of a cached or saved dataset: an element, or an index.

#include "data/element_codec.h"
#include "data/element_files.h"
#include "fuzz/target.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const Nest element = data::element_of(bytes);
  std::string again;
  data::append_element(element, again);
  if (again != bytes) std::abort();  // each element has one form
  data::ElementIndex::of(element, "fuzz.index");
}

}  // namespace tutti::fuzz
