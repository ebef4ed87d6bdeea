#include "launcher/run.h"

#include <filesystem>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <random>

#include "launcher/guard.h"
#include "launcher/start.h"
#include "launcher/supervisor.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

namespace fs = std::filesystem;

std::string random_id() {
  std::random_device random;
  std::ostringstream text;
  for (int i = 0; i < 2; ++i) text << std::hex << std::setw(8) << std::setfill('0') << random();
  return text.str();
}

Job make_job(const Options& options) {
  Job job = {
      .options = options, .tasks = place_tasks(options, hosts_of(options)), .id = random_id()};
  if (options.only.empty()) {
    job.started.resize(job.tasks.size());
    std::iota(job.started.begin(), job.started.end(), 0);
  } else {
    job.started = {only_task(job.tasks, options.only)};
    job.tasks[job.started[0]].machine.clear();
  }
  const bool any_here = std::any_of(job.started.begin(), job.started.end(),
                                    [&](std::size_t i) { return job.tasks[i].machine.empty(); });
  if (any_here) check_program(options.command[0]);
  return job;
}

// Gone with its contents when this process leaves the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "tutti-run-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Unavailable(cat("make a folder [", pattern, "] failed"));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

int run(const Options& options) {
  Job job = make_job(options);
  if (!options.log_dir.empty()) {
    std::error_code error;
    fs::create_directories(options.log_dir, error);
    if (error) throw Unavailable(cat("make a folder [", options.log_dir, "]: ", error.message()));
  }
  const TemporaryFolder errors;
  job.error_folder = errors.path();
  return run_guarded([&](int control) {
    int code = 1;
    try {
      HeldPorts held;
      code = Supervisor(job, held, control).run();
    } catch (const std::exception& error) {
      std::cerr << "[tutti-run] " << error.what() << std::endl;
      code = exit_code_of_error(error);
    }
    kill_children(10);
    std::error_code ignored;
    fs::remove_all(job.error_folder, ignored);  // the other process may have been killed
    return code;
  });
}

void print_plan(const Options& options, std::ostream& out) {
  Job job = make_job(options);
  HeldPorts held;
  assign_ports(job, held);
  for (const std::size_t i : job.started) {
    const Task& task = job.tasks[i];
    out << "# " << task.name() << " at " << address_text(task.address, task.port)
        << (task.machine.empty() ? ""
            : options.slurm      ? cat(", by srun on ", task.machine)
                                 : cat(", by ssh on ", task.machine))
        << "\n"
        << shell_line(program_of(options, job.tasks, i, {.job_id = job.id})) << "\n";
  }
}

int exit_code_of_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (!known) return 1;
  switch (known->code()) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kPermissionDenied:
      return 126;
    case ErrorCode::kNotFound:
      return 127;
    default:
      return 1;
  }
}

}  // namespace tutti::launcher
