#pragma once
// What Compute Engine says of the end of this machine. No JSON: other modules include it.

#include <functional>
#include <memory>

#include "tutti/cluster/cluster_resolver.h"

namespace tutti::cluster {

enum class GceNotice { kMaintenance, kSpot };

/// A function that asks the metadata service once, for a second at most: true when it has said that
/// this machine will be ended. Never throws: a service that is not there has said nothing.
std::function<bool()> gce_termination_watcher(
    GceNotice notice, std::shared_ptr<distribute::cluster_resolver::EnvironmentVariables> given);

}  // namespace tutti::cluster
