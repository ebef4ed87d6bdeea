#include <algorithm>

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

constexpr const char* kName = "GCEClusterResolver";
constexpr const char* kService = "https://compute.googleapis.com/compute/v1";
constexpr int kMostPages = 1000;

class Gce : public ClusterResolver::Impl {
 public:
  explicit Gce(const GCEClusterResolverOptions& options)
      : Impl(kName),
        zone_path_(cat("/projects/", percent_encoded(options.project), "/zones/",
                       percent_encoded(options.zone))),
        group_(options.instance_group),
        port_(options.port),
        cloud_(kName, Variables(kName, options.variables), kService, options.service,
               options.credentials) {
    check_given("project", options.project);
    check_given("zone", options.zone);
    check_given("instance_group", group_);
    cluster::check_ports(kName, port_);
    give(options.task_type, options.task_id, options.rpc_layer);
  }

 private:
  static void check_given(const char* what, const std::string& value) {
    if (value.empty()) refuse(kName, what, {"an empty name", "a name", "give it"});
  }

  train::ClusterSpec read_cluster_spec() override {
    std::vector<std::string> addresses;
    std::string page;
    int pages = 0;
    do {
      const auto answer =
          cloud_.post(cat(zone_path_, "/instanceGroups/", percent_encoded(group_),
                          "/listInstances?orderBy=name",
                          page.empty() ? "" : "&pageToken=" + percent_encoded(page)),
                      R"({"instanceState": "RUNNING"})");
      const JsonAt top = answer.top();
      top.expect_object("the service must be the Compute Engine API");
      if (const auto items = top.find("items")) {
        items->expect_array("the service must be the Compute Engine API");
        for (std::size_t i = 0; i < items->size(); ++i)
          addresses.push_back(address_of_instance(items->at(i).at("instance").text()));
      }
      page = top.text_or("nextPageToken", "");
      if (++pages > kMostPages) {
        top.refuse({cat("more than ", kMostPages, " pages"), "a last one", "name another group"});
      }
    } while (!page.empty());
    if (addresses.empty()) {
      throw FailedPrecondition(cat(kName, " [", group_,
                                   "]: no instance that runs, expected at "
                                   "least one; start the group, or correct its name"));
    }
    std::sort(addresses.begin(), addresses.end());
    return train::ClusterSpec({{*task_type(), addresses}});
  }

  /// `url` ends with the instance's name.
  std::string address_of_instance(const std::string& url) const {
    const std::string name = url.substr(url.rfind('/') + 1);
    const auto answer = cloud_.get(cat(zone_path_, "/instances/", percent_encoded(name)));
    const JsonAt interfaces = answer.top().at("networkInterfaces");
    interfaces.expect_array("the service must be the Compute Engine API");
    if (interfaces.size() == 0) {
      interfaces.refuse(
          {cat("no network interface of ", cluster::shown(name)), "one", "give the instance one"});
    }
    const JsonAt ip = interfaces.at(0).at("networkIP");
    const std::string address = cluster::address_of(ip.text(), port_);
    if (const auto fault = cluster::fault_of_address(address)) ip.refuse(*fault);
    return address;
  }

  std::map<std::string, int64_t> read_accelerators() override {
    return cluster::visible_accelerators(kName, cloud_.variables());
  }

  void check_task_type_settable() const override {
    throw FailedPrecondition(cat(kName,
                                 " [task_type]: a new type of task, expected none; say it "
                                 "when the resolver is made"));
  }

  std::string zone_path_;
  std::string group_;
  int64_t port_;
  GoogleCloud cloud_;
};

}  // namespace

GCEClusterResolver::GCEClusterResolver(GCEClusterResolverOptions options)
    : ClusterResolver(std::make_shared<Gce>(options)) {}

}  // namespace tutti::distribute::cluster_resolver
