#include <algorithm>
#include <numeric>

#include "cluster/host_list.h"
#include "cluster/names.h"
#include "cluster/roles.h"
#include "cluster/variables.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cluster/resolvers.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using cluster::HostTasks;
using cluster::refuse;
using cluster::Variables;

constexpr const char* kName = "SlurmClusterResolver";
constexpr const char* kOutside = "not inside a step of Slurm";
constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
constexpr int64_t kMostTasks = train::ClusterSpec::kMostTasks;

[[noreturn]] void fail(const std::string& where, const cluster::Fault& fault) {
  throw FailedPrecondition(cat(kName, " [", where, "]: ", fault.found, ", expected ",
                               fault.expected, "; ", fault.remedy));
}

void check_count(const std::string& where, int64_t count, int64_t low) {
  if (count >= low && count <= kMostTasks) return;
  refuse(kName, where, {cat(count), cat(low, " to ", kMostTasks), "correct it"});
}

std::vector<HostTasks> read_hosts(const SlurmClusterResolverOptions& options,
                                  const Variables& variables) {
  std::vector<HostTasks> hosts;
  if (!options.tasks_of_host.empty()) {
    for (const auto& [host, tasks] : options.tasks_of_host) hosts.push_back({host, tasks});
  } else {
    const auto names = cluster::expand_host_list(
        "SLURM_STEP_NODELIST", variables.require("SLURM_STEP_NODELIST", kOutside));
    std::vector<int64_t> tasks(names.size(), options.tasks_per_node.value_or(0));
    if (!options.tasks_per_node) {
      const char* const variable = "SLURM_STEP_TASKS_PER_NODE";
      tasks = cluster::expand_tasks_per_node(variable, variables.require(variable, kOutside));
      if (tasks.size() != names.size()) {
        refuse(kName, variable,
               {cat("tasks of ", tasks.size(), " hosts"),
                cat("those of the ", names.size(), " hosts of SLURM_STEP_NODELIST"),
                "both variables must be of one step"});
      }
    }
    for (std::size_t i = 0; i < names.size(); ++i) hosts.push_back({names[i], tasks[i]});
  }
  std::sort(hosts.begin(), hosts.end(), [](const HostTasks& a, const HostTasks& b) {
    return cluster::natural_less(a.host, b.host);
  });
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    check_count(hosts[i].host, hosts[i].tasks, 0);
    if (i == 0 || hosts[i].host != hosts[i - 1].host) continue;
    refuse(kName, "SLURM_STEP_NODELIST",
           {cat("the host ", hosts[i].host, " twice"), "every host once", "correct the list"});
  }
  return hosts;
}

int64_t most_tasks(const std::vector<HostTasks>& hosts) {
  int64_t most = 0;
  for (const HostTasks& host : hosts) most = std::max(most, host.tasks);
  return most;
}

class Slurm : public ClusterResolver::Impl {
 public:
  explicit Slurm(const SlurmClusterResolverOptions& options)
      : Impl(kName),
        variables_(kName, options.variables),
        port_base_(options.port_base),
        auto_set_gpu_(options.auto_set_gpu),
        jobs_(options.jobs) {
    rank_ = variables_.require_number("SLURM_PROCID", kOutside, kMostTasks - 1);
    if (jobs_.empty()) {
      jobs_[cluster::kWorker] =
          variables_.require_number("SLURM_STEP_NUM_TASKS", kOutside, kMostTasks);
    }
    hosts_ = read_hosts(options, variables_);
    check_jobs();
    check_place();
    share_gpus(options);
    give({}, {}, options.rpc_layer);
  }

 private:
  void check_jobs() const {
    int64_t wanted = 0;
    for (const auto& [job, tasks] : jobs_) {
      check_count(cat("jobs.", job), tasks, 0);
      wanted += tasks;
    }
    int64_t present = 0;
    for (const HostTasks& host : hosts_) present += host.tasks;
    if (wanted != present) {
      fail("jobs", {cat(wanted, " tasks"), cat("the ", present, " that the step has"),
                    "change the jobs, or start the step with srun -n"});
    }
    if (rank_ >= present) {
      fail("SLURM_PROCID", {cat(rank_), cat("0 to ", present - 1), "start as many tasks as jobs"});
    }
  }

