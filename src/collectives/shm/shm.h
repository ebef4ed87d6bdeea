#pragma once
// The backend for processes of one machine: they share memory.

#include <memory>

#include "collectives/group.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

/// One rank of a group of processes (or threads) of one machine; blocks until all are there.
std::unique_ptr<Communicator> make_shm(const GroupOptions& options);

/// Memory of one rank that the other ranks of its host see. An all_reduce whose tensors lie in
/// their ranks' arenas is done in place: no rank copies its tensor for the others.
class SharedArena {
 public:
  virtual ~SharedArena() = default;
  /// An uninitialised contiguous CPU tensor in the arena, at a multiple of 64 bytes; the memory
  /// goes back when its last reference does, which may be after the communicator. Throws
  /// ResourceExhausted when GroupOptions::arena_bytes do not suffice. Any thread.
  virtual at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) = 0;
  virtual bool contains(const at::Tensor& tensor) const = 0;
};

/// The arena of a communicator that has one (shm), else null.
std::shared_ptr<SharedArena> shared_arena(Communicator& communicator);

}  // namespace tutti::collectives
