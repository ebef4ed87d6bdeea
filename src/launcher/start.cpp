#include "launcher/start.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/environment.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

using Assignments = std::vector<std::pair<std::string, std::string>>;

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// GPU numbers of a task: the next ones of those that this machine shows, none for who does not
// train.
std::string gpus_of(const Task& task, int count) {
  std::vector<std::string> shown;
  const auto here = environment("CUDA_VISIBLE_DEVICES");
  if (here && task.machine.empty()) shown = split(*here, ',');
  if (!task.trains()) return "";
  std::vector<std::string> own;
  for (int i = task.local_index * count; i < (task.local_index + 1) * count; ++i) {
    if (!shown.empty() && i >= static_cast<int>(shown.size())) {
      throw InvalidArgument(cat("tutti-run [--gpus-per-task ", count, "]: CUDA_VISIBLE_DEVICES=",
                                *here, ", expected at least ", task.local_count * count,
                                " for the tasks of this machine; start fewer, or give them fewer"));
    }
    own.push_back(shown.empty() ? std::to_string(i) : shown[static_cast<std::size_t>(i)]);
  }
  return join(own, ",");
}

void add_environment_of_user(const Options& options, Assignments& result) {
  for (const std::string& text : options.env) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const char* here = std::getenv(name.c_str());
    if (equals == text.npos && !here) {
      throw InvalidArgument(cat("tutti-run [--env ", name,
                                "]: not set here, expected a value; say ", "--env ", name,
                                "=VALUE"));
    }
    result.emplace_back(name, equals == text.npos ? here : text.substr(equals + 1));
  }
}

// Another machine's shell knows nothing of our environment.
void add_environment_to_carry(Assignments& result) {
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == text.npos) continue;
    for (const std::string_view prefix : {"TUTTI_", "OMP_", "NCCL_", "GLOO_", "LD_LIBRARY_PATH="}) {
      if (text.substr(0, prefix.size()) != prefix) continue;
      result.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
}

Assignments environment_of(const Options& options, const std::vector<Task>& tasks,
                           std::size_t index, const Round& round) {
  const Task& task = tasks[index];
  Assignments result = {{"TF_CONFIG", tf_config(tasks, index)},
                        {"TUTTI_JOB_ID", round.job_id},
                        {"TUTTI_TASK_TYPE", task.type},
                        {"TUTTI_TASK_INDEX", std::to_string(task.index)},
                        {"TUTTI_RESTART_COUNT", std::to_string(round.restarts)}};
  if (task.trains()) {
    result.emplace_back("TUTTI_LOCAL_INDEX", std::to_string(task.local_index));
    result.emplace_back("TUTTI_LOCAL_COUNT", std::to_string(task.local_count));
  }
  if (round.generation > 0)
    result.emplace_back("TUTTI_GENERATION", std::to_string(round.generation));
  if (!round.error_file.empty()) result.emplace_back("TUTTI_ERROR_FILE", round.error_file);
  if (options.gpus_per_task > 0) {
    result.emplace_back("CUDA_VISIBLE_DEVICES", gpus_of(task, options.gpus_per_task));
  }
  if (options.threads > 0) {
    result.emplace_back("OMP_NUM_THREADS", std::to_string(options.threads));
  } else if (options.threads < 0 && task.tasks_there > 1 && task.machine.empty() &&
             !environment("OMP_NUM_THREADS")) {
    const int share = std::max(1, cores() / task.tasks_there);
    result.emplace_back("OMP_NUM_THREADS", std::to_string(share));
  }
  add_environment_of_user(options, result);
  return result;
}

std::string words(const std::vector<std::string>& command) {
  std::vector<std::string> result;
  for (const std::string& word : command) result.push_back(quoted(word));
  return join(result, " ");
}

