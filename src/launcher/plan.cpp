#include "launcher/plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

Task task_at(std::string type, int index, const Host& host) {
  Task task;
  task.type = std::move(type);
  task.index = index;
  task.address = host.address;
  task.machine = host.here ? "" : host.name;
  return task;
}

void number_by_machine(std::vector<Task>& tasks) {
  std::map<std::string, int> all, training;
  for (Task& task : tasks) {
    ++all[task.address];
    if (task.trains()) task.local_index = training[task.address]++;
  }
  for (Task& task : tasks) {
    task.tasks_there = all[task.address];
    if (task.trains()) task.local_count = training[task.address];
  }
}

}  // namespace

std::string Task::name() const { return cat(type, " ", index); }

std::vector<Task> place_tasks(const Options& options, const std::vector<Host>& hosts) {
  const int places = std::accumulate(hosts.begin(), hosts.end(), 0,
                                     [](int sum, const Host& host) { return sum + host.places; });
  const int workers = options.workers > 0 ? options.workers : std::max(1, places - options.chief);
  const int trainers = options.chief + workers;
  const int rounds = (trainers + places - 1) / places;

  std::vector<Task> tasks;
  int placed = 0;
  for (const Host& host : hosts) {
    for (int i = 0; i < host.places * rounds && placed < trainers; ++i, ++placed) {
      const bool chief = placed < options.chief;
      tasks.push_back(
          task_at(chief ? "chief" : "worker", chief ? 0 : placed - options.chief, host));
    }
  }
  for (int i = 0; i < options.ps; ++i) tasks.push_back(task_at("ps", i, hosts[i % hosts.size()]));
  if (options.evaluator) tasks.push_back(task_at("evaluator", 0, hosts.back()));
  number_by_machine(tasks);
  return tasks;
}

std::size_t only_task(const std::vector<Task>& tasks, const std::string& only) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    known.push_back(cat(tasks[i].type, ":", tasks[i].index));
    if (known.back() == only) return i;
  }
  throw InvalidArgument(cat("tutti-run: --only ", only, ", expected a task of the cluster: ",
                            join(known, ", "), "; name one, or change --workers or --hosts"));
}

std::string tf_config(const std::vector<Task>& tasks, std::size_t index) {
  const Task& self = tasks[index];
  nlohmann::ordered_json cluster = nlohmann::ordered_json::object();
  for (const Task& task : tasks) {
    if (task.type == "evaluator" && self.type != "evaluator") continue;
    cluster[task.type].push_back(address_text(task.address, task.port));
  }
  nlohmann::ordered_json config;
  config["cluster"] = std::move(cluster);
  config["task"] = {{"type", self.type}, {"index", self.index}};
  return config.dump();
}

}  // namespace tutti::launcher
