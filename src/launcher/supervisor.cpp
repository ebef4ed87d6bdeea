#include "launcher/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "launcher/start.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

constexpr double kFailureGrace = 2;  // after a failure, of what --grace allows
constexpr double kLongestBackoff = 60;
constexpr double kCutAfter = 2;        // from SIGKILL over ssh to SIGKILL for ssh
constexpr double kAbandonAfter = 10;   // a process that not even SIGKILL ends is left behind
constexpr double kSecondSignal = 0.2;  // timeout(1) and others send one signal twice at once
constexpr int kTimedOut = 124;
const char* const kRunAgain =
    "preempted: state is saved; run the same command again (exit code 42)";

bool ends_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

// Of ends seen at once, a crash is likelier the cause than an error, and that than a preemption.
int rank(const End& end) {
  if (end.signal) return end.signal == SIGABRT ? 1 : 0;
  return end.good() ? 3 : end.preempted() ? 2 : 1;
}

int64_t milliseconds_by_clock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string log_heading(const Task& task, int restarts, const std::string& id) {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return cat("=== ", task.name(), ", start ", restarts, ", job ", id, ", ", text, "\n");
}

}  // namespace

void assign_ports(Job& job, HeldPorts& held) {
  std::map<std::string, int> on_machine;
  std::map<std::string, std::set<int>> drawn;
  const std::set<std::size_t> started(job.started.begin(), job.started.end());
  for (std::size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const bool here = task.machine.empty() && started.count(i) > 0;
    const int fixed = job.options.port ? job.options.port + on_machine[task.address]++ : 0;
    if (fixed > 65535) {
      throw InvalidArgument(cat("tutti-run [--port ", job.options.port, "]: ", fixed, " for ",
                                task.name(), ", expected at most 65535; give a lower one"));
    }
    if (!here) {
      task.port = fixed ? fixed : draw_port(drawn[task.address]);
    } else if (task.port == 0) {
      task.port = held.hold(task.address, fixed);
    }
  }
}

Supervisor::Supervisor(Job& job, HeldPorts& held, int control)
    : job_(job), options_(job.options), held_(held), control_(control), output_(options_.color) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  children_ = Descriptor(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  set_nonblocking(control_);
  for (const std::size_t i : job_.started) {
    const Task& task = job_.tasks[i];
    const std::string log = options_.log_dir.empty()
                                ? ""
                                : cat(options_.log_dir, "/", task.type, "-", task.index, ".log");
    processes_.push_back(std::make_unique<TaskProcess>(task, output_, log, options_.prefix,
                                                       static_cast<int>(processes_.size())));
  }
}

Supervisor::~Supervisor() = default;

int Supervisor::run() {
  if (options_.timeout > 0) job_deadline_ = Clock::now() + duration_of(options_.timeout);
  start_group();
  while (state_ != State::kFinished) wait_for_events();
  flush_output();
  return code_;
}

// --- rounds --------------------------------------------------------------------------------------

void Supervisor::start_group() {
  assign_ports(job_, held_);
  state_ = State::kRunning;
  cause_ = Cause::kNone;
  failures_.clear();
  restart_at_.reset();
  round_started_ = Clock::now();
  // Other launchers of the same job (--only) would count differently.
  if (options_.only.empty()) generation_ = std::max(generation_ + 1, milliseconds_by_clock());
  for (std::size_t i = 0; i < processes_.size(); ++i) start_task(i);
}

void Supervisor::start_task(std::size_t i) {
  TaskProcess& process = *processes_[i];
  unlink(error_file(i).c_str());
  const Round round = {.job_id = job_.id,
                       .restarts = group_restarts_ + process.restarts,
                       .generation = generation_,
                       .error_file = process.remote() ? "" : error_file(i)};
  process.start(program_of(options_, job_.tasks, job_.started[i], round),
                log_heading(process.task(), round.restarts, job_.id));
}

std::string Supervisor::error_file(std::size_t i) const {
  const Task& task = processes_[i]->task();
  return cat(job_.error_folder, "/", task.type, "-", task.index);
}

// The chief of a parameter-server job ends it; else chief and workers all have their say.
bool Supervisor::training_done() const {
  bool servers = false, chief = false, trainers = false;
  for (const auto& process : processes_) {
    servers |= process->task().type == "ps";
    chief |= process->task().type == "chief";
    trainers |= process->task().trains();
  }
  return std::all_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    const Task& task = process->task();
    const bool decides = servers && chief ? task.type == "chief" : trainers ? task.trains() : true;
    return !decides || (process->leader_ended() && process->end().good());
  });
}

