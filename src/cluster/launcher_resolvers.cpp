// The environments of torchrun and of MPI.

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

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

constexpr int64_t kMostRanks = train::ClusterSpec::kMostTasks;
constexpr std::size_t kLargestHostFile = std::size_t{1} << 20;

/// Which rank this process is, in the job and on its host.
struct Ranks {
  int64_t rank;
  int64_t size;
  int64_t local_rank;
  int64_t local_size;
};

void check_ranks(const std::string& operation, const Ranks& ranks) {
  const bool fits = ranks.size >= 1 && ranks.rank < ranks.size && ranks.local_size >= 1 &&
                    ranks.local_rank < ranks.local_size && ranks.local_size <= ranks.size;
  if (fits) return;
  refuse(operation, "rank",
         {cat("rank ", ranks.rank, " of ", ranks.size, ", on its host ", ranks.local_rank, " of ",
              ranks.local_size),
          "ranks below their numbers", "the variables must be of one job"});
}

/// The resolver of a launcher that starts workers only, host by host.
class Launched : public ClusterResolver::Impl {
 public:
  /// Throws when `ranks` is not where `hosts` have it.
  Launched(const char* name, const std::vector<HostTasks>& hosts, int64_t port_base,
           const Ranks& ranks)
      : Impl(name), rank_(ranks.rank) {
    const int64_t local = cluster::place_of(hosts, ranks.rank).second;
    if (local != ranks.local_rank) {
      throw FailedPrecondition(
          cat(name, " [local rank]: rank ", ranks.rank, " is number ", ranks.local_rank,
              " on its host, expected number ", local,
              "; place ranks host by host (mpirun --map-by slot), and name the hosts in the order "
              "of their ranks"));
    }
    cluster_ =
        train::ClusterSpec({{cluster::kWorker, cluster::addresses_of(name, hosts, port_base)}});
  }
  void set_layer(const std::string& rpc_layer) { give({}, {}, rpc_layer); }
  void set_variables(Variables variables) { variables_ = std::move(variables); }

 private:
  train::ClusterSpec read_cluster_spec() override { return cluster_; }
  std::optional<std::string> read_task_type() const override { return cluster::kWorker; }
  std::optional<int64_t> read_task_id() const override { return rank_; }
  std::map<std::string, int64_t> read_accelerators() override {
    return cluster::visible_accelerators(name(), variables_);
  }

  int64_t rank_;
  train::ClusterSpec cluster_;
  Variables variables_{"", nullptr};
};

// --- torchrun --------------------------------------------------------------------------------

constexpr const char* kTorchrun = "TorchrunClusterResolver";

std::vector<HostTasks> torchrun_hosts(const TorchrunClusterResolverOptions& options,
                                      const Variables& variables, const Ranks& ranks) {
  const char* const outside = "not started by torchrun";
  const std::string master = variables.require("MASTER_ADDR", outside);
  if (const auto fault = cluster::fault_of_host(master)) refuse(kTorchrun, "MASTER_ADDR", *fault);
  if (ranks.size % ranks.local_size != 0) {
    refuse(kTorchrun, "LOCAL_WORLD_SIZE",
           {cat(ranks.local_size, " workers on this host of ", ranks.size), "as many on every host",
            "give all hosts the same --nproc-per-node"});
  }
  const int64_t num_hosts = ranks.size / ranks.local_size;
  const int64_t group =
      num_hosts == 1 ? 0 : variables.require_number("GROUP_RANK", outside, kMostRanks - 1);
  if (ranks.rank != group * ranks.local_size + ranks.local_rank) {
    refuse(kTorchrun, "RANK",
           {cat("rank ", ranks.rank, " is number ", ranks.local_rank, " of host ", group),
            cat("rank ", group * ranks.local_size + ranks.local_rank),
            "the variables must be of one job"});
  }
  std::vector<std::string> hosts = options.hosts;
  if (hosts.empty() && num_hosts == 1) hosts = {master};
  if (hosts.empty()) {
    throw FailedPrecondition(cat(kTorchrun, " [hosts]: ", num_hosts,
                                 " hosts, of which torchrun "
                                 "names only MASTER_ADDR, expected all of them; name them in the "
                                 "order of their group ranks by .hosts"));
  }
  if (static_cast<int64_t>(hosts.size()) != num_hosts) {
    refuse(kTorchrun, "hosts",
           {cat(hosts.size(), " hosts"), cat(num_hosts), "name every host once"});
  }
  std::vector<HostTasks> places;
  for (const std::string& host : hosts) {
    if (const auto fault = cluster::fault_of_host(host)) refuse(kTorchrun, "hosts", *fault);
    places.push_back({host, ranks.local_size});
  }
  return places;
}

