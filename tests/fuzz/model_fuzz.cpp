// The input is the description of a model; checksums around it are right, and weights of a small
// one stand behind it.

#include "fuzz/sealed.h"
#include "fuzz/target.h"
#include "tutti/keras/model.h"

namespace tutti::fuzz {

void read_input(std::string_view bytes) {
  const Sealed file(bytes, {{"weights/dense/kernel", at::ones({3, 2})},
                            {"weights/dense/bias", at::ones({2})},
                            {"slots/momentum/dense/kernel", at::ones({3, 2})},
                            {"slots/momentum/dense/bias", at::ones({2})}});
  keras::load_model(file.path());
}

}  // namespace tutti::fuzz
