#pragma once
// Datasets dealt out to the local replicas.

#include <memory>
#include <vector>

#include "tutti/distribute/distributed_dataset.h"
#include "tutti/tensor/device.h"

namespace tutti::distribute {

/// `plan` is batched by the global size; every batch is cut into one piece a replica.
std::shared_ptr<DistributedPlan> make_rebatched_plan(data::PlanPtr plan, int num_replicas,
                                                     std::vector<DeviceName> devices);
/// `plan` is batched by the replica's size; replicas draw its elements in turn.
std::shared_ptr<DistributedPlan> make_per_replica_plan(data::PlanPtr plan,
                                                       std::vector<DeviceName> devices);

}  // namespace tutti::distribute
