#include "launcher/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/environment.h"
#include "launcher/capture.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

constexpr int kMostPlaces = 4096;

int whole_number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all = error == std::errc() && end == text.data() + text.size();
  return all && value >= 1 && value <= most ? value : 0;
}

bool is_loopback(std::string_view name) {
  return name == "localhost" || name == "::1" || name.substr(0, 4) == "127.";
}

bool is_this_machine(std::string_view name) {
  char own[256] = {};
  if (gethostname(own, sizeof own - 1) != 0) return false;
  const std::string_view full = own;
  return name == full || name == full.substr(0, full.find('.'));
}

// ssh would take a name that begins with a dash for an option.
bool is_host_name(std::string_view name) {
  return !name.empty() && name[0] != '-' && name.size() <= 255 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%' ||
                  c == '@';
         });
}

// name, name:places, [v6] or [v6]:places
Host parse_host(std::string_view text) {
  Host host;
  std::string_view places;
  bool counted = false;
  if (!text.empty() && text[0] == '[' && text.find(']') != text.npos) {
    const std::size_t close = text.find(']');
    host.name = text.substr(1, close - 1);
    counted = close + 1 < text.size();
    if (counted && text[close + 1] == ':') places = text.substr(close + 2);
  } else {
    const std::size_t colon = text.find(':');
    counted = colon != text.npos;
    host.name = text.substr(0, colon);
    if (counted) places = text.substr(colon + 1);
  }
  if (counted) host.places = whole_number(places, kMostPlaces);
  if (!is_host_name(host.name) || host.places == 0) {
    throw InvalidArgument(cat("tutti-run [--hosts]: \"", text, "\", expected a host name, or one ",
                              "with its places as in node1:4 or [fe80::1]:4"));
  }
  host.address = host.name.substr(host.name.find('@') + 1);  // user@node is ssh's affair
  host.here = is_loopback(host.name) || is_this_machine(host.name);
  return host;
}

std::vector<Host> named_hosts(const Options& options) {
  std::vector<Host> hosts;
  std::set<std::string> seen;
  for (const std::string& text : options.hosts) {
    hosts.push_back(parse_host(text));
    if (!seen.insert(hosts.back().address).second) {
      throw InvalidArgument(cat("tutti-run [--hosts]: ", hosts.back().address,
                                " twice, expected each host once; give it places, as in ",
                                hosts.back().name, ":2"));
    }
  }
  for (Host& host : hosts) {
    if (!is_loopback(host.name)) continue;
    if (hosts.size() > 1) {
      throw InvalidArgument(cat("tutti-run [--hosts]: ", host.name, " beside other machines, ",
                                "expected a name by which they reach it; give its own name"));
    }
    host.address = options.host;
  }
  return hosts;
}

std::vector<Host> allocated_hosts() {
  if (!environment("SLURM_JOB_ID")) {
    throw FailedPrecondition(
        "tutti-run [--slurm]: no SLURM_JOB_ID in the environment, expected a Slurm allocation; say "
        "salloc --nodes 2 tutti-run --slurm …, or use a script of sbatch (examples/slurm)");
  }
  if (environment_int("SLURM_STEP_NUM_TASKS", 1, 1, 1 << 30) > 1) {
    throw FailedPrecondition(
        "tutti-run [--slurm]: srun started several of them, expected one for the allocation, which "
        "starts the tasks; leave out srun, or start the program itself by srun with "
        "SlurmClusterResolver");
  }
  const auto list = environment("SLURM_JOB_NODELIST");
  if (!list) throw FailedPrecondition("tutti-run [--slurm]: no SLURM_JOB_NODELIST, expected nodes");
  const std::string names = capture({"scontrol", "show", "hostnames", *list}, 10);
  std::vector<Host> hosts;
  for (const std::string& name : split(names, '\n')) {
    if (name.empty()) continue;
    if (!is_host_name(name)) {
      throw FailedPrecondition(cat("tutti-run [scontrol show hostnames ", *list, "]: \"", name,
                                   "\", expected a host name a line"));
    }
    hosts.push_back({.name = name, .address = name});
  }
  if (hosts.empty()) {
    throw FailedPrecondition(cat("tutti-run [scontrol show hostnames ", *list,
                                 "]: no name, expected a host name a line"));
  }
  const auto counts = environment("SLURM_TASKS_PER_NODE");
  if (!counts) return hosts;
  const std::vector<int> places = slurm_counts(*counts);
  if (places.size() != hosts.size()) {
    throw FailedPrecondition(cat("tutti-run [SLURM_TASKS_PER_NODE=", *counts, "]: ", places.size(),
                                 " counts, expected one for each of the ", hosts.size(), " nodes"));
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].places = places[i];
  return hosts;
}

}  // namespace

std::vector<Host> hosts_of(const Options& options) {
  if (options.slurm) return allocated_hosts();
  if (!options.hosts.empty()) return named_hosts(options);
  return {{.name = "localhost", .address = options.host, .here = true}};
}

std::string address_text(const std::string& address, int port) {
  const bool v6 = address.find(':') != address.npos;
  return v6 ? cat("[", address, "]:", port) : cat(address, ":", port);
}

std::vector<int> slurm_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& piece : split(text, ',')) {
    const std::size_t open = piece.find("(x");
    const bool repeated = open != piece.npos && piece.back() == ')';
    const int count = whole_number(std::string_view(piece).substr(0, open), kMostPlaces);
    const int times =
        repeated ? whole_number(std::string_view(piece).substr(open + 2, piece.size() - open - 3),
                                1 << 20)
                 : 1;
    if (count == 0 || times == 0 || (!repeated && open != piece.npos)) {
      throw InvalidArgument(cat("tutti-run [SLURM_TASKS_PER_NODE=", text, "]: \"", piece,
                                "\", expected a count or a repeated one as in 2(x3)"));
    }
    counts.insert(counts.end(), times, count);
  }
  return counts;
}

}  // namespace tutti::launcher
