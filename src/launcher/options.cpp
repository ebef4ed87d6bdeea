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
    "  tutti-run --workers 2 -- ./multi_worker\n"
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

// A validator without its say in the help text.
template <class Validator>
CLI::Validator quiet(Validator validator) {
  return validator.description("");
}

// Options of one group of the help text.
class Group {
 public:
  Group(CLI::App& app, std::string title) : app_(app), title_(std::move(title)) {}

  void number(const char* name, int& value, int low, int high, const char* help) {
    add(name, value, "N", help)->check(quiet(CLI::Range(low, high)));
  }
  void seconds(const char* name, double& value, const char* help) {
    add(name, value, "S", help)->capture_default_str()->check(quiet(CLI::Range(0.0, 1e9)));
  }
  void text(const char* name, std::string& value, const char* kind, const char* help) {
    add(name, value, kind, help);
  }
  CLI::Option* list(const char* name, std::vector<std::string>& value, const char* kind,
                    const char* help) {
    return add(name, value, kind, help)->expected(1)->take_all();
  }
  template <class Choice>
  void choice(const char* name, Choice& value, const std::map<std::string, Choice>& choices,
              const char* help) {
    add(name, value, "WORD", help)->transform(quiet(CLI::CheckedTransformer(choices)));
  }
  void flag(const char* name, bool& value, const char* help) {
    app_.add_flag_callback(
            name, [&value] { value = !value; }, help)
        ->group(title_);
  }

 private:
  template <class Value>
  CLI::Option* add(const char* name, Value& value, const char* kind, const char* help) {
    return app_.add_option(name, value, help)->type_name(kind)->group(title_);
  }

  CLI::App& app_;
  std::string title_;
};

void add_cluster(CLI::App& app, Options& options) {
  constexpr int kMost = 100000;
  Group group(app, "The cluster");
  group.number("--workers", options.workers, 1, kMost,
               "workers (default: one, or one for each place of the hosts)");
  group.number("--chief", options.chief, 0, 1,
               "1: a chief of its own (default: worker 0 is chief)");
  group.number("--ps", options.ps, 0, kMost, "parameter servers");
  group.number("--evaluator", options.evaluator, 0, 1, "1: a task that evaluates the checkpoints");
}

void add_places(CLI::App& app, Options& options) {
  Group group(app, "Where it runs (default: this machine)");
  group
      .list("--hosts", options.hosts, "LIST", "machines reached by ssh: a,b or a:4,b:4 (4 places)")
      ->delimiter(',');
  group.flag("--slurm", options.slurm, "the nodes of the Slurm allocation, by srun");
  group.text("--only", options.only, "TASK",
             "start worker:1 alone, here; each machine has its own tutti-run");
  group.text("--host,--bind", options.host, "ADDR",
             "this machine's address in TF_CONFIG (default: 127.0.0.1)");
  group.number("--port", options.port, 1, 65535,
               "for a machine's first task, the next has one more (default: free ports)");
  group.text("--ssh", options.ssh, "COMMAND", "ssh with options of yours");
  group.text("--srun", options.srun, "COMMAND", "srun with options of yours");
}

void add_gifts(CLI::App& app, Options& options) {
  Group group(app, "What a task gets");
  group.list("--env", options.env, "VAR",
             "NAME=VALUE, or NAME for its value here; as often as needed");
  group.number("--threads", options.threads, 0, 65536,
               "OMP_NUM_THREADS; 0 leaves it (default: the machine's cores, dealt out)");
  group.number("--gpus-per-task", options.gpus_per_task, 0, 4096,
               "GPUs for each chief and worker, its own (default: all see all)");
}

void add_output(CLI::App& app, Options& options) {
  Group group(app, "Output");
  group.text("--log-dir", options.log_dir, "DIR",
             "each task's output into a file of its own there (worker-1.log)");
  group.flag("--no-prefix", options.prefix, "lines as they come, without [worker 1]");
  group.choice<Color>(
      "--color", options.color,
      {{"auto", Color::kAuto}, {"always", Color::kAlways}, {"never", Color::kNever}},
      "auto (on a terminal), always or never");
  group.flag("--dry-run", options.dry_run, "print what would be started, and start nothing");
}

void add_ends(CLI::App& app, Options& options) {
  Group group(app, "Failures and ends (S: seconds)");
  group.number("--max-restarts", options.max_restarts, 0, 1000000,
               "restarts after failures (default: none)");
  group.choice<RestartMode>(
      "--restart", options.restart,
      {{"auto", RestartMode::kAuto}, {"group", RestartMode::kGroup}, {"task", RestartMode::kTask}},
      "group: all tasks; task: the failed one alone; auto: task with --ps, else group");
  group.seconds("--backoff", options.backoff, "wait before the first restart; doubles, at most 60");
  group.seconds("--settled", options.settled,
                "a run this long resets the wait, and if preempted is restarted uncounted");
  group.seconds("--grace", options.grace, "between a signal passed on and SIGKILL");
  group.seconds("--notice", options.notice, "between a failure and SIGTERM for the others");
  group.seconds("--timeout", options.timeout, "the whole job at most; 0: no limit");
  group.seconds("--evaluator-wait", options.evaluator_wait,
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
