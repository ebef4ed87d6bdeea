#include "launcher/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::launcher {
namespace {

constexpr const char* kHead =
    "Starts the tasks of a training job: one program, many processes, TF_CONFIG says who is who.\n"
    "  tutti-run --workers 2 -- ./multi_worker --epochs 3\n"
    "  tutti-run --chief 1 --workers 2 --ps 2 -- ./parameter_server\n"
    "  tutti-run --hosts node1:4,node2:4 --max-restarts 3 -- ./multi_worker\n"
    "  salloc --nodes 2 tutti-run --slurm -- ./multi_worker";

constexpr const char* kFoot =
    "Exit codes: 0 all went well; the first failed task's own code; 128 + N when signal N ended "
    "it\n"
    "or tutti-run; 42 preempted, state saved, start again; 124 --timeout; 126 and 127 the program\n"
    "cannot be run, or is not there; 2 wrong use; 1 tutti-run's own trouble.\n"
    "docs/launcher.md has all of it.";

class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(28); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: tutti-run [OPTIONS] -- PROGRAM [ARGUMENTS]\n";
  }
};

void add_cluster(CLI::App& app, Options& options) {
  constexpr const char* kGroup = "The cluster";
  constexpr int kMost = 100000;
  app.add_option("--workers", options.workers,
                 "workers (default: one, or one for each place of the hosts)")
      ->check(CLI::Range(1, kMost))
      ->group(kGroup);
  app.add_option("--chief", options.chief, "1: a chief of its own (default: worker 0 is chief)")
      ->check(CLI::Range(0, 1))
      ->group(kGroup);
  app.add_option("--ps", options.ps, "parameter servers")
      ->check(CLI::Range(0, kMost))
      ->group(kGroup);
  app.add_option("--evaluator", options.evaluator, "1: a task that evaluates the checkpoints")
      ->check(CLI::Range(0, 1))
      ->group(kGroup);
}

void add_places(CLI::App& app, Options& options) {
  constexpr const char* kGroup = "Where it runs (default: this machine)";
  app.add_option("--hosts", options.hosts, "machines reached by ssh: a,b or a:4,b:4 (4 places)")
      ->delimiter(',')
      ->group(kGroup);
  app.add_flag("--slurm", options.slurm, "the nodes of the Slurm allocation, by srun")
      ->group(kGroup);
  app.add_option("--only", options.only,
                 "start this task alone, here: worker:1 (each machine has its own tutti-run)")
      ->group(kGroup);
  app.add_option("--host,--bind", options.host, "this machine's address in TF_CONFIG")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--port", options.port,
                 "a machine's first task gets this port, the next one more "
                 "(default: free ports)")
      ->check(CLI::Range(1, 65535))
      ->group(kGroup);
  app.add_option("--ssh", options.ssh, "the ssh command with its options")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--srun", options.srun, "the srun command with its options")
      ->capture_default_str()
      ->group(kGroup);
}

void add_gifts(CLI::App& app, Options& options) {
  constexpr const char* kGroup = "What a task gets";
  app.add_option("--env", options.env, "NAME=VALUE, or NAME for its value here; any number of them")
      ->take_all()
      ->group(kGroup);
  app.add_option("--threads", options.threads,
                 "OMP_NUM_THREADS; 0 leaves it (default: the cores of the machine, dealt out)")
      ->check(CLI::Range(0, 65536))
      ->group(kGroup);
  app.add_option("--gpus-per-task", options.gpus_per_task,
                 "this many GPUs for each chief and worker, its own (default: all see all)")
      ->check(CLI::Range(0, 4096))
      ->group(kGroup);
}

void add_output(CLI::App& app, Options& options) {
  constexpr const char* kGroup = "Output";
  app.add_option("--log-dir", options.log_dir,
                 "each task's output into a file of its own there (worker-1.log)")
      ->group(kGroup);
  app.add_flag("!--no-prefix", options.prefix, "lines as they come, without [worker 1]")
      ->group(kGroup);
  const std::map<std::string, Color> colors = {
      {"auto", Color::kAuto}, {"always", Color::kAlways}, {"never", Color::kNever}};
  app.add_option("--color", options.color, "auto (on a terminal), always or never")
      ->transform(CLI::CheckedTransformer(colors).description(""))
      ->group(kGroup);
  app.add_flag("--dry-run", options.dry_run, "print what would be started, and start nothing")
      ->group(kGroup);
}

