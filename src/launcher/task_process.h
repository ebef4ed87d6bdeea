#pragma once
// One task as it runs: its process group, its output, its deadlines.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/output.h"
#include "launcher/plan.h"
#include "launcher/spawn.h"

namespace tutti::launcher {

using Clock = std::chrono::steady_clock;

/// `seconds` as the clock counts; years at most, so that sums do not overflow.
Clock::duration duration_of(double seconds);

/// How a process ended.
inline constexpr int kPreempted = 42;

struct End {
  int code = 0;    ///< its exit code, when `signal` is 0
  int signal = 0;  ///< what killed it

  bool good() const { return code == 0 && signal == 0; }
  /// It saved because it, or another task, was told to end.
  bool preempted() const { return code == kPreempted && signal == 0; }
  int exit_code() const { return signal ? 128 + signal : code; }
  std::string text() const;  ///< "exit code 3", "SIGSEGV"
};

/// "SIGTERM"; the number of a signal without a name.
std::string signal_name(int number);

/// Not thread-safe. The destructor kills what still runs.
class TaskProcess {
 public:
  /// Output goes to `output`, or to the end of the file `log` when that is not empty. `number`
  /// chooses the colour.
  TaskProcess(const Task& task, Output& output, std::string log, bool prefix, int number);
  ~TaskProcess();
  TaskProcess(const TaskProcess&) = delete;
  TaskProcess& operator=(const TaskProcess&) = delete;

  /// Throws Unavailable when the log cannot be written, ResourceExhausted without a process.
  void start(const Program& program, std::string_view heading);
  /// To all of its group. Nothing when none of it is left.
  void send(int signal);
  /// The leader's end, as waitid told it: drains its output. What the leader left in its group is
  /// killed, unless the task has been told to end and may still be saving.
  void note_end(const End& end);
  /// Kills ssh or srun, which did not bring SIGKILL to the far end. False when there was nothing
  /// more to try: the task is then taken for gone.
  bool cut_off();
  /// True when nothing of it is left; looks for leftovers of the group.
  bool gone();
  /// Reads what is there, once. `fd` is one of output_fds.
  void read_output(int fd);
  std::vector<int> output_fds() const;
  /// Its last lines; from its log when it has one.
  std::vector<std::string> last_lines() const;

  const Task& task() const { return task_; }
  pid_t pid() const { return pid_; }
  bool started() const { return pid_ > 0; }
  bool leader_ended() const { return end_.has_value(); }
  const End& end() const { return *end_; }
  /// The last signal that this launcher sent it so that it ends; 0: none.
  int asked() const { return asked_; }
  Clock::time_point started_at() const { return started_at_; }
  Clock::time_point ended_at() const { return ended_at_; }
  bool remote() const { return !task_.machine.empty(); }

  /// When to send SIGTERM, to kill, and (of another machine's task) to kill ssh or srun.
  struct Deadlines {
    std::optional<Clock::time_point> term, kill, cut;
  } deadlines;
  int restarts = 0;    ///< of this task alone
  int short_runs = 0;  ///< failures in a row that came soon after the start
  std::optional<Clock::time_point> restart_at;

 private:
  void drain();
  void close_output();
  void send_to_group(int signal);
  int open_log(std::string_view heading);

  Task task_;
  std::string log_;
  LineSplitter out_lines_, err_lines_;
  LastLines last_;
  pid_t pid_ = 0;
  Descriptor control_, out_, err_;
  std::optional<End> end_;
  bool group_gone_ = true;
  int asked_ = 0;
  bool cut_ = false;
  off_t log_begin_ = 0;
  Clock::time_point started_at_, ended_at_;
};

}  // namespace tutti::launcher