std::shared_ptr<ClusterResolver::Impl> make_torchrun(
    const TorchrunClusterResolverOptions& options) {
  const Variables variables(kTorchrun, options.variables);
  const char* const outside = "not started by torchrun";
  const Ranks ranks{variables.require_number("RANK", outside, kMostRanks - 1),
                    variables.require_number("WORLD_SIZE", outside, kMostRanks),
                    variables.require_number("LOCAL_RANK", outside, kMostRanks - 1),
                    variables.require_number("LOCAL_WORLD_SIZE", outside, kMostRanks)};
  check_ranks(kTorchrun, ranks);
  const int64_t port_base = options.port_base != 0
                                ? options.port_base
                                : variables.require_number("MASTER_PORT", outside, 65535) + 1;
  auto impl = std::make_shared<Launched>(kTorchrun, torchrun_hosts(options, variables, ranks),
                                         port_base, ranks);
  impl->set_layer(options.rpc_layer);
  impl->set_variables(variables);
  return impl;
}

// --- MPI -----------------------------------------------------------------------------------------

constexpr const char* kMpi = "MPIClusterResolver";
constexpr const char* kOutsideMpi = "not started by mpirun";

Ranks mpi_ranks(const Variables& variables) {
  struct Names {
    const char* rank;
    const char* size;
    const char* local_rank;
    const char* local_size;
  };
  static constexpr std::array kImplementations = {
      Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE"},
      Names{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
            "MV2_COMM_WORLD_LOCAL_SIZE"},
      Names{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
  for (const Names& names : kImplementations) {
    if (!variables.has(names.rank)) continue;
    const Ranks ranks{variables.require_number(names.rank, kOutsideMpi, kMostRanks - 1),
                      variables.require_number(names.size, kOutsideMpi, kMostRanks),
                      variables.require_number(names.local_rank, kOutsideMpi, kMostRanks - 1),
                      variables.require_number(names.local_size, kOutsideMpi, kMostRanks)};
    check_ranks(kMpi, ranks);
    return ranks;
  }
  variables.require(kImplementations[0].rank, kOutsideMpi);  // throws
  return {};
}

/// Hosts in the order of their first line; tasks 0 where no number of slots is said.
class HostFile {
 public:
  /// `host`, `host:slots` or `host slots=N`, and comments behind #.
  void add_line(std::string line, const std::string& where) {
    line = line.substr(0, line.find('#'));
    std::replace(line.begin(), line.end(), '\t', ' ');
    std::replace(line.begin(), line.end(), '\r', ' ');
    std::vector<std::string> words = split(line, ' ');
    words.erase(std::remove(words.begin(), words.end(), ""), words.end());
    if (words.empty()) return;
    std::string host = words[0];
    std::optional<int64_t> slots = 0;
    const std::size_t colon = host.rfind(':');
    if (colon != std::string::npos && host.back() != ']') {
      slots = cluster::whole_number(host.substr(colon + 1), kMostRanks);
      host.resize(colon);
    }
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i].rfind("slots=", 0) == 0)
        slots = cluster::whole_number(words[i].substr(6), kMostRanks);
    }
    if (!slots) refuse(kMpi, where, {cluster::shown(line), "host:slots", "correct the number"});
    if (const auto fault = cluster::fault_of_host(host)) refuse(kMpi, where, *fault);
    add(host, *slots);
  }

  /// For `ranks.size` ranks: a host with N lines has N slots, one with neither lines nor a number
  /// as many as this process' host has ranks.
  std::vector<HostTasks> filled(const Ranks& ranks) const {
    const bool repeated =
        std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.lines > 1; });
    std::vector<HostTasks> places;
    int64_t left = ranks.size;
    for (const Host& host : hosts_) {
      int64_t slots = host.slots > 0 ? host.slots : repeated ? host.lines : ranks.local_size;
      slots = std::min(slots, left);
      if (slots > 0) places.push_back({host.name, slots});
      left -= slots;
    }
    if (left > 0) {
      throw FailedPrecondition(cat(kMpi, " [hosts]: room for ", ranks.size - left,
                                   " ranks, expected the ", ranks.size,
                                   " that were started; name all hosts, with their slots"));
    }
    return places;
  }

  bool empty() const { return hosts_.empty(); }

 private:
  struct Host {
    std::string name;
    int64_t slots;
    int64_t lines;
  };
  void add(const std::string& name, int64_t slots) {
    const auto found = std::find_if(hosts_.begin(), hosts_.end(),
                                    [&](const Host& host) { return host.name == name; });
    if (found == hosts_.end()) {
      hosts_.push_back({name, slots, 1});
    } else {
      found->slots += slots;
      ++found->lines;
    }
  }
  std::vector<Host> hosts_;
};

