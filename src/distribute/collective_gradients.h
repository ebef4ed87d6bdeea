#pragma once
// all_reduce and all_gather of a replica, with their gradients.

#include <vector>

#include "tutti/distribute/replica_context.h"

namespace tutti::distribute {

/// A collective of a replica: who calls it and how. Its backward makes a call like it.
struct ReplicaCall {
  ReplicaContext& context;
  CommunicationOptions options;
};

Tensor differentiable_all_reduce(const ReplicaCall& call, ReduceOp op, const Tensor& value);
/// Replaces each value by its reduction. They go together by dtype and device, from the last to the
/// first (gradients of late layers come first), in packs: a pack takes values until it has more
/// than options.bytes_per_pack bytes; 0: one pack. Throws InvalidArgument on every replica when
/// numbers, shapes or dtypes disagree.
void differentiable_all_reduce(const ReplicaCall& call, ReduceOp op,
                               const std::vector<Tensor*>& values);
IndexedSlices differentiable_all_reduce(const ReplicaCall& call, ReduceOp op,
                                        const IndexedSlices& value);
Tensor differentiable_all_gather(const ReplicaCall& call, const Tensor& value, int64_t axis);

}  // namespace tutti::distribute
