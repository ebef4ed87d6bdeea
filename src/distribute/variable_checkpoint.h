#pragma once
// What a checkpoint keeps of a variable, and how it comes back: one tensor, whatever the strategy
// and the number of replicas it is read with.

#include "tutti/distribute/variable.h"

namespace tutti::internal {

/// What is saved: the first component, of an ON_READ variable the aggregated value. A copy. Outside
/// replicas. Throws InvalidArgument for an ON_READ variable with aggregation NONE.
Tensor saved_value(const Variable& variable);

/// Gives `value` back, so that saved_value() is it again: to every component; of an ON_READ
/// variable with aggregation SUM each component gets its share, value / replicas, and integers that
/// do not divide leave one more with the first components. Outside replicas. Shape and dtype must
/// be the variable's (InvalidArgument, nothing is changed).
void restore_value(const Variable& variable, const Tensor& value);

}  // namespace tutti::internal