void add_ends(CLI::App& app, Options& options) {
  constexpr const char* kGroup = "Failures and ends (seconds)";
  const auto seconds = CLI::Range(0.0, 1e9);
  app.add_option("--max-restarts", options.max_restarts, "restarts after failures")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000))
      ->group(kGroup);
  const std::map<std::string, RestartMode> modes = {
      {"auto", RestartMode::kAuto}, {"group", RestartMode::kGroup}, {"task", RestartMode::kTask}};
  app.add_option("--restart", options.restart,
                 "group: all tasks; task: the failed one alone; auto: task with --ps, else group")
      ->transform(CLI::CheckedTransformer(modes).description(""))
      ->group(kGroup);
  const auto add = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str()->check(seconds)->group(kGroup);
  };
  add("--backoff", options.backoff, "wait before the first restart; doubles, at most 60");
  add("--settled", options.settled,
      "a run this long resets the wait, and its preemption (exit code 42) counts as no restart");
  add("--grace", options.grace, "between a signal passed on and SIGKILL");
  add("--notice", options.notice, "between a failure and SIGTERM for the others");
  add("--timeout", options.timeout, "the whole job at most; 0: no limit");
  add("--evaluator-wait", options.evaluator_wait,
      "between the end of training and SIGTERM for the evaluator");
}

// CLI11 sees the options only, so that nothing of the program's own is taken for ours.
void split_command_line(int argc, const char* const* argv, std::vector<std::string>& ours,
                        std::vector<std::string>& command) {
  const auto end = argv + argc;
  const auto dashes = std::find_if(
      argv + 1, end, [](const char* argument) { return std::string_view(argument) == "--"; });
  ours.assign(argv + 1, dashes);
  if (dashes != end) command.assign(dashes + 1, end);
}

void check(const Options& options) {
  const auto refuse = [](std::string_view found, std::string_view expected) {
    throw InvalidArgument(cat("tutti-run: ", found, ", expected ", expected));
  };
  if (options.command.empty()) {
    refuse("no program", "one after --; say tutti-run --workers 2 -- ./program");
  }
  if (options.slurm && !options.hosts.empty()) {
    refuse("--slurm and --hosts", "one of them; leave out --hosts, the allocation names the nodes");
  }
  if (options.slurm && options.gpus_per_task > 0) {
    refuse("--slurm and --gpus-per-task", "Slurm's own; say --srun 'srun --gpus-per-task=1'");
  }
  if (options.host.empty()) refuse("an empty --host", "an address");
  if (!options.only.empty() && options.port == 0) {
    refuse("--only without --port", "a port that all machines agree on; add --port 2222");
  }
  for (const std::string& assignment : options.env) {
    if (assignment.empty() || assignment[0] == '=') {
      refuse(cat("--env \"", assignment, "\""), "NAME=VALUE or NAME");
    }
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> ours;
  split_command_line(argc, argv, ours, options.command);

  CLI::App app(kHead, "tutti-run");
  app.footer(kFoot);
  app.set_version_flag("--version", std::string("tutti-run ") + TUTTI_VERSION_STRING);
  app.formatter(std::make_shared<Formatter>());
  add_cluster(app, options);
  add_places(app, options);
  add_gifts(app, options);
  add_output(app, options);
  add_ends(app, options);
  try {
    std::reverse(ours.begin(), ours.end());  // CLI11 takes them from the back
    app.parse(ours);
  } catch (const CLI::Success& asked) {
    app.exit(asked, std::cout, std::cerr);
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    throw InvalidArgument(cat("tutti-run: \"", join(app.remaining(), " "),
                              "\", expected options of tutti-run; the program comes after --, see "
                              "tutti-run --help"));
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(cat("tutti-run: ", error.what(), "; see tutti-run --help"));
  }
  check(options);
  return options;
}

}  // namespace tutti::launcher