  /// Slurm says where it placed this task; another distribution than blocks would give every task
  /// a wrong address.
  void check_place() const {
    if (!variables_.has("SLURM_NODEID") || !variables_.has("SLURM_LOCALID")) return;
    const std::pair<int64_t, int64_t> placed = {
        variables_.require_number("SLURM_NODEID", kOutside, kMostTasks),
        variables_.require_number("SLURM_LOCALID", kOutside, kMostTasks)};
    const auto expected = cluster::place_of(hosts_, rank_);
    if (placed == expected) return;
    fail("SLURM_NODEID",
         {cat("task ", rank_, " is number ", placed.second, " of host ", placed.first),
          cat("number ", expected.second, " of host ", expected.first),
          "start the step with srun --distribution=block:block"});
  }

  void share_gpus(const SlurmClusterResolverOptions& options) {
    gpus_per_node_ =
        options.gpus_per_node ? *options.gpus_per_node : cluster::count_gpus(kName, variables_);
    check_count("gpus_per_node", gpus_per_node_, 0);
    const int64_t most = std::max<int64_t>(1, most_tasks(hosts_));
    gpus_per_task_ = options.gpus_per_task.value_or(gpus_per_node_ / most);
    check_count("gpus_per_task", gpus_per_task_, 0);
    if (most * gpus_per_task_ > gpus_per_node_) {
      fail("gpus_per_task",
           {cat(most, " tasks of ", gpus_per_task_, " GPUs on a host"),
            cat("at most the ", gpus_per_node_, " GPUs of a host"), "ask for fewer"});
    }
    // Shares are of what Slurm gave this host, under the names that it gave them.
    const std::string visible = variables_.text(kVisibleDevices);
    if (!visible.empty()) gpu_names_ = split(visible, ',');
    if (static_cast<int64_t>(gpu_names_.size()) >= gpus_per_node_) return;
    gpu_names_.clear();
    for (int64_t i = 0; i < gpus_per_node_; ++i) gpu_names_.push_back(std::to_string(i));
  }

  train::ClusterSpec read_cluster_spec() override {
    const auto addresses = cluster::addresses_of(kName, hosts_, port_base_);
    std::map<std::string, train::JobTasks> clusters;
    int64_t first = 0;
    for (const auto& [job, tasks] : jobs_) {
      clusters[job] =
          std::vector<std::string>(addresses.begin() + first, addresses.begin() + first + tasks);
      if (first <= rank_ && rank_ < first + tasks) {
        found_type_ = job;
        found_id_ = rank_ - first;
      }
      first += tasks;
    }
    train::ClusterSpec cluster(std::move(clusters));
    if (auto_set_gpu_ && gpus_per_node_ > 0) variables_.set(kVisibleDevices, own_gpus());
    return cluster;
  }

  std::string own_gpus() const {
    const int64_t first = cluster::place_of(hosts_, rank_).second * gpus_per_task_;
    return join(std::vector<std::string>(gpu_names_.begin() + first,
                                         gpu_names_.begin() + first + gpus_per_task_),
                ",");
  }

  std::map<std::string, int64_t> read_accelerators() override { return {{"GPU", gpus_per_task_}}; }
  std::optional<std::string> read_task_type() const override { return found_type_; }
  std::optional<int64_t> read_task_id() const override { return found_id_; }

  Variables variables_;
  int64_t port_base_;
  bool auto_set_gpu_;
  std::map<std::string, int64_t> jobs_;
  int64_t rank_ = 0;
  std::vector<HostTasks> hosts_;
  int64_t gpus_per_node_ = 0;
  int64_t gpus_per_task_ = 0;
  std::vector<std::string> gpu_names_;
  std::optional<std::string> found_type_;
  std::optional<int64_t> found_id_;
};

}  // namespace

SlurmClusterResolver::SlurmClusterResolver(SlurmClusterResolverOptions options)
    : ClusterResolver(std::make_shared<Slurm>(options)) {}

std::pair<std::optional<std::string>, std::optional<int64_t>> SlurmClusterResolver::get_task_info()
    const {
  return {task_type(), task_id()};
}

}  // namespace tutti::distribute::cluster_resolver
