#pragma once
// Which tasks there are, on which machine each runs, and what TF_CONFIG tells them.

#include <string>
#include <vector>

#include "launcher/hosts.h"
#include "launcher/options.h"

namespace tutti::launcher {

struct Task {
  std::string type;  ///< chief, worker, ps, evaluator
  int index = 0;
  std::string address;  ///< of its machine, in TF_CONFIG
  std::string machine;  ///< whom ssh or srun asks; empty: this one
  int port = 0;
  int tasks_there = 1;   ///< on the same machine, this one included
  int local_index = -1;  ///< among its machine's chief and workers; -1 for other types
  int local_count = 0;

  std::string name() const;  ///< "worker 1"
  bool trains() const { return type == "chief" || type == "worker"; }
};

/// Chief and workers fill the hosts in order, each up to its places (as many times over as are
/// needed); parameter servers go around; the evaluator is on the last host. Ports are left 0.
std::vector<Task> place_tasks(const Options& options, const std::vector<Host>& hosts);

/// Index of the task that --only names. Throws InvalidArgument when there is none.
std::size_t only_task(const std::vector<Task>& tasks, const std::string& only);

/// TF_CONFIG of tasks[index]. The evaluator is in nobody's cluster but its own.
std::string tf_config(const std::vector<Task>& tasks, std::size_t index);

}  // namespace tutti::launcher