void Supervisor::begin_ending(Cause cause) {
  state_ = State::kEnding;
  cause_ = cause;
  restart_at_.reset();
  const auto now = Clock::now();
  const double grace =
      cause == Cause::kFailure ? std::min(options_.grace, kFailureGrace) : options_.grace;
  for (const auto& process : processes_) {
    process->restart_at.reset();
    if (process->gone()) continue;
    double term = 0;
    if (cause == Cause::kFailure) term = options_.notice;
    if (cause == Cause::kDone) {
      term = process->task().type == "evaluator" ? options_.evaluator_wait : options_.notice;
    }
    if (cause != Cause::kSignal) process->deadlines.term = now + duration_of(term);
    process->deadlines.kill = now + duration_of(term + grace);
  }
}

void Supervisor::end_round() {
  kill_children(2);  // what left its group, too
  switch (cause_) {
    case Cause::kFailure:
      return restart_or_give_up();
    case Cause::kTimeout:
      return finish(kTimedOut);
    case Cause::kSignal: {
      const bool saved = std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
        return process->leader_ended() && process->end().preempted();
      });
      if (saved) output_.note(kRunAgain);
      return finish(saved ? kPreempted : 128 + signal_);
    }
    case Cause::kOrphaned:
      return finish(128 + SIGKILL);
    default:
      for (const Failure& failure : failures_) {
        output_.note(cat("after training was done: ", summary(failure)));
      }
      return finish(0);
  }
}

void Supervisor::finish(int code) {
  code_ = code;
  state_ = State::kFinished;
}

// --- failures ------------------------------------------------------------------------------------

void Supervisor::record_failure(std::size_t i) {
  const TaskProcess& process = *processes_[i];
  failures_.push_back(failure_of(process, i, group_restarts_ + process.restarts, error_file(i)));
}

void Supervisor::judge(std::size_t i) {
  TaskProcess& process = *processes_[i];
  const bool good = process.end().good();
  if (state_ == State::kEnding) {
    const bool as_asked = process.asked() && process.end().exit_code() == 128 + process.asked();
    if (!good && !as_asked) record_failure(i);
    return;
  }
  if (good) {
    if (training_done()) begin_ending(Cause::kDone);
    return;
  }
  record_failure(i);
  if (restarts_alone(process)) {
    const Failure failure = failures_.back();
    Restart restart = next_restart(failure.end, failure.lived, process.short_runs);
    if (restart.allowed) {
      if (failure.end.preempted()) {
        note_preemption(restart);
      } else {
        for (const std::string& line : report_lines(failures_)) output_.note(line);
        output_.note(cat(process.task().name(), ": ", restart.text));
      }
      failures_.clear();
      process.restart_at = Clock::now() + duration_of(restart.delay);
      ++process.restarts;
      return;
    }
  }
  begin_ending(Cause::kFailure);
  if (process.end().preempted()) return;  // told when all have saved and ended
  const bool others = !all_gone();
  output_.note(cat(summary(failures_.back()),
                   others ? cat("; the others have ", seconds_text(options_.notice),
                                " s to notice, then they are ended")
                          : ""));
}

bool Supervisor::restarts_alone(const TaskProcess& process) const {
  if (process.task().type == "evaluator") return processes_.size() > 1;
  if (process.task().type == "chief") return false;
  const bool servers = std::any_of(processes_.begin(), processes_.end(),
                                   [](const auto& other) { return other->task().type == "ps"; });
  return options_.restart == RestartMode::kTask ||
         (options_.restart == RestartMode::kAuto && servers);
}

Supervisor::Restart Supervisor::next_restart(const End& end, double lived, int& short_runs) {
  if (abandoned_ || options_.max_restarts == 0) return {};
  const bool settled = lived >= options_.settled;
  if (end.preempted() && settled) {
    short_runs = 0;
    return {.allowed = true, .counted = false, .text = "restarted at once, not counted"};
  }
  if (counted_restarts_ == options_.max_restarts) return {};
  ++counted_restarts_;
  short_runs = settled ? 1 : short_runs + 1;
  const double delay =
      std::min(kLongestBackoff, options_.backoff * std::pow(2.0, std::min(short_runs - 1, 60)));
  const std::string_view why = end.preempted() ? ", counted after so short a run (--settled)" : "";
  return {.allowed = true,
          .delay = delay,
          .text = cat("restart ", counted_restarts_, " of ", options_.max_restarts, " in ",
                      seconds_text(delay), " s", why)};
}

