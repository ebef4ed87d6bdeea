#pragma once
// The communicators of replicas of several workers.

#include <memory>
#include <vector>

#include "tutti/collectives/communicator.h"

namespace tutti::distribute {

class WorkerGroup;

/// One communicator for each local replica, over the replicas of all workers; a rank is a replica's
/// global id. `local` are those of the replicas of this process, in order. Collectives are done
/// here first, then by the first replica's thread over the workers, then here again.
std::vector<std::unique_ptr<collectives::Communicator>> make_replica_group(
    std::vector<std::unique_ptr<collectives::Communicator>> local, WorkerGroup& workers);

}  // namespace tutti::distribute
