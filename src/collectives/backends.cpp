#include "collectives/backends.h"

#include <array>

#include "collectives/in_process.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

constexpr std::string_view kWithWorkers = "it comes with training on several workers";

constexpr std::array<Backend, 4> kBackends{{
    {"in_process", make_in_process_group, ""},
    {"shm", nullptr, kWithWorkers},
    {"gloo", nullptr, kWithWorkers},
    {"nccl", nullptr, kWithWorkers},
}};

std::string names(bool only_present) {
  std::vector<std::string_view> all;
  for (const Backend& backend : kBackends) {
    if (!only_present || backend.make_local_group != nullptr) all.push_back(backend.name);
  }
  return join(all, ", ");
}

}  // namespace

std::span<const Backend> backends() { return kBackends; }

const Backend& find_backend(std::string_view name) {
  for (const Backend& backend : kBackends) {
    if (backend.name != name) continue;
    if (backend.make_local_group != nullptr) return backend;
    throw Unimplemented(cat("backend \"", name, "\" is not in this build; present: ", names(true),
                            "; ", backend.missing));
  }
  throw InvalidArgument(cat("backend \"", name, "\" is not known, expected one of ", names(false)));
}

}  // namespace tutti::collectives
