#pragma once
// How a task is started: its program, arguments and environment, here or by ssh or srun.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan.h"
#include "launcher/spawn.h"

namespace tutti::launcher {

/// What tells one start of a job from another.
struct Round {
  std::string job_id;      ///< the same for all tasks and restarts
  int restarts = 0;        ///< of this task so far
  int64_t generation = 0;  ///< greater at each start of the group; 0: not known to all tasks
  std::string error_file;  ///< where the task may leave its first error; empty: nowhere
};

/// `word` for a POSIX shell: as it is, or in single quotes.
std::string quoted(std::string_view word);

/// The program of tasks[index]. A task of another machine is a POSIX shell script there: it takes
/// names of signals from standard input, a line each, passes them to the task's process group, and
/// kills the group when standard input ends. Throws InvalidArgument for --env NAME without a value
/// here, and for GPUs that are not there.
Program program_of(const Options& options, const std::vector<Task>& tasks, std::size_t index,
                   const Round& round);

/// `program` as a line for a shell.
std::string shell_line(const Program& program);

/// Throws NotFound or PermissionDenied when execvp would not find `name`.
void check_program(const std::string& name);

}  // namespace tutti::launcher