// Runs a command in a session of its own. The shell would have it ignore SIGINT and SIGQUIT, as all
// that it starts with &; env undoes that where it can (coreutils 8.31). What comes on standard
// input is for the group; its end is ours.
std::string remote_script(const std::vector<std::string>& command) {
  return cat(
      "exec 3<&0 </dev/null; default=; "
      "env --default-signal=INT,QUIT true 2>/dev/null && default='env --default-signal=INT,QUIT'; "
      "setsid $default ",
      words(command),
      " 3<&- & task=$!; "
      "{ while read -r name <&3; do kill -s \"$name\" -- \"-$task\" || kill -s \"$name\" "
      "\"$task\"; "
      "done; kill -s KILL -- \"-$task\" || kill -s KILL \"$task\"; } >/dev/null 2>&1 & watch=$!; "
      "wait \"$task\"; code=$?; "
      "kill -s KILL -- \"-$task\" 2>/dev/null; kill \"$watch\"; exit \"$code\"");
}

std::string ssh_script(const Options& options, const Task& task, Assignments assignments) {
  Assignments all;
  add_environment_to_carry(all);
  std::move(assignments.begin(), assignments.end(), std::back_inserter(all));
  char folder[4096];
  const bool known = getcwd(folder, sizeof folder) != nullptr;
  std::string script = known ? cat("cd ", quoted(folder), " || exit 126; ") : "";
  for (const auto& [name, value] : all) script += cat("export ", name, "=", quoted(value), "; ");
  if (options.threads < 0 && task.tasks_there > 1) {
    script +=
        cat("share=$(( $(nproc) / ", task.tasks_there, " )); [ \"$share\" -gt 0 ] || share=1; ",
            "export OMP_NUM_THREADS=\"${OMP_NUM_THREADS:-$share}\"; ");
  }
  return script + remote_script(options.command);
}

std::vector<std::string> pieces(const std::string& command) {
  std::vector<std::string> result;
  for (std::string& word : split(command, ' ')) {
    if (!word.empty()) result.push_back(std::move(word));
  }
  return result;
}

}  // namespace

std::string quoted(std::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(word);
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

Program program_of(const Options& options, const std::vector<Task>& tasks, std::size_t index,
                   const Round& round) {
  const Task& task = tasks[index];
  Assignments assignments = environment_of(options, tasks, index, round);
  if (task.machine.empty()) return {options.command, std::move(assignments)};
  Program program;
  if (options.slurm) {
    program.command = pieces(options.srun);
    for (const std::string& word :
         {std::string("--nodes=1"), std::string("--ntasks=1"), cat("--nodelist=", task.machine),
          std::string("--overlap"), std::string("--unbuffered"), std::string("--export=ALL"),
          cat("--job-name=", task.type, "-", task.index), std::string("/bin/sh"), std::string("-c"),
          remote_script(options.command)}) {
      program.command.push_back(word);
    }
    program.environment = std::move(assignments);
    return program;
  }
  program.command = pieces(options.ssh);
  for (const char* word : {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                           "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"}) {
    program.command.push_back(word);
  }
  program.command.push_back(task.machine);
  program.command.push_back(
      cat("exec /bin/sh -c ", quoted(ssh_script(options, task, std::move(assignments)))));
  return program;
}

std::string shell_line(const Program& program) {
  std::string line;
  for (const auto& [name, value] : program.environment) line += cat(name, "=", quoted(value), " ");
  return line + words(program.command);
}

void check_program(const std::string& name) {
  const auto runnable = [](const std::string& path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           access(path.c_str(), X_OK) == 0;
  };
  const std::string where = cat("start [", name, "]: ");
  if (name.find('/') != name.npos) {
    if (runnable(name)) return;
    if (access(name.c_str(), F_OK) == 0) {
      throw PermissionDenied(cat(where, "not executable, expected a program; chmod +x it"));
    }
    throw NotFound(cat(where, "no such file, expected a program; mind the current folder"));
  }
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "/usr/local/bin:/bin:/usr/bin", ':')) {
    if (runnable(cat(folder.empty() ? "." : folder, "/", name))) return;
  }
  throw NotFound(cat(where, "not in PATH, expected a program; say ./", name,
                     " for one in the current folder"));
}

}  // namespace tutti::launcher