// In the place of a report of failures: nothing went wrong, unless other tasks failed after it.
void Supervisor::note_preemption(const Restart& restart) {
  const std::string tasks = preempted_tasks(failures_);
  output_.note(restart.allowed ? cat("preempted: ", tasks, "; state is saved; ", restart.text)
                               : cat(tasks, ": saved and ended"));
  for (const Failure& failure : failures_) {
    if (!failure.end.preempted()) output_.note(cat("then: ", summary(failure)));
  }
}

void Supervisor::restart_or_give_up() {
  const End seen_first = failures_.front().end;
  for (std::size_t i = 0; i < processes_.size();
       ++i) {  // who erred, and was ended before it could end
    const bool known = std::any_of(failures_.begin(), failures_.end(),
                                   [i](const Failure& failure) { return failure.index == i; });
    if (known || !processes_[i]->leader_ended()) continue;
    const std::string name = processes_[i]->task().name();
    const bool blamed =
        std::any_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
          return failure.error && blamed_task(failure.error->text) == name;
        });
    if (blamed || read_error_file(error_file(i))) record_failure(i);
  }
  put_root_first(failures_);
  const Failure& first = failures_.front();
  const double lived = std::chrono::duration<double>(Clock::now() - round_started_).count();
  const Restart restart = next_restart(first.end, lived, short_runs_);
  if (first.end.preempted()) {
    note_preemption(restart);
  } else {
    for (const std::string& line : report_lines(failures_)) output_.note(line);
  }
  if (restart.counted) history_.push_back(summary(first));
  if (!restart.allowed) {
    if (history_.size() > 1) {
      output_.note(cat("no restart is left of ", options_.max_restarts, "; all failures so far:"));
      for (const std::string& line : history_) output_.note(cat("  ", line));
    }
    if (first.end.preempted()) output_.note(kRunAgain);
    // Whom the others blame may have ended with 0.
    const bool other = first.ended_by_us || first.end.good();
    return finish((other ? seen_first : first.end).exit_code());
  }
  if (!first.end.preempted()) output_.note(restart.text);
  ++group_restarts_;
  state_ = State::kWaiting;
  restart_at_ = Clock::now() + duration_of(restart.delay);
}

// --- events --------------------------------------------------------------------------------------

void Supervisor::wait_for_events() {
  std::vector<pollfd> polled = {{control_, POLLIN, 0}, {children_.get(), POLLIN, 0}};
  for (Sink* sink : {&output_.out(), &output_.err()}) {
    if (!sink->empty()) polled.push_back({sink->fd(), POLLOUT, 0});
  }
  const std::size_t first_output = polled.size();
  std::vector<TaskProcess*> owners;
  if (!output_.full()) {  // else the tasks wait for whoever reads our output
    for (const auto& process : processes_) {
      for (const int fd : process->output_fds()) {
        polled.push_back({fd, POLLIN, 0});
        owners.push_back(process.get());
      }
    }
  }
  poll(polled.data(), polled.size(), poll_timeout());
  if (polled[0].revents) read_control();
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const pollfd& ready = polled[first_output + i];
    if (!ready.revents) continue;
    const std::vector<int> open = owners[i]->output_fds();
    if (std::count(open.begin(), open.end(), ready.fd)) owners[i]->read_output(ready.fd);
  }
  reap();
  keep_deadlines();
  output_.out().write_ready();
  output_.err().write_ready();
  if (state_ == State::kEnding && all_gone()) end_round();
}

int Supervisor::poll_timeout() const {
  std::optional<Clock::time_point> first;
  const auto consider = [&](const std::optional<Clock::time_point>& time) {
    if (time && (!first || *time < *first)) first = time;
  };
  consider(job_deadline_);
  consider(restart_at_);
  for (const auto& process : processes_) {
    consider(process->deadlines.term);
    consider(process->deadlines.kill);
    consider(process->deadlines.cut);
    consider(process->restart_at);
  }
  if (!first) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3600 * 1000));
}

void Supervisor::read_control() {
  unsigned char bytes[64];
  const ssize_t got = read(control_, bytes, sizeof bytes);
  for (ssize_t i = 0; i < got; ++i) pass_signal(bytes[i]);
  if (got != 0) return;
  // kill -9 of the launcher. It cannot be passed on, but means the same.
  control_ = -1;
  begin_ending(Cause::kOrphaned);
  for (const auto& process : processes_) {
    process->deadlines.term.reset();
    process->deadlines.kill = Clock::now();
  }
  output_.out().drop();
  output_.err().drop();
}

