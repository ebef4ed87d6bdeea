#pragma once
// The backend for ranks that are threads of one process.

#include <memory>
#include <vector>

#include "collectives/rendezvous.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

/// One communicator for each rank of `rendezvous`; they keep it alive. Tensors are read and written
/// in place, nothing is copied.
std::vector<std::unique_ptr<Communicator>> make_in_process_group(
    std::shared_ptr<Rendezvous> rendezvous);
std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size);

}  // namespace tutti::collectives
