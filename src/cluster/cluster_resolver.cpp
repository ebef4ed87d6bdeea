#include "tutti/cluster/cluster_resolver.h"

#include "cluster/names.h"
#include "cluster/variables.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using cluster::fault_of_job_name;
using cluster::fault_of_rpc_layer;
using cluster::refuse;
using train::ClusterSpec;
using train::JobTasks;

void check_task_type(const std::string& operation, const std::optional<std::string>& task_type) {
  if (!task_type) return;
  if (const auto fault = fault_of_job_name(*task_type)) refuse(operation, "task_type", *fault);
}

void check_task_id(const std::string& operation, const std::optional<int64_t>& task_id) {
  if (!task_id || (*task_id >= 0 && *task_id < ClusterSpec::kMostTasks)) return;
  refuse(operation, "task_id",
         {cat(*task_id), cat("0 to ", ClusterSpec::kMostTasks - 1), "correct it"});
}

void check_rpc_layer(const std::string& operation, const std::optional<std::string>& rpc_layer) {
  if (!rpc_layer) return;
  if (const auto fault = fault_of_rpc_layer(*rpc_layer)) refuse(operation, "rpc_layer", *fault);
}

}  // namespace

ClusterResolver::Impl& ClusterResolver::impl(const char* operation) const {
  if (impl_ == nullptr) {
    throw FailedPrecondition(cat(operation,
                                 " [ClusterResolver]: a handle that holds no resolver, "
                                 "expected one; assign a resolver to it first"));
  }
  return *impl_;
}

ClusterSpec ClusterResolver::cluster_spec() const {
  return impl("cluster_spec").read_cluster_spec();
}

std::string ClusterResolver::master(std::optional<std::string> task_type,
                                    std::optional<int64_t> task_id,
                                    std::optional<std::string> rpc_layer) const {
  Impl& resolver = impl("master");
  check_task_type(resolver.name_, task_type);
  check_task_id(resolver.name_, task_id);
  check_rpc_layer(resolver.name_, rpc_layer);
  return resolver.read_master(task_type, task_id, rpc_layer);
}

std::map<std::string, int64_t> ClusterResolver::num_accelerators(
    std::optional<std::string> task_type, std::optional<int64_t> task_id) const {
  Impl& resolver = impl("num_accelerators");
  check_task_type(resolver.name_, task_type);
  check_task_id(resolver.name_, task_id);
  return resolver.read_accelerators();
}

std::string ClusterResolver::environment() const { return impl("environment").read_environment(); }
std::optional<std::string> ClusterResolver::task_type() const {
  return impl("task_type").task_type();
}
std::optional<int64_t> ClusterResolver::task_id() const { return impl("task_id").task_id(); }
std::string ClusterResolver::rpc_layer() const { return impl("rpc_layer").rpc_layer(); }

void ClusterResolver::set_task_type(const std::string& task_type) const {
  Impl& resolver = impl("set_task_type");
  resolver.check_task_type_settable();
  resolver.give(task_type, {}, {});
}
void ClusterResolver::set_task_id(int64_t task_id) const {
  impl("set_task_id").give({}, task_id, {});
}
void ClusterResolver::set_rpc_layer(const std::string& rpc_layer) const {
  impl("set_rpc_layer").give({}, {}, rpc_layer);
}

void ClusterResolver::Impl::give(const std::optional<std::string>& task_type,
                                 const std::optional<int64_t>& task_id,
                                 const std::optional<std::string>& rpc_layer) {
  check_task_type(name_, task_type);
  check_task_id(name_, task_id);
  check_rpc_layer(name_, rpc_layer);
  if (task_type) task_type_ = task_type;
  if (task_id) task_id_ = task_id;
  if (rpc_layer) rpc_layer_ = rpc_layer;
}

std::string ClusterResolver::Impl::with_rpc_layer(const std::string& address,
                                                  const std::string& rpc_layer) {
  return address.empty() || rpc_layer.empty() ? address : cat(rpc_layer, "://", address);
}

std::string ClusterResolver::Impl::read_master(const std::optional<std::string>& asked_type,
                                               const std::optional<int64_t>& asked_id,
                                               const std::optional<std::string>& asked_layer) {
  const ClusterSpec cluster = read_cluster_spec();  // may find out which task this is
  const auto type = asked_type ? asked_type : task_type();
  const auto id = asked_id ? asked_id : task_id();
  if (!type || !id) return "";
  return with_rpc_layer(cluster.task_address(*type, *id), asked_layer ? *asked_layer : rpc_layer());
}

std::map<std::string, int64_t> ClusterResolver::Impl::read_accelerators() {
  return cluster::visible_accelerators(name_, cluster::Variables(name_, nullptr));
}

// --- SimpleClusterResolver -----------------------------------------------------------------------

