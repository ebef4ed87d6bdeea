// From a cluster to a group of workers: who this process is, coordination with the others, a
// communicator between all.

#include "cluster/reachable.h"
#include "cluster/roles.h"
#include "collectives/group.h"
#include "distribute/agent_store.h"
#include "distribute/membership.h"
#include "distribute/worker_group.h"
#include "tutti/base/error.h"

namespace tutti::distribute {
namespace {

using cluster_resolver::ClusterResolver;
using coordination::Milliseconds;

const char* const kOperation = "MultiWorkerMirroredStrategy";

/// Chief and workers: evaluators work alone, and parameter servers have no part in this.
coordination::Cluster members_of(const train::ClusterSpec& spec) {
  coordination::Cluster members;
  for (const char* job : {cluster::kChief, cluster::kWorker}) {
    if (!spec.has_job(job)) continue;
    if (!spec.as_dict().at(job).is_dense()) {
      throw InvalidArgument(cat(kOperation, " [cluster_spec.", job, "]: tasks ",
                                join(spec.task_indices(job), ", "),
                                ", expected all from 0 on; name the others too"));
    }
    members[job] = spec.job_tasks(job);
  }
  return members;
}

/// Without the port, and without the brackets of an IPv6 address.
std::string host_of(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host == "localhost" ? "127.0.0.1" : host;
}

Milliseconds start_limit(const collectives::CommunicationOptions& options) {
  return options.timeout_seconds > 0 ? options.timeout() : MembershipOptions().timeout;
}

std::shared_ptr<WorkerGroup> connect(const MembershipOptions& place, int rank, int size,
                                     const collectives::CommunicationOptions& options) {
  auto membership = std::make_unique<Membership>(place);
  std::unique_ptr<collectives::Communicator> communicator;
  try {
    communicator = collectives::make_communicator(
        {.store = std::make_shared<AgentStore>(membership->shared_agent()),
         .prefix = "collectives",
         .generation = static_cast<int64_t>(membership->agent().generation()),
         .rank = rank,
         .size = size,
         .address = host_of(coordination::address_of(place.cluster, place.task)),
         .timeout = place.timeout},
        options.implementation);
  } catch (...) {  // whose fault it was, the coordination knows
    const std::exception_ptr error = std::current_exception();
    membership->throw_failure(code_of(error), message_of(error));
  }
  return std::make_shared<WorkerGroup>(std::move(communicator), std::move(membership));
}

}  // namespace

std::shared_ptr<WorkerGroup> workers_from_environment(
    const ClusterResolver& resolver, const MultiWorkerMirroredStrategyOptions& options) {
  const train::ClusterSpec spec = resolver.cluster_spec();
  if (!spec) return nullptr;
  const std::optional<std::string> type = resolver.task_type();
  const std::optional<int64_t> id = resolver.task_id();
  if (!type || !id) {
    throw InvalidArgument(cat(kOperation, " [cluster ", spec.to_json(), "]: no task ",
                              !type ? "type" : "id",
                              ", expected which task of the cluster this process is; set it on the "
                              "resolver"));
  }
  cluster::check_cluster(kOperation, spec, type, id);
  const int64_t size = cluster::worker_count(spec, *type);
  if (*type == cluster::kEvaluator || size == 1) return nullptr;
  cluster::check_reachable(kOperation, spec, *type, *id);
  return connect({.cluster = members_of(spec),
                  .task = coordination::task_name(*type, static_cast<int>(*id)),
                  .timeout = start_limit(options.communication_options)},
                 static_cast<int>(cluster::id_in_cluster(spec, *type, *id)), static_cast<int>(size),
                 options.communication_options);
}

}  // namespace tutti::distribute
