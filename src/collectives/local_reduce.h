#pragma once
// Reductions that see all ranks' tensors at once: what strategies reduce with, and the oracle of
// every backend.

#include <vector>

#include "tutti/collectives/communicator.h"
#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/tensor.h"

namespace tutti::collectives {

/// Sum (or mean) of `inputs`, added in order; sizes and dtype must agree. A new tensor on the first
/// input's device, without history. MEAN divides the sum by the number of inputs and needs a
/// floating dtype. Throws InvalidArgument.
Tensor local_reduce(ReduceOp op, const std::vector<Tensor>& inputs);

/// The rows of all inputs one after the other (duplicates stay); MEAN divides the values by the
/// number of inputs.
IndexedSlices local_reduce(ReduceOp op, const std::vector<IndexedSlices>& inputs);

/// Entries [begin, end) of the reduction of contiguous CPU buffers of one dtype, written to the
/// same entries of every output (which may be the inputs); bit for bit what local_reduce gives.
/// False when the dtype has no loop here (then nothing is done).
bool reduce_range(ReduceOp op, at::ScalarType dtype, const std::vector<const void*>& inputs,
                  const std::vector<void*>& outputs, int64_t begin, int64_t end);

}  // namespace tutti::collectives
