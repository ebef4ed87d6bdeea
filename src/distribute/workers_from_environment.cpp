#include <cstdlib>

#include "distribute/worker_group.h"
#include "tutti/base/error.h"

namespace tutti::distribute {

std::shared_ptr<WorkerGroup> workers_from_environment(const MultiWorkerMirroredStrategyOptions&) {
  const char* cluster = std::getenv("TF_CONFIG");
  if (cluster == nullptr || *cluster == '\0') return nullptr;
  throw Unimplemented(
      "MultiWorkerMirroredStrategy [TF_CONFIG]: a cluster, expected none: this build connects no "
      "processes; unset TF_CONFIG to run as the only worker");
}

}  // namespace tutti::distribute
