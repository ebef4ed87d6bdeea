#include <algorithm>

#include "cluster/kube_config.h"
#include "cluster/roles.h"
#include "tutti/base/text.h"
#include "tutti/cluster/resolvers.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using cluster::JsonAt;
using cluster::percent_encoded;
using cluster::refuse;
using cluster::Variables;

constexpr const char* kName = "KubernetesClusterResolver";
constexpr const char* kRemedy = "the server must be a Kubernetes API";
constexpr int kMostPages = 1000;

KubernetesPod read_pod(const JsonAt& item) {
  const JsonAt status = item.at("status");
  status.expect_object(kRemedy);
  return {item.at("metadata").at("name").text(), status.text_or("phase", "Unknown"),
          status.text_or("hostIP", ""), status.text_or("podIP", "")};
}

class Kubernetes : public ClusterResolver::Impl {
 public:
  explicit Kubernetes(KubernetesClusterResolverOptions options)
      : Impl(kName), options_(std::move(options)), variables_(kName, options_.variables) {
    const auto location = options_.executable_location;
    if (location != KubernetesExecutableLocation::kWithinCluster &&
        location != KubernetesExecutableLocation::kOffCluster) {
      refuse(kName, "executable_location",
             {cat(static_cast<int>(location)), "kWithinCluster or kOffCluster", "correct it"});
    }
    cluster::check_ports(kName, options_.tf_server_port);
    if (options_.job_to_label_mapping.empty())
      options_.job_to_label_mapping = {{cluster::kWorker, {"job-name=tensorflow"}}};
    give({}, {}, options_.rpc_layer);
    if (!options_.override_client) access();  // says at once that there is no cluster
  }

 private:
  bool is_within() const {
    return options_.executable_location == KubernetesExecutableLocation::kWithinCluster;
  }

  /// Read anew at every call: tokens of pods are replaced every hour.
  cluster::KubernetesAccess access() const {
    return is_within()
               ? cluster::access_within_cluster(kName, variables_, options_.service_account_folder)
               : cluster::access_by_kube_config(kName, variables_);
  }

  train::ClusterSpec read_cluster_spec() override {
    std::map<std::string, train::JobTasks> jobs;
    for (const auto& [job, selectors] : options_.job_to_label_mapping) {
      std::vector<std::string> addresses;
      for (const std::string& selector : selectors) add_addresses(selector, addresses);
      jobs.emplace(job, addresses);
    }
    return jobs;
  }

  std::map<std::string, int64_t> read_accelerators() override {
    return cluster::visible_accelerators(kName, variables_);
  }

  void add_addresses(const std::string& selector, std::vector<std::string>& addresses) const {
    std::vector<KubernetesPod> pods =
        options_.override_client ? options_.override_client(selector) : list_pods(selector);
    if (pods.empty()) {
      throw FailedPrecondition(cat(kName, " [", selector,
                                   "]: no pod, expected at least one with "
                                   "this label; start the job, or correct the selector"));
    }
    std::sort(pods.begin(), pods.end(),
              [](const KubernetesPod& a, const KubernetesPod& b) { return a.name < b.name; });
    for (const KubernetesPod& pod : pods) addresses.push_back(address_of(pod));
  }

  std::string address_of(const KubernetesPod& pod) const {
    if (pod.phase != "Running") {
      throw FailedPrecondition(cat(kName, " [", pod.name, "]: the phase ",
                                   cluster::shown(pod.phase),
                                   ", expected Running; wait until all pods run"));
    }
    // A pod's own address is not routed outside of the cluster; its host's is not its own.
    const std::string& first = is_within() ? pod.pod_ip : pod.host_ip;
    const std::string& ip = !first.empty() ? first : is_within() ? pod.host_ip : pod.pod_ip;
    const std::string address = cluster::address_of(ip, options_.tf_server_port);
    if (const auto fault = cluster::fault_of_address(address)) refuse(kName, pod.name, *fault);
    return address;
  }

  std::vector<KubernetesPod> list_pods(const std::string& selector) const {
    const cluster::KubernetesAccess access = this->access();
    std::vector<KubernetesPod> pods;
    std::string next;
    int pages = 0;
    do {
      cluster::HttpRequest request;
      request.url = cat(access.server, "/api/v1/",
                        options_.pod_namespace.empty()
                            ? ""
                            : cat("namespaces/", percent_encoded(options_.pod_namespace), "/"),
                        "pods?limit=500&labelSelector=", percent_encoded(selector),
                        next.empty() ? "" : "&continue=" + percent_encoded(next));
      request.headers = {"Accept: application/json"};
      request.token = access.token;
      request.tls = access.tls;
      const auto answer = cluster::fetch_json(kName, request);
      const JsonAt top = answer.top();
      const JsonAt items = top.at("items");
      if (!items.is_null()) items.expect_array(kRemedy);
      for (std::size_t i = 0; i < items.size(); ++i) pods.push_back(read_pod(items.at(i)));
      const auto metadata = top.find("metadata");
      next = metadata && metadata->is_object() ? metadata->text_or("continue", "") : "";
      if (++pages > kMostPages) {
        top.refuse({cat("more than ", kMostPages, " pages"), "a last one", "narrow the selector"});
      }
    } while (!next.empty());
    return pods;
  }

  KubernetesClusterResolverOptions options_;
  Variables variables_;
};

}  // namespace

KubernetesClusterResolver::KubernetesClusterResolver(KubernetesClusterResolverOptions options)
    : ClusterResolver(std::make_shared<Kubernetes>(std::move(options))) {}

}  // namespace tutti::distribute::cluster_resolver
