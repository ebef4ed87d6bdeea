#pragma once
// What a checkpoint keeps of a variable, and how it comes back: one tensor, whatever the strategy
// and the number of replicas it is read with.

#include <memory>
#include <vector>

#include "tensor/worker_peers.h"
#include "tutti/distribute/strategy.h"
#include "tutti/distribute/variable.h"

namespace tutti::internal {

/// What is saved: the first component, of an ON_READ variable the aggregated value, the same on all
/// workers. A copy. Outside replicas; of an ON_READ variable all workers call it. Throws
/// InvalidArgument for an ON_READ variable with aggregation NONE.
Tensor saved_value(const Variable& variable);

/// Gives `value` back, so that saved_value() is it again: to every component; of an ON_READ
/// variable with aggregation SUM each component gets its share, value / replicas, and integers that
/// do not divide leave one more with the first components. Outside replicas. Shape and dtype must
/// be the variable's (InvalidArgument, nothing is changed).
void restore_value(const Variable& variable, const Tensor& value);

/// The workers of the strategy; null for a single one. They live as long as the strategy.
std::shared_ptr<WorkerPeers> peers_of(const distribute::Strategy& strategy);
/// Those of the first variable.
std::shared_ptr<WorkerPeers> peers_of(const std::vector<Variable>& variables);

/// The components of all replicas in their order, a new first axis in front. All workers call it.
Tensor all_components(const Variable& variable);

}  // namespace tutti::internal
