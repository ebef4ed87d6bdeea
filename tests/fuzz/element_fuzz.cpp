#include "data/element_codec.h"
#include "fuzz/target.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const Nest element = data::element_of(bytes);
  std::string again;
  data::append_element(element, again);
  if (again != bytes) std::abort();  // it has one form
}

}  // namespace tutti::fuzz
