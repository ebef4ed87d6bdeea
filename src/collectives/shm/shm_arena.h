#pragma once
// The arena of a rank, in the memory that the ranks share.

#include <memory>

#include "collectives/shm/segment.h"
#include "collectives/shm/shm.h"

namespace tutti::collectives {

/// Of `bytes` at `data`, which lie in `segment`.
std::shared_ptr<SharedArena> make_arena(std::shared_ptr<Segment> segment, std::byte* data,
                                        int64_t bytes);
/// In bytes; -1 when the tensor lies elsewhere. Only for what make_arena made.
int64_t offset_in(const SharedArena& arena, const at::Tensor& tensor);

}  // namespace tutti::collectives
