#pragma once
// The backend for several machines with several ranks each: shared memory inside, Gloo between.

#include <memory>

#include "collectives/group.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

/// One rank of a group of processes; ranks whose GroupOptions::host are equal share memory. Blocks
/// until all are there. Throws DeadlineExceeded that names the missing ranks.
std::unique_ptr<Communicator> make_hierarchical(const GroupOptions& options);

}  // namespace tutti::collectives
