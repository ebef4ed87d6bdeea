#include <algorithm>
#include <filesystem>

#include "cluster/google_cloud.h"
#include "tutti/base/text.h"
#include "tutti/cluster/resolvers.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using cluster::GoogleCloud;
using cluster::JsonAt;
using cluster::percent_encoded;
using cluster::refuse;
using cluster::Variables;

constexpr const char* kName = "TPUClusterResolver";
constexpr const char* kService = "https://tpu.googleapis.com/v1";
constexpr const char* kLocal = "local";
constexpr const char* kScheme = "grpc://";
constexpr const char* kDefaultPort = "8470";

/// Which TPU, and where.
struct Target {
  std::string tpu;
  std::string zone;
  std::string project;
};

Target find_target(const TPUClusterResolverOptions& options, const Variables& variables) {
  Target target{options.tpu, options.zone, options.project};
  for (const char* name : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"}) {
    if (target.tpu.empty()) target.tpu = variables.text(name);
  }
  if (!target.tpu.empty()) return target;
  const std::string config = variables.text("TPU_CONFIG");
  if (!config.empty()) {
    const cluster::JsonDocument document(config, "TPU_CONFIG");
    const JsonAt top = document.top();
    target.tpu = top.at("tpu_node_name").text();
    if (target.project.empty()) target.project = top.text_or("project", "");
    if (target.zone.empty()) target.zone = top.text_or("zone", "");
  }
  if (target.tpu.empty()) {
    refuse(kName, "tpu", {"no name", "one in .tpu, TPU_NAME or TPU_CONFIG", "name the TPU"});
  }
  return target;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Where the API is, by its discovery document.
std::string discover(std::string url) {
  replace_all(url, "{api}", "tpu");
  replace_all(url, "{apiVersion}", "v1");
  cluster::HttpRequest request;
  request.url = url;
  const auto document = cluster::fetch_json(kName, request);
  const JsonAt top = document.top();
  return cat(top.at("rootUrl").text(), top.text_or("servicePath", ""), "v1");
}

/// `grpc://a:1,grpc://b` → a:1, b:8470.
std::vector<std::string> listed_addresses(const std::string& tpu) {
  std::vector<std::string> addresses;
  for (std::string address : split(tpu, ',')) {
    if (address.rfind(kScheme, 0) == 0) address = address.substr(std::string(kScheme).size());
    const bool has_port = address.rfind(':') != std::string::npos && address.back() != ']';
    if (!has_port) address += cat(":", kDefaultPort);
    if (const auto fault = cluster::fault_of_address(address)) refuse(kName, "tpu", *fault);
    addresses.push_back(address);
  }
  return addresses;
}

std::string port_text(const JsonAt& endpoint) {
  const auto port = endpoint.find("port");
  if (!port) return kDefaultPort;
  return port->value().is_number_integer() ? port->value().dump() : port->text();
}

std::string address_of_endpoint(const JsonAt& endpoint) {
  const JsonAt ip = endpoint.at("ipAddress");
  const std::string text = ip.text();
  const bool is_ipv6 = text.find(':') != std::string::npos && text[0] != '[';
  const std::string address =
      cat(is_ipv6 ? "[" : "", text, is_ipv6 ? "]" : "", ":", port_text(endpoint));
  if (const auto fault = cluster::fault_of_address(address)) ip.refuse(*fault);
  return address;
}

/// The device files of the TPUs in this machine.
int64_t count_local_tpus() {
  int64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("accel", 0) == 0 && cluster::whole_number(name.substr(5), 1 << 20)) ++count;
  }
  return count;
}

class Tpu : public ClusterResolver::Impl {
 public:
  explicit Tpu(const TPUClusterResolverOptions& options)
      : Impl(kName),
        cloud_(kName, Variables(kName, options.variables), kService, options.service,
               options.credentials),
        job_name_(options.job_name),
        coordinator_name_(options.coordinator_name),
        coordinator_address_(options.coordinator_address) {
    give(options.job_name, 0, "grpc");
    target_ =
        options.tpu == kLocal ? Target{kLocal, "", ""} : find_target(options, cloud_.variables());
    check_coordinator();
    if (is_local()) return;
    if (is_listed()) {
      listed_addresses(target_.tpu);
      return;
    }
    if (target_.project.empty()) target_.project = cloud_.metadata("project/project-id");
    if (target_.zone.empty()) {
      const std::string zone = cloud_.metadata("instance/zone");  // projects/1/zones/us-…
      target_.zone = zone.substr(zone.rfind('/') + 1);
    }
    std::string discovery = cloud_.variables().text("TPU_API_DISCOVERY_URL");
    if (discovery.empty()) discovery = options.discovery_url;
    if (!discovery.empty() && options.service.empty()) cloud_.set_service(discover(discovery));
  }