void Supervisor::pass_signal(int signal) {
  const auto now = Clock::now();
  const bool again = signal_ != 0;
  if (!ends_job(signal)) {
    for (const auto& process : processes_) process->send(signal);
    return;
  }
  if (again && now - signalled_at_ < duration_of(kSecondSignal)) return;
  signalled_at_ = now;
  signal_ = signal;
  abandoned_ = true;
  if (state_ == State::kWaiting) {
    output_.note(cat(signal_name(signal), ": no restart"));
    if (failures_.front().end.preempted()) output_.note(kRunAgain);
    return finish(failures_.front().end.exit_code());
  }
  if (state_ == State::kFinished) return;
  const bool first_cause = state_ == State::kRunning;
  if (first_cause) begin_ending(Cause::kSignal);
  for (const auto& process : processes_) {
    if (!again) process->send(signal);
    const auto latest = again ? now : now + duration_of(options_.grace);
    auto& kill = process->deadlines.kill;
    if (kill) kill = std::min(*kill, latest);
    if (again) process->deadlines.term.reset();
  }
  output_.note(again ? cat(signal_name(signal), " again: all tasks are killed")
                     : cat(signal_name(signal), ": passed to all tasks; they have ",
                           seconds_text(options_.grace), " s, a second signal kills them"));
}

void Supervisor::reap() {
  signalfd_siginfo ignored;
  while (read(children_.get(), &ignored, sizeof ignored) == sizeof ignored) {
  }
  std::vector<std::pair<std::size_t, End>> ends;
  for (siginfo_t info = {}; waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0;
       info = {}) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i]->pid() != info.si_pid || processes_[i]->leader_ended()) continue;
      ends.push_back({i, info.si_code == CLD_EXITED ? End{.code = info.si_status}
                                                    : End{.signal = info.si_status}});
    }
  }
  std::stable_sort(ends.begin(), ends.end(),
                   [](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); });
  for (const auto& [i, end] : ends) processes_[i]->note_end(end);
  for (const auto& [i, end] : ends) judge(i);
}

void Supervisor::keep_deadlines() {
  const auto now = Clock::now();
  if (job_deadline_ && now >= *job_deadline_) {
    job_deadline_.reset();
    abandoned_ = true;
    output_.note(cat("--timeout ", seconds_text(options_.timeout), " s is over"));
    if (state_ == State::kRunning) begin_ending(Cause::kTimeout);
    if (state_ == State::kWaiting) finish(kTimedOut);
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    TaskProcess& process = *processes_[i];
    keep_deadlines_of(process, now);
    const bool due = process.restart_at && now >= *process.restart_at;
    if (state_ == State::kRunning && due && process.gone()) start_task(i);
  }
  if (state_ == State::kWaiting && restart_at_ && now >= *restart_at_) start_group();
}

void Supervisor::keep_deadlines_of(TaskProcess& process, Clock::time_point now) {
  auto& [term, kill, cut] = process.deadlines;
  if (!term && !kill && !cut) return;
  if (process.gone()) {
    process.deadlines = {};
    return;
  }
  const auto due = [now](std::optional<Clock::time_point>& time) {
    if (!time || now < *time) return false;
    time.reset();
    return true;
  };
  if (due(term)) process.send(SIGTERM);
  if (due(kill)) {
    if (process.asked() && cause_ != Cause::kOrphaned) {
      output_.note(cat(process.task().name(), " did not end in time and is killed"));
    }
    process.send(SIGKILL);
    cut = now + duration_of(process.remote() ? kCutAfter : kAbandonAfter);
  } else if (due(cut)) {
    if (process.cut_off()) {
      cut = now + duration_of(kAbandonAfter);
    } else {
      output_.note(cat(process.task().name(), " (pid ", process.pid(),
                       ") cannot be killed and is left behind"));
    }
  }
}

bool Supervisor::all_gone() {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const auto& process) { return process->gone(); });
}

// As long as somebody may read it; a signal or --timeout ends the wait.
void Supervisor::flush_output() {
  while (!output_.empty()) {
    std::vector<pollfd> polled = {{control_, POLLIN, 0}};
    for (Sink* sink : {&output_.out(), &output_.err()}) {
      if (!sink->empty()) polled.push_back({sink->fd(), POLLOUT, 0});
    }
    int limit = -1;
    if (job_deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*job_deadline_ - Clock::now());
      limit = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
    }
    const int ready = poll(polled.data(), polled.size(), limit);
    if (polled[0].revents || ready == 0) return;
    output_.out().write_ready();
    output_.err().write_ready();
  }
}

}  // namespace tutti::launcher
