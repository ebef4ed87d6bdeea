#include "cluster/gce_termination.h"

#include "cluster/google_cloud.h"
#include "tutti/base/log.h"

namespace tutti::cluster {
namespace {

const char* const kOperation = "gce_termination_config";

}  // namespace

std::function<bool()> gce_termination_watcher(
    GceNotice notice, std::shared_ptr<distribute::cluster_resolver::EnvironmentVariables> given) {
  const bool spot = notice == GceNotice::kSpot;
  const std::string path = spot ? "instance/preempted" : "instance/maintenance-event";
  const std::string answer = spot ? "TRUE" : "TERMINATE_ON_HOST_MAINTENANCE";
  return
      [path, answer, variables = Variables(kOperation, std::move(given)), said = false]() mutable {
        HttpRequest request = metadata_request(variables, path);
        request.deadline = std::chrono::seconds(1);
        request.attempts = 1;
        try {
          return fetch(kOperation, request) == answer;
        } catch (const Error& error) {
          if (!said) log_warning(error.what(), "; it is asked again every second");
          said = true;
          return false;
        }
      };
}

}  // namespace tutti::cluster
