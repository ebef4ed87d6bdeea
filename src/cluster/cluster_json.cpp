#include "cluster/cluster_json.h"

#include <algorithm>
#include <array>
#include <map>

#include "cluster/roles.h"
#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

using train::ClusterSpec;
using train::JobTasks;

const char* const kTfConfig = "TF_CONFIG";
const char* const kLenient = "or read it with TFConfigClusterResolver({.strict = false})";

// What stands beside the cluster. Platforms that set TF_CONFIG add the ones that Tutti has no use
// for: Kubeflow `environment`, Google's AI Platform `environment`, `job`, `trial` and `cloud`.
constexpr std::array kTopKeys = {"cluster",        "task",        "rpc_layer",
                                 "session_master", "environment", "job"};
constexpr std::array kTaskKeys = {"type", "index", "trial", "cloud"};

template <class Keys>
void check_keys(const JsonAt& object, const Keys& known) {
  for (const std::string& key : object.keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    object.find(key)->refuse({"an unknown key", cat("one of ", join(known, ", ")),
                              cat("remove it or correct its name, ", kLenient)});
  }
}

/// Addresses by what they are compared by, and where they were read.
using Places = std::map<std::string, std::string>;

std::string read_address(const JsonAt& at, PortZero port_zero, Places& places) {
  const std::string address = at.text();
  if (const auto fault = fault_of_address(address)) at.refuse(*fault);
  if (port_of(address) == 0) {
    if (port_zero == PortZero::kAllowed) return address;
    at.refuse({cat("port \"0\" of ", shown(address)), "a number from 1 to 65535",
               "the others must know the port beforehand"});
  }
  const auto [first, is_new] = places.emplace(to_lower(address), at.path());
  if (!is_new) {
    at.refuse({cat("the address ", shown(address), " of ", first->second),
               "an address of its own for every task", "correct one of them"});
  }
  return address;
}

JobTasks read_tasks(const JsonAt& job, PortZero port_zero, Places& places) {
  std::map<int64_t, std::string> tasks;
  if (job.is_array()) {
    for (std::size_t i = 0; i < job.size(); ++i)
      tasks.emplace(static_cast<int64_t>(i), read_address(job.at(i), port_zero, places));
  } else if (job.is_object()) {
    for (const std::string& key : job.keys()) {
      const JsonAt task = *job.find(key);
      const auto index = whole_number(key, ClusterSpec::kMostTasks - 1);
      if (!index) {
        task.refuse({cat("the index ", shown(key)),
                     cat("a whole number from 0 to ", ClusterSpec::kMostTasks - 1), "correct it"});
      }
      tasks.emplace(*index, read_address(task, port_zero, places));
    }
  } else {
    job.refuse({job.description(), "a list of addresses, or an object of index and address",
                "write [\"host:port\"]"});
  }
  return tasks;
}

void check_counts(const JsonAt& at, const ClusterSpec& cluster) {
  for (const char* job : {kChief, kEvaluator}) {
    if (!cluster.has_job(job) || cluster.num_tasks(job) <= 1) continue;
    at.find(job)->refuse(
        {cat(cluster.num_tasks(job), " tasks of ", job), "at most one", "make the others workers"});
  }
}

std::string read_type(const JsonAt& at, bool strict) {
  if (!strict && at.value().is_number_integer()) return at.value().dump();
  const std::string type = at.text();
  if (strict) {
    if (auto fault = fault_of_task_type(type)) {
      fault->remedy += cat(", ", kLenient);
      at.refuse(*fault);
    }
  } else if (const auto fault = fault_of_job_name(type)) {
    at.refuse(*fault);
  }
  return type;
}

int64_t read_index(const JsonAt& at) {
  std::optional<int64_t> index;
  if (at.is_string()) {
    index = whole_number(at.text(), ClusterSpec::kMostTasks - 1);
  } else if (at.value().is_number_unsigned() &&
             at.value().get<uint64_t>() < static_cast<uint64_t>(ClusterSpec::kMostTasks)) {
    index = at.value().get<int64_t>();
  }
  if (!index) {
    at.refuse({cat("the index ", at.description()),
               cat("a whole number from 0 to ", ClusterSpec::kMostTasks - 1), "correct it"});
  }
  return *index;
}

