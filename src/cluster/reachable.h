#pragma once
// Whether the other machines of a cluster can reach this task at the address that it is given.

#include <string>

#include "tutti/cluster/cluster_spec.h"

namespace tutti::cluster {

/// Throws InvalidArgument, beginning with `operation`, when the task's own host is a loopback
/// address on this machine (as a line "127.0.1.1 thishost" of /etc/hosts makes it) while another
/// task's is an address of another machine: that one would look for this task on itself. Hosts
/// without an address here are passed over. Looks names up, so it may block as long as the resolver
/// of the system does.
void check_reachable(const std::string& operation, const train::ClusterSpec& cluster,
                     const std::string& task_type, int64_t task_id);

}  // namespace tutti::cluster