namespace {

class Simple : public ClusterResolver::Impl {
 public:
  Simple(ClusterSpec cluster, SimpleClusterResolverOptions options)
      : Impl("SimpleClusterResolver"), cluster_(std::move(cluster)), options_(std::move(options)) {
    give(options_.task_type, options_.task_id, options_.rpc_layer);
    for (const auto& [kind, count] : options_.num_accelerators) {
      if (count >= 0) continue;
      refuse(name(), "num_accelerators", {cat(kind, ": ", count), "0 or more", "correct it"});
    }
  }

 private:
  ClusterSpec read_cluster_spec() override { return cluster_; }
  std::string read_master(const std::optional<std::string>& type, const std::optional<int64_t>& id,
                          const std::optional<std::string>& layer) override {
    const std::string address = type && id ? cluster_.task_address(*type, *id) : options_.master;
    return with_rpc_layer(address, layer ? *layer : rpc_layer());
  }
  std::map<std::string, int64_t> read_accelerators() override { return options_.num_accelerators; }
  std::string read_environment() const override { return options_.environment; }

  ClusterSpec cluster_;
  SimpleClusterResolverOptions options_;
};

// --- UnionResolver -------------------------------------------------------------------------------

/// The tasks of one job in several clusters.
class MergedJob {
 public:
  explicit MergedJob(std::string name) : name_(std::move(name)) {}

  void add(const JobTasks& tasks) { parts_.push_back(tasks); }

  JobTasks merged() const {
    bool lists = true;
    for (const JobTasks& part : parts_)
      lists = lists && (part.is_dense() || part.by_index().empty());
    return lists ? joined() : by_index();
  }

 private:
  JobTasks joined() const {
    std::vector<std::string> addresses;
    std::map<std::string, bool> seen;
    for (const JobTasks& part : parts_) {
      for (const auto& [index, address] : part.by_index()) {
        const bool is_new = seen.emplace(to_lower(address), true).second;
        if (is_new || cluster::port_of(address) == 0) addresses.push_back(address);
      }
    }
    return addresses;
  }

  JobTasks by_index() const {
    std::map<int64_t, std::string> tasks;
    for (const JobTasks& part : parts_) {
      for (const auto& [index, address] : part.by_index()) {
        const auto [first, is_new] = tasks.emplace(index, address);
        if (is_new || to_lower(first->second) == to_lower(address)) continue;
        refuse("UnionResolver", cat(name_, ":", index),
               {cat("the addresses ", first->second, " and ", address), "one address of a task",
                "correct one of the resolvers"});
      }
    }
    return tasks;
  }

  std::string name_;
  std::vector<JobTasks> parts_;
};

class Union : public ClusterResolver::Impl {
 public:
  Union(std::vector<ClusterResolver> resolvers, const UnionResolverOptions& options)
      : Impl("UnionResolver"), resolvers_(std::move(resolvers)) {
    if (resolvers_.empty()) {
      refuse(name(), "resolvers", {"none", "at least one resolver", "name one"});
    }
    for (std::size_t i = 0; i < resolvers_.size(); ++i) {
      if (resolvers_[i].defined()) continue;
      refuse(name(), cat("resolvers[", i, "]"),
             {"a handle that holds no resolver", "a resolver", "leave it out"});
    }
    give(options.task_type, options.task_id, options.rpc_layer);
  }

 private:
  ClusterSpec read_cluster_spec() override {
    std::map<std::string, MergedJob> jobs;
    for (const ClusterResolver& resolver : resolvers_) {
      const ClusterSpec cluster = resolver.cluster_spec();
      for (const auto& [job, tasks] : cluster.as_dict())
        jobs.try_emplace(job, job).first->second.add(tasks);
    }
    std::map<std::string, JobTasks> merged;
    for (const auto& [job, parts] : jobs) merged.emplace(job, parts.merged());
    return merged;
  }
  std::string read_master(const std::optional<std::string>& type, const std::optional<int64_t>& id,
                          const std::optional<std::string>& layer) override {
    if (!type || !id) return resolvers_[0].master({}, {}, layer);
    return with_rpc_layer(read_cluster_spec().task_address(*type, *id),
                          layer ? *layer : rpc_layer());
  }
  std::map<std::string, int64_t> read_accelerators() override {
    return resolvers_[0].num_accelerators();
  }
  std::string read_environment() const override { return resolvers_[0].environment(); }
  std::optional<std::string> read_task_type() const override { return resolvers_[0].task_type(); }
  std::optional<int64_t> read_task_id() const override { return resolvers_[0].task_id(); }
  std::string read_rpc_layer() const override { return resolvers_[0].rpc_layer(); }

  std::vector<ClusterResolver> resolvers_;
};

}  // namespace

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec cluster_spec,
                                             SimpleClusterResolverOptions options)
    : ClusterResolver(std::make_shared<Simple>(std::move(cluster_spec), std::move(options))) {}

UnionResolver::UnionResolver(std::vector<ClusterResolver> resolvers, UnionResolverOptions options)
    : ClusterResolver(std::make_shared<Union>(std::move(resolvers), options)) {}

}  // namespace tutti::distribute::cluster_resolver