/// The task must be one of the cluster, if there is a cluster.
void check_task(const JsonAt& task, const TfConfig& config) {
  if (!config.cluster || !config.task_type) return;
  const std::string& type = *config.task_type;
  if (!config.cluster.has_job(type)) {
    if (type != kEvaluator) {
      task.at("type").refuse({shown(type),
                              cat("a job of the cluster: ", join(config.cluster.jobs(), ", ")),
                              "add the job to the cluster or correct the type"});
    }
    if (config.task_id.value_or(0) != 0) {
      task.at("index").refuse(
          {cat("the index ", *config.task_id), "0: there is one evaluator", "correct the index"});
    }
    return;
  }
  if (!config.task_id) return;
  if (config.cluster.as_dict().at(type).by_index().count(*config.task_id) > 0) return;
  const int64_t count = config.cluster.num_tasks(type);
  task.at("index").refuse({cat("the index ", *config.task_id),
                           config.cluster.as_dict().at(type).is_dense()
                               ? cat("0 to ", count - 1, ", the job ", type, " has ", count,
                                     count == 1 ? " task" : " tasks")
                               : cat("an index of the job ", type),
                           "correct the index or add the address"});
}

void read_task(const JsonAt& task, bool strict, TfConfig& config) {
  task.expect_object("write {\"type\": \"worker\", \"index\": 0}");
  if (strict) check_keys(task, kTaskKeys);
  if (const auto type = task.find("type")) config.task_type = read_type(*type, strict);
  if (const auto index = task.find("index")) config.task_id = read_index(*index);
  if (strict && config.task_type.has_value() != config.task_id.has_value()) {
    const bool lacks_type = !config.task_type;
    task.refuse({cat(lacks_type ? "an index without a type" : "a type without an index"), "both",
                 cat("add the ", lacks_type ? "type" : "index", ", ", kLenient)});
  }
  check_task(task, config);
}

void check_session_master(const JsonAt& at) {
  const std::string text = at.text();
  const std::size_t scheme = text.find("://");
  const std::string address = scheme == std::string::npos ? text : text.substr(scheme + 3);
  if (scheme != std::string::npos) {
    if (const auto fault = fault_of_rpc_layer(text.substr(0, scheme))) at.refuse(*fault);
  }
  if (text.empty() || text == "local") return;
  if (const auto fault = fault_of_address(address)) at.refuse(*fault);
}

}  // namespace

train::ClusterSpec read_cluster(const JsonAt& cluster, PortZero port_zero, JobNames job_names) {
  cluster.expect_object("write {\"worker\": [\"host:port\"]}");
  std::map<std::string, JobTasks> jobs;
  Places places;
  for (const std::string& name : cluster.keys()) {
    const JsonAt job = *cluster.find(name);
    if (const auto fault = fault_of_job_name(name)) job.refuse(*fault);
    if (job_names == JobNames::kKnown) {
      if (auto fault = fault_of_task_type(name)) {
        fault->remedy += cat(", ", kLenient);
        job.refuse(*fault);
      }
    }
    JobTasks tasks = read_tasks(job, port_zero, places);
    if (job_names == JobNames::kKnown && tasks.by_index().empty()) {
      job.refuse({"no addresses", "at least one", "add one or leave the job out"});
    }
    jobs.emplace(name, std::move(tasks));
  }
  return ClusterSpec(std::move(jobs));
}

TfConfig read_tf_config(std::string_view text, bool strict) {
  TfConfig config;
  const bool blank = std::all_of(text.begin(), text.end(), [](char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
  });
  // Blank or not, text over the size is refused.
  if (blank && text.size() <= JsonRules{}.most_bytes) return config;
  const JsonDocument document(text, kTfConfig);
  const JsonAt top = document.top();
  top.expect_object("write {\"cluster\": {…}, \"task\": {…}}");
  if (strict) check_keys(top, kTopKeys);
  if (const auto cluster = top.find("cluster")) {
    config.cluster =
        read_cluster(*cluster, PortZero::kRefused, strict ? JobNames::kKnown : JobNames::kAny);
    check_counts(*cluster, config.cluster);
  }
  if (const auto task = top.find("task")) read_task(*task, strict, config);
  if (const auto layer = top.find("rpc_layer")) {
    config.rpc_layer = layer->text();
    if (const auto fault = fault_of_rpc_layer(config.rpc_layer)) layer->refuse(*fault);
  }
  if (const auto master = top.find("session_master")) {
    check_session_master(*master);
    config.session_master = master->text();
  }
  return config;
}

}  // namespace tutti::cluster
