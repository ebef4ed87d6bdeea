#pragma once
// Datasets dealt out to the local replicas.

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/data/input_context.h"
#include "tutti/data/plan.h"
#include "tutti/distribute/distributed_dataset.h"
#include "tutti/tensor/device.h"

namespace tutti::distribute {

class WorkerGroup;

/// `plan` is batched by the global size; every batch is cut into one piece for each replica of all
/// workers, and this one's pieces go to `devices`. InvalidArgument or Unimplemented: options that
/// do not go together.
std::shared_ptr<DistributedPlan> make_rebatched_plan(data::PlanPtr plan,
                                                     const data::InputWorkers& workers,
                                                     std::vector<DeviceName> devices,
                                                     const data::InputOptions& options);
/// What `dataset_fn` gives is batched by the replica's size; replicas draw its elements in turn,
/// or, in PER_REPLICA mode, each from a dataset of its own.
std::shared_ptr<DistributedPlan> make_plans_from_function(
    FunctionRef<data::PlanPtr(const data::InputContext&)> dataset_fn,
    const data::InputContext& context, std::vector<DeviceName> devices,
    const data::InputOptions& options);

/// The same for one of several workers, all of which make the call: their passes end in one step.
std::shared_ptr<DistributedPlan> rebatched_over_workers(data::PlanPtr plan,
                                                        const data::InputWorkers& place,
                                                        std::vector<DeviceName> devices,
                                                        const data::InputOptions& options,
                                                        std::shared_ptr<WorkerGroup> workers);
std::shared_ptr<DistributedPlan> from_function_over_workers(
    FunctionRef<data::PlanPtr(const data::InputContext&)> dataset_fn,
    const data::InputContext& context, std::vector<DeviceName> devices,
    const data::InputOptions& options, std::shared_ptr<WorkerGroup> workers);

/// "a global batch of 3, ceil(3 / 2) = 2 rows for each of 2 replicas".
std::string batch_text(int64_t global_batch, int replicas);
/// "ceil(7 rows / 3) = 3".
std::string steps_formula(int64_t count, const char* of_what, int64_t by, int64_t steps);

}  // namespace tutti::distribute
