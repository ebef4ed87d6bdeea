#pragma once
// The backend for ranks that are threads of one process.

#include <memory>
#include <vector>

#include "tutti/collectives/communicator.h"
#include "tutti/collectives/rendezvous.h"

namespace tutti::collectives {

/// One communicator for each rank of `rendezvous`; they keep it alive. Tensors are read and written
/// in place, nothing is copied.
std::vector<std::unique_ptr<Communicator>> make_in_process_group(
    std::shared_ptr<Rendezvous> rendezvous);
std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size);

}  // namespace tutti::collectives
