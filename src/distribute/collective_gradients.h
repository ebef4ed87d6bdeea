#pragma once
// all_reduce and all_gather of a replica, with their gradients.

#include "tutti/distribute/replica_context.h"

namespace tutti::distribute {

Tensor differentiable_all_reduce(ReplicaContext& context, ReduceOp op, const Tensor& value,
                                 const CommunicationOptions& options);
Tensor differentiable_all_gather(ReplicaContext& context, const Tensor& value, int64_t axis,
                                 const CommunicationOptions& options);

}  // namespace tutti::distribute