void read_host_file(const std::string& path, HostFile& hosts) {
  std::ifstream file(path);
  std::string text(kLargestHostFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  if (!file.is_open() || file.bad()) {
    throw NotFound(cat(kMpi, " [", path,
                       "]: cannot be read, expected a file of hosts; correct the "
                       "path"));
  }
  if (text.size() > kLargestHostFile) {
    refuse(kMpi, path, {"more than 1 MiB", "a list of hosts", "name another file"});
  }
  int64_t number = 0;
  for (const std::string& line : split(text, '\n'))
    hosts.add_line(line, cat(path, " line ", ++number));
}

HostFile mpi_host_file(const MPIClusterResolverOptions& options, const Variables& variables) {
  HostFile hosts;
  for (const std::string& host : options.hosts) hosts.add_line(host, "hosts");
  if (!hosts.empty()) return hosts;
  if (!options.hostfile.empty()) {
    read_host_file(options.hostfile, hosts);
    return hosts;
  }
  for (const char* name : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
    const std::string path = variables.text(name);
    if (path.empty()) continue;
    read_host_file(path, hosts);
    return hosts;
  }
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const std::string list = variables.text(name);
    if (list.empty()) continue;
    for (const std::string& host : cluster::expand_host_list(name, list))
      hosts.add_line(host, name);
    return hosts;
  }
  return hosts;
}

std::shared_ptr<ClusterResolver::Impl> make_mpi(const MPIClusterResolverOptions& options) {
  const Variables variables(kMpi, options.variables);
  const Ranks ranks = mpi_ranks(variables);
  HostFile hosts = mpi_host_file(options, variables);
  if (hosts.empty() && ranks.local_size == ranks.size) hosts.add_line("localhost", "hosts");
  if (hosts.empty()) {
    throw FailedPrecondition(
        cat(kMpi, " [hosts]: ", ranks.size, " ranks, ", ranks.local_size,
            " of them on this host, and no list of hosts, expected one; name it by .hosts or "
            ".hostfile, as given to mpirun"));
  }
  auto impl = std::make_shared<Launched>(kMpi, hosts.filled(ranks), options.port_base, ranks);
  impl->set_layer(options.rpc_layer);
  impl->set_variables(variables);
  return impl;
}

}  // namespace

TorchrunClusterResolver::TorchrunClusterResolver(TorchrunClusterResolverOptions options)
    : ClusterResolver(make_torchrun(options)) {}

MPIClusterResolver::MPIClusterResolver(MPIClusterResolverOptions options)
    : ClusterResolver(make_mpi(options)) {}

}  // namespace tutti::distribute::cluster_resolver
