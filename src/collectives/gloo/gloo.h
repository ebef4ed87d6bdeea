#pragma once
// The backend for processes of any machines: c10d's Gloo carries the bytes.

#include <memory>

#include "collectives/group.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

/// One rank of a group of processes (or threads); blocks until all are there. Throws
/// DeadlineExceeded that names the missing ranks.
std::unique_ptr<Communicator> make_gloo(const GroupOptions& options);

}  // namespace tutti::collectives
