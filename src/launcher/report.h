#pragma once
// What tutti-run says about failures.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/task_process.h"

namespace tutti::launcher {

/// What a task left in its TUTTI_ERROR_FILE: "1764518705.25 what happened".
struct RecordedError {
  double time = 0;  ///< seconds since the epoch
  std::string text;
};

/// Nothing for a file that is not there, or is not of this form.
std::optional<RecordedError> read_error_file(const std::string& path);

struct Failure {
  std::string task;   ///< "worker 1", with its machine when that is another
  std::size_t index;  ///< of the task
  pid_t pid = 0;
  int restarts = 0;
  double lived = 0;  ///< seconds
  End end;
  bool ended_by_us = false;
  std::vector<std::string> last_lines;
  std::optional<RecordedError> error;
  bool told_first = false;  ///< preempted, and the one of the job that was told to end
};

Failure failure_of(const TaskProcess& process, std::size_t index, int restarts,
                   const std::string& error_file);

/// "worker 1" for the error "worker:1 failed first: …", as the tasks of a job say who brought them
/// down; else empty.
std::string blamed_task(const std::string& error);

/// "worker 1 (told first), worker 0": those of them that were preempted.
std::string preempted_tasks(const std::vector<Failure>& failures);

/// The root cause comes to the front: the failure with the earliest recorded error, or the one that
/// this error blames; without such errors the first.
void put_root_first(std::vector<Failure>& failures);

/// "worker 1 (pid 7, start 0), exit code 3 after 1.2 s"
std::string summary(const Failure& failure);

/// The lines of the report: the first failure with what it said, then the others.
std::vector<std::string> report_lines(const std::vector<Failure>& failures);

/// Seconds as people write them: "0.5", "12".
std::string seconds_text(double seconds);

}  // namespace tutti::launcher