  const std::string& job_name() const { return job_name_; }

 private:
  bool is_local() const { return target_.tpu == kLocal; }
  bool is_listed() const { return target_.tpu.rfind(kScheme, 0) == 0; }

  void check_coordinator() const {
    if (coordinator_name_.empty() && coordinator_address_.empty()) return;
    if (coordinator_name_.empty() || coordinator_address_.empty()) {
      refuse(kName, coordinator_name_.empty() ? "coordinator_name" : "coordinator_address",
             {"none", "the coordinator's name and its address", "give both, or neither"});
    }
    if (const auto fault = cluster::fault_of_address(coordinator_address_))
      refuse(kName, "coordinator_address", *fault);
  }

  cluster::JsonDocument node() const {
    return cloud_.get(cat("/projects/", percent_encoded(target_.project), "/locations/",
                          percent_encoded(target_.zone), "/nodes/", percent_encoded(target_.tpu)));
  }

  std::vector<std::string> addresses() const {
    if (is_listed()) return listed_addresses(target_.tpu);
    const auto document = node();
    const JsonAt top = document.top();
    const std::string state = top.at("state").text();
    if (state != "READY") {
      throw FailedPrecondition(cat(kName, " [", target_.tpu, "]: the state ", cluster::shown(state),
                                   ", expected READY; start the TPU, or wait for it"));
    }
    std::vector<std::string> found;
    const auto endpoints = top.find("networkEndpoints");
    if (!endpoints) return {address_of_endpoint(top)};
    endpoints->expect_array("the service must be the TPU API");
    for (std::size_t i = 0; i < endpoints->size(); ++i)
      found.push_back(address_of_endpoint(endpoints->at(i)));
    return found;
  }

  train::ClusterSpec read_cluster_spec() override {
    if (is_local()) return {};
    std::map<std::string, train::JobTasks> jobs = {{job_name_, addresses()}};
    if (!coordinator_name_.empty())
      jobs[coordinator_name_] = std::vector<std::string>{coordinator_address_};
    return jobs;
  }

  std::string read_master(const std::optional<std::string>& type, const std::optional<int64_t>& id,
                          const std::optional<std::string>& layer) override {
    return is_local() ? "" : Impl::read_master(type, id, layer);
  }

  std::map<std::string, int64_t> read_accelerators() override {
    if (is_local()) return {{"TPU", count_local_tpus()}};
    if (is_listed()) {
      throw Unimplemented(cat(kName,
                              " [num_accelerators]: addresses, expected a TPU's name, whose "
                              "type says its cores; say the number by a SimpleClusterResolver"));
    }
    const auto hosts = static_cast<int64_t>(addresses().size());
    const auto document = node();
    const JsonAt type = document.top().at("acceleratorType");  // v3-32: 32 cores
    const std::string text = type.text();
    const auto cores = cluster::whole_number(text.substr(text.rfind('-') + 1), 1 << 20);
    if (!cores)
      type.refuse({cluster::shown(text), "a type like v3-8",
                   "the service must be the "
                   "TPU API"});
    if (hosts == 0 || *cores % hosts != 0) {
      throw FailedPrecondition(cat(kName, " [", target_.tpu, "]: ", *cores, " cores on ", hosts,
                                   " hosts, expected as many on each; see to the TPU"));
    }
    return {{"TPU", *cores / hosts}};
  }

  GoogleCloud cloud_;
  std::string job_name_;
  std::string coordinator_name_;
  std::string coordinator_address_;
  Target target_;
};

}  // namespace

TPUClusterResolver::TPUClusterResolver(TPUClusterResolverOptions options)
    : ClusterResolver(std::make_shared<Tpu>(options)) {}

std::string TPUClusterResolver::get_job_name() const {
  return static_cast<Tpu&>(impl("get_job_name")).job_name();
}

std::string TPUClusterResolver::get_coordination_service_leader() const {
  return cat("/job:", get_job_name(), "/task:0");
}

}  // namespace tutti::distribute::cluster_resolver
