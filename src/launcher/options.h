#pragma once
// What tutti-run was asked for. docs/launcher.md explains each option.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::launcher {

enum class RestartMode {
  kAuto,   ///< kTask where there are parameter servers, else kGroup
  kGroup,  ///< a failure ends and restarts all tasks
  kTask,   ///< a worker or parameter server is restarted alone, a chief takes all with it
};

enum class Color { kAuto, kAlways, kNever };

struct Options {
  // The cluster.
  int workers = 0;  ///< 0: one for each place of the hosts that no chief takes, at least one
  int chief = 0;
  int ps = 0;
  int evaluator = 0;
  // Where it runs.
  std::vector<std::string> hosts;  ///< "name" or "name:places"; empty: this machine
  bool slurm = false;
  std::string only;  ///< "worker:1": start this task alone, here
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: free ones
  std::string ssh = "ssh";
  std::string srun = "srun";
  // What tasks get.
  std::vector<std::string> env;  ///< "NAME=VALUE", or "NAME" for the value that it has here
  int threads = -1;              ///< OMP_NUM_THREADS; 0: leave it, -1: the cores dealt out
  int gpus_per_task = 0;         ///< 0: every task sees all
  // Output.
  std::string log_dir;
  bool prefix = true;
  Color color = Color::kAuto;
  bool dry_run = false;
  // Ends, in seconds.
  int max_restarts = 0;
  RestartMode restart = RestartMode::kAuto;
  double backoff = 0.5;
  double settled = 5;
  double grace = 30;
  double notice = 1;
  double timeout = 0;  ///< 0: none
  double evaluator_wait = 0;
  std::vector<std::string> command;
};

/// The command line's options; nothing when it asked for help or the version, which is then printed
/// to standard output. Throws InvalidArgument for what does not parse or does not fit together.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace tutti::launcher
