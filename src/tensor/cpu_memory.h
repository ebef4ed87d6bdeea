#pragma once
// The memory of CPU tensors, for the whole process.

namespace tutti {

/// Buffers that a step frees stay with the process, and the next step gets the same ones: page
/// faults cost more than the memory. From then on LibTorch's large CPU tensors come from an
/// allocator under which freed buffers fit again. Once a process; TUTTI_MALLOC=system leaves the
/// allocator alone.
void keep_freed_memory();

}  // namespace tutti
