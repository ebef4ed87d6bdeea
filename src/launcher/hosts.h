#pragma once
// The machines of a job: this one, those of --hosts, or those of a Slurm allocation.

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"

namespace tutti::launcher {

struct Host {
  std::string name;     ///< as ssh and srun know it
  std::string address;  ///< as TF_CONFIG has it
  int places = 1;       ///< chief and workers that it takes before the next host is filled
  bool here = false;    ///< tasks are started without ssh or srun
};

/// Throws InvalidArgument for a name that is none, for a host given twice, and for a loopback name
/// beside other machines, which could not reach it; FailedPrecondition without an allocation.
std::vector<Host> hosts_of(const Options& options);

/// "node:2222"; an IPv6 address gets its brackets.
std::string address_text(const std::string& address, int port);

/// The counts of SLURM_TASKS_PER_NODE: "2(x3),1" gives 2, 2, 2, 1.
std::vector<int> slurm_counts(std::string_view text);

}  // namespace tutti::launcher
