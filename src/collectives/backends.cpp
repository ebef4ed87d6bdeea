#include "collectives/backends.h"

#include <array>

#include "collectives/gloo/gloo.h"
#include "collectives/group.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/in_process.h"
#include "collectives/shm/shm.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

constexpr std::string_view kNcclBetweenThreads =
    "GPUs of one process are reduced by NcclAllReduce; NCCL between processes needs one for each "
    "rank, see make_communicator";

template <std::unique_ptr<Communicator> (*kMake)(const GroupOptions&)>
std::vector<std::unique_ptr<Communicator>> local_group_of(int size) {
  return make_local_group(size, kMake);
}

constexpr std::array<Backend, 5> kBackends{{
    {"in_process", make_in_process_group, ""},
    {"shm", local_group_of<make_shm>, ""},
    {"gloo", local_group_of<make_gloo>, ""},
    {"hierarchical", local_group_of<make_hierarchical>, ""},
    {"nccl", nullptr, kNcclBetweenThreads},
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
