#pragma once
// The backend for processes with GPUs: c10d's NCCL moves what lies on them.

#include <memory>

#include "collectives/group.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

/// Whether this build has it: one with CUDA, whose headers CMake has found.
bool has_nccl();
/// One rank of a group of processes with a GPU each; blocks until all are there. Tensors on the GPU
/// go through NCCL, in whatever order it adds; those of the host as gloo's. A call returns when
/// this rank has the result. Throws Unimplemented in other builds.
std::unique_ptr<Communicator> make_nccl(const GroupOptions& options);

}  // namespace tutti::collectives
