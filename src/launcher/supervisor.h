#pragma once
// The loop over a job's tasks: starts them, shows what they print, and ends or restarts them.

#include <memory>
#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/plan.h"
#include "launcher/ports.h"
#include "launcher/report.h"
#include "launcher/task_process.h"

namespace tutti::launcher {

struct Job {
  Options options;
  std::vector<Task> tasks;           ///< the whole cluster
  std::vector<std::size_t> started;  ///< those of `tasks` that this launcher starts
  std::string id;
  std::string error_folder;  ///< tasks of this machine leave their first errors there
};

/// Gives every task a port: on this machine one that `held` keeps, which restarts keep too,
/// elsewhere a drawn one, anew at each call, unless --port says which.
void assign_ports(Job& job, HeldPorts& held);

/// Runs one job. One thread; needs SIGCHLD blocked, SIGPIPE ignored, and to be a subreaper.
class Supervisor {
 public:
  /// `control`: signals to pass on, a byte each; its end means that the launcher was killed.
  Supervisor(Job& job, HeldPorts& held, int control);
  ~Supervisor();

  /// Returns the exit code, when nothing of the job is left and all output is written.
  int run();

 private:
  enum class State { kRunning, kEnding, kWaiting, kFinished };
  enum class Cause { kNone, kDone, kFailure, kSignal, kTimeout, kOrphaned };

  // start and end of rounds
  void start_group();
  void start_task(std::size_t i);
  void end_round();
  void finish(int code);
  bool training_done() const;
  void begin_ending(Cause cause);
  // failures
  void judge(std::size_t i);
  bool restarts_alone(const TaskProcess& process) const;
  struct Restart {
    bool allowed = false;
    bool counted = true;
    double delay = 0;
    std::string text;  ///< "restart 1 of 3 in 0.5 s"
  };
  Restart next_restart(const End& end, double lived, int& short_runs);
  void restart_or_give_up();
  void note_preemption(const Restart& restart);
  void record_failure(std::size_t i);
  std::string error_file(std::size_t i) const;
  // events
  void wait_for_events();
  void read_control();
  void pass_signal(int signal);
  void reap();
  void keep_deadlines();
  void keep_deadlines_of(TaskProcess& process, Clock::time_point now);
  bool all_gone();
  int poll_timeout() const;
  void flush_output();

  Job& job_;
  const Options& options_;
  HeldPorts& held_;
  int control_;          ///< -1 when the launcher is gone
  Descriptor children_;  ///< signalfd of SIGCHLD
  Output output_;
  std::vector<std::unique_ptr<TaskProcess>> processes_;  ///< those of job_.started

  State state_ = State::kRunning;
  Cause cause_ = Cause::kNone;
  int code_ = 0;
  int signal_ = 0;  ///< the one that ends the job
  Clock::time_point signalled_at_{}, round_started_{};
  std::optional<Clock::time_point> job_deadline_, restart_at_;
  bool abandoned_ = false;  ///< no restart after this failure
  int64_t generation_ = 0;
  int group_restarts_ = 0, counted_restarts_ = 0, short_runs_ = 0;
  std::vector<Failure> failures_;     ///< of this round, in the order in which they were seen
  std::vector<std::string> history_;  ///< the first failure of each round
};

}  // namespace tutti::launcher
