#pragma once
// Slurm's short forms of lists, and what a scheduler's list of hosts becomes.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::cluster {

/// `n[1-2],m5,o[03-04,6]` → n1, n2, m5, o03, o04, o6, in order, zeros kept; several brackets in a
/// name count from the last. InvalidArgument, beginning with `operation`, for what cannot be read
/// and for more than 65,536 hosts.
std::vector<std::string> expand_host_list(const std::string& operation, std::string_view text);

/// `3(x2),2,1` → 3, 3, 2, 1. Likewise.
std::vector<int64_t> expand_tasks_per_node(const std::string& operation, std::string_view text);

/// By name, with numbers in it by value: n9 before n10.
bool natural_less(std::string_view a, std::string_view b);

/// A host and how many tasks run there.
struct HostTasks {
  std::string host;
  int64_t tasks = 0;
};

/// The addresses of all tasks, host by host: the i-th of a host has port port_base + i.
std::vector<std::string> addresses_of(const std::string& operation,
                                      const std::vector<HostTasks>& hosts, int64_t port_base);

/// (host's index, index on it) of a rank.
std::pair<int64_t, int64_t> place_of(const std::vector<HostTasks>& hosts, int64_t rank);

}  // namespace tutti::cluster
