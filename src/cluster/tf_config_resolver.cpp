// What reads a whole configuration from variables: TF_CONFIG, and SageMaker's hosts.

#include <algorithm>

#include "cluster/cluster_json.h"
#include "cluster/roles.h"
#include "cluster/variables.h"
#include "tutti/base/text.h"
#include "tutti/cluster/resolvers.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using cluster::TfConfig;
using cluster::Variables;

/// A resolver of a TfConfig that is made anew at every call.
class ConfigResolver : public ClusterResolver::Impl {
 protected:
  ConfigResolver(const char* name, std::shared_ptr<EnvironmentVariables> variables,
                 std::string environment)
      : Impl(name), variables_(name, std::move(variables)), environment_(std::move(environment)) {}
  const Variables& variables() const { return variables_; }

 private:
  virtual TfConfig read_config() const = 0;

  train::ClusterSpec read_cluster_spec() override { return read_config().cluster; }
  std::optional<std::string> read_task_type() const override { return read_config().task_type; }
  std::optional<int64_t> read_task_id() const override { return read_config().task_id; }
  std::string read_rpc_layer() const override { return read_config().rpc_layer; }
  std::string read_environment() const override { return environment_; }
  std::map<std::string, int64_t> read_accelerators() override {
    return cluster::visible_accelerators(name(), variables_);
  }
  std::string read_master(const std::optional<std::string>& type, const std::optional<int64_t>& id,
                          const std::optional<std::string>& layer) override {
    const TfConfig config = read_config();
    if (config.session_master) return *config.session_master;
    const auto jobs = config.cluster.jobs();
    if (jobs.empty() || (jobs.size() == 1 && config.cluster.num_tasks(jobs[0]) == 1)) return "";
    return Impl::read_master(type, id, layer);
  }

  Variables variables_;
  std::string environment_;
};

class TfConfigResolver : public ConfigResolver {
 public:
  explicit TfConfigResolver(const TFConfigClusterResolverOptions& options)
      : ConfigResolver("TFConfigClusterResolver", options.variables, options.environment),
        strict_(options.strict) {
    give(options.task_type, options.task_id, options.rpc_layer);
  }

 private:
  TfConfig read_config() const override {
    return cluster::read_tf_config(variables().text("TF_CONFIG"), strict_);
  }
  bool strict_;
};

class SageMakerResolver : public ConfigResolver {
 public:
  explicit SageMakerResolver(const SageMakerClusterResolverOptions& options)
      : ConfigResolver("SageMakerClusterResolver", options.variables, options.environment),
        port_(options.port) {
    cluster::check_ports(name(), port_);
    give(options.task_type, options.task_id, options.rpc_layer);
  }

 private:
  TfConfig read_config() const override {
    const char* const outside = "not on SageMaker";
    const std::string current = variables().require("SM_CURRENT_HOST", outside);
    const std::string text = variables().require("SM_HOSTS", outside);
    std::vector<std::string> hosts = read_hosts(text);
    std::sort(hosts.begin(), hosts.end());
    const auto found = std::find(hosts.begin(), hosts.end(), current);
    if (found == hosts.end()) return {};
    TfConfig config;
    config.task_type = cluster::kWorker;
    config.task_id = found - hosts.begin();
    std::vector<std::string> addresses;
    for (const std::string& host : hosts) addresses.push_back(cluster::address_of(host, port_));
    config.cluster = train::ClusterSpec({{cluster::kWorker, addresses}});
    return config;
  }

  static std::vector<std::string> read_hosts(const std::string& text) {
    const cluster::JsonDocument document(text, "SM_HOSTS");
    const cluster::JsonAt list = document.top();
    list.expect_array("write [\"algo-1\", \"algo-2\"]");
    std::vector<std::string> hosts;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string host = list.at(i).text();
      if (const auto fault = cluster::fault_of_host(host)) list.at(i).refuse(*fault);
      if (std::find(hosts.begin(), hosts.end(), host) != hosts.end()) {
        list.at(i).refuse({cat("the host ", cluster::shown(host), ", which is there already"),
                           "every host once", "remove one of them"});
      }
      hosts.push_back(host);
    }
    return hosts;
  }

  int64_t port_;
};

}  // namespace

TFConfigClusterResolver::TFConfigClusterResolver(TFConfigClusterResolverOptions options)
    : ClusterResolver(std::make_shared<TfConfigResolver>(options)) {}

SageMakerClusterResolver::SageMakerClusterResolver(SageMakerClusterResolverOptions options)
    : ClusterResolver(std::make_shared<SageMakerResolver>(options)) {}

}  // namespace tutti::distribute::cluster_resolver
