#include "distribute/device_list.h"
#include "distribute/replica_pool.h"
#include "distribute/worker_group.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

cluster_resolver::ClusterResolver resolver_of(const MultiWorkerMirroredStrategyOptions& options) {
  if (options.cluster_resolver.defined()) return options.cluster_resolver;
  return cluster_resolver::TFConfigClusterResolver();
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(
    const MultiWorkerMirroredStrategyOptions& options)
    : MultiWorkerMirroredStrategy(options,
                                  workers_from_environment(resolver_of(options), options)) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(
    const MultiWorkerMirroredStrategyOptions& options, std::shared_ptr<WorkerGroup> workers)
    : Strategy(
          parse_device_list("MultiWorkerMirroredStrategy", options.devices),
          {.communication_options = options.communication_options, .workers = std::move(workers)}),
      resolver_(resolver_of(options)),
      pool_(std::make_unique<ReplicaPool>(*this, devices(), threads_per_replica())) {}

MultiWorkerMirroredStrategy::~MultiWorkerMirroredStrategy() = default;

void MultiWorkerMirroredStrategy::run_on_replicas(FunctionRef<void(int)> body) { pool_->run(body); }

}  // namespace tutti::distribute
