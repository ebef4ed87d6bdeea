#include "tutti/cluster/cluster_spec.h"

#include <algorithm>
#include <ostream>
#include <unordered_map>

#include "cluster/checked_json.h"
#include "cluster/cluster_json.h"
#include "cluster/names.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

using cluster::refuse;
using cluster::shown;

const char* const kOperation = "ClusterSpec";

std::string task_text(const std::string& job, int64_t index) { return cat(job, ":", index); }

std::string python_text(const std::string& text) { return "'" + text + "'"; }

std::string python_text(const JobTasks& tasks) {
  std::vector<std::string> parts;
  for (const auto& [index, address] : tasks.by_index()) {
    parts.push_back(tasks.is_dense() ? python_text(address)
                                     : cat(index, ": ", python_text(address)));
  }
  return tasks.is_dense() ? cat("[", join(parts, ", "), "]") : cat("{", join(parts, ", "), "}");
}

// FNV-1a; each piece ends with a byte that none of them contains.
class Fnv1a {
 public:
  void add(std::string_view text) {
    for (char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0);
  }
  uint64_t value() const { return hash_; }

 private:
  void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3U; }
  uint64_t hash_ = 0xcbf29ce484222325U;
};

}  // namespace

JobTasks::JobTasks(std::vector<std::string> addresses) {
  int64_t index = 0;
  for (std::string& address : addresses) tasks_.emplace(index++, std::move(address));
}

bool JobTasks::is_dense() const {
  return !tasks_.empty() && tasks_.begin()->first == 0 &&
         tasks_.rbegin()->first == static_cast<int64_t>(tasks_.size()) - 1;
}

ClusterSpec::ClusterSpec(std::map<std::string, JobTasks> cluster) {
  std::unordered_map<std::string, std::string> task_of;  // by address in lower case
  int64_t num_tasks = 0;
  for (const auto& [name, tasks] : cluster) {
    if (const auto fault = cluster::fault_of_job_name(name)) refuse(kOperation, "job", *fault);
    for (const auto& [index, address] : tasks.by_index()) {
      const std::string task = task_text(name, index);
      if (index < 0 || index >= kMostTasks || ++num_tasks > kMostTasks) {
        refuse(
            kOperation, task,
            {cat("task ", std::max(index, num_tasks), " of a cluster"),
             cat("indices from 0 to ", kMostTasks - 1, " and as many tasks"), "correct the index"});
      }
      if (const auto fault = cluster::fault_of_address(address)) refuse(kOperation, task, *fault);
      if (cluster::port_of(address) == 0) continue;
      const auto [other, is_new] = task_of.emplace(to_lower(address), task);
      if (!is_new) {
        refuse(kOperation, task,
               {cat("the address ", shown(address), " of ", other->second),
                "an address of its own for every task", "correct one of them"});
      }
    }
  }
  jobs_ = std::move(cluster);
}

ClusterSpec ClusterSpec::from_json(std::string_view text) {
  const cluster::JsonDocument document(text, kOperation);
  return cluster::read_cluster(document.top(), cluster::PortZero::kAllowed);
}

const JobTasks& ClusterSpec::job(const std::string& job_name) const {
  const auto found = jobs_.find(job_name);
  if (found == jobs_.end()) {
    refuse(kOperation, "job",
           {cat("no job ", shown(job_name)),
            jobs_.empty() ? "none: the cluster is empty" : cat("one of ", join(jobs(), ", ")),
            "add the job or correct its name"});
  }
  return found->second;
}

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [name, tasks] : jobs_) names.push_back(name);
  return names;
}

int64_t ClusterSpec::num_tasks(const std::string& job_name) const {
  return static_cast<int64_t>(job(job_name).by_index().size());
}

std::vector<int64_t> ClusterSpec::task_indices(const std::string& job_name) const {
  std::vector<int64_t> indices;
  for (const auto& [index, address] : job(job_name).by_index()) indices.push_back(index);
  return indices;
}

const std::string& ClusterSpec::task_address(const std::string& job_name,
                                             int64_t task_index) const {
  const JobTasks& tasks = job(job_name);
  const auto found = tasks.by_index().find(task_index);
  if (found == tasks.by_index().end()) {
    const std::size_t count = tasks.by_index().size();
    refuse(kOperation, job_name,
           {cat("no task with index ", task_index),
            tasks.is_dense() ? cat("0 to ", count - 1) : cat("one of its ", count, " tasks"),
            "add the task or correct the index"});
  }
  return found->second;
}

std::vector<std::string> ClusterSpec::job_tasks(const std::string& job_name) const {
  const auto& tasks = job(job_name).by_index();
  std::vector<std::string> addresses(
      tasks.empty() ? 0 : static_cast<std::size_t>(tasks.rbegin()->first) + 1);
  for (const auto& [index, address] : tasks) addresses[static_cast<std::size_t>(index)] = address;
  return addresses;
}

std::string ClusterSpec::to_json() const {
  cluster::Json cluster = cluster::Json::object();
  for (const auto& [name, tasks] : jobs_) {
    cluster::Json& job = cluster[name] =
        tasks.is_dense() ? cluster::Json::array() : cluster::Json::object();
    for (const auto& [index, address] : tasks.by_index()) {
      if (tasks.is_dense()) {
        job.push_back(address);
      } else {
        job[std::to_string(index)] = address;
      }
    }
  }
  return cluster.dump();
}

uint64_t ClusterSpec::hash() const {
  Fnv1a hash;
  hash.add("tutti cluster 1");
  for (const auto& [name, tasks] : jobs_) {
    hash.add(name);
    for (const auto& [index, address] : tasks.by_index()) {
      hash.add(std::to_string(index));
      hash.add(to_lower(address));
    }
    hash.add("");
  }
  return hash.value();
}

std::string to_string(const ClusterSpec& cluster) {
  std::vector<std::string> parts;
  for (const auto& [name, tasks] : cluster.as_dict())
    parts.push_back(cat(python_text(name), ": ", python_text(tasks)));
  return cat("ClusterSpec({", join(parts, ", "), "})");
}

std::ostream& operator<<(std::ostream& out, const ClusterSpec& cluster) {
  return out << to_string(cluster);
}

}  // namespace tutti::train
