#include "launcher/task_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

constexpr std::size_t kReadSize = 64 << 10;

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

// The lines at the end of a file, from `begin` on.
void read_last_lines(const std::string& path, off_t begin, LastLines& last) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!file.open() || fstat(file.get(), &info) != 0) return;
  constexpr off_t kShown = 16 << 10;
  const off_t from = std::max(begin, info.st_size - kShown);
  std::string text(kShown, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), from);
  if (got <= 0) return;
  text.resize(static_cast<std::size_t>(got));
  std::vector<std::string> lines = split(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  const bool cut = from > begin && lines.size() > 1;
  for (std::size_t i = cut ? 1 : 0; i < lines.size(); ++i) last.add(lines[i]);
}

}  // namespace

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, 1e9)));
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name ? cat("SIG", name) : cat("signal ", number);
}

std::string End::text() const {
  if (signal) return signal_name(signal);
  if (preempted()) return "exit code 42, preempted";
  if (code > 128 && code <= 128 + 64 && sigabbrev_np(code - 128)) {
    return cat("exit code ", code, " (128 + ", signal_name(code - 128), ")");
  }
  return cat("exit code ", code);
}

TaskProcess::TaskProcess(const Task& task, Output& output, std::string log, bool prefix, int number)
    : task_(task),
      log_(std::move(log)),
      out_lines_(output.out(), prefix ? task.name() : "", number),
      err_lines_(output.err(), prefix ? task.name() : "", number) {}

TaskProcess::~TaskProcess() {
  if (!group_gone_) send_to_group(SIGKILL);
}

int TaskProcess::open_log(std::string_view heading) {
  const int fd = open(log_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw Unavailable(cat("open a log [", log_, "]: ", std::strerror(errno)));
  write_all(fd, heading);
  struct stat info;
  log_begin_ = fstat(fd, &info) == 0 ? info.st_size : 0;
  return fd;
}

void TaskProcess::start(const Program& program, std::string_view heading) {
  last_.clear();
  end_.reset();
  asked_ = 0;
  cut_ = false;
  deadlines = {};
  restart_at.reset();
  Descriptor in, out, err;
  if (remote()) {
    Pipe pipe;
    in = std::move(pipe.read);
    control_ = std::move(pipe.write);
    set_nonblocking(control_.get());
  } else {
    in = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (!log_.empty()) {
    out = Descriptor(open_log(heading));
  } else {
    Pipe out_pipe, err_pipe;
    out = std::move(out_pipe.write);
    err = std::move(err_pipe.write);
    out_ = std::move(out_pipe.read);
    err_ = std::move(err_pipe.read);
    set_nonblocking(out_.get());
    set_nonblocking(err_.get());
  }
  pid_ = spawn(program, {in.get(), out.get(), err.open() ? err.get() : out.get()});
  group_gone_ = false;
  started_at_ = Clock::now();
}

void TaskProcess::send_to_group(int signal) {
  if (started() && !group_gone_) kill(-pid_, signal);
}

void TaskProcess::send(int signal) {
  if (!started() || group_gone_) return;
  if (signal != SIGUSR1 && signal != SIGUSR2) asked_ = signal;
  if (remote()) {
    const std::string line = cat(sigabbrev_np(signal), "\n");
    const ssize_t size = static_cast<ssize_t>(line.size());
    if (control_.open() && write(control_.get(), line.data(), line.size()) == size) return;
    if (signal != SIGKILL) return;  // the far end does not listen: only cutting it off is left
  }
  send_to_group(signal);
  if (signal == SIGTERM || signal == SIGINT) send_to_group(SIGCONT);  // so that a stopped one hears
}

void TaskProcess::note_end(const End& end) {
  end_ = end;
  ended_at_ = Clock::now();
  if (!asked_ || remote()) send_to_group(SIGKILL);
  drain();
  out_lines_.finish(last_);
  err_lines_.finish(last_);
}

bool TaskProcess::cut_off() {
  if (remote() && !cut_) {
    cut_ = true;
    send_to_group(SIGKILL);
    return true;
  }
  group_gone_ = true;
  if (!end_) end_ = End{.signal = SIGKILL};
  close_output();
  return false;
}

bool TaskProcess::gone() {
  if (!started() || group_gone_) return true;
  if (!end_) return false;
  // Orphans of the group are this process' children, as it is a subreaper; the leader is reaped.
  siginfo_t info = {};
  while (waitid(P_PGID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) == 0) {
    if (info.si_pid == 0) return false;
    info = {};
  }
  group_gone_ = true;
  drain();
  close_output();
  return true;
}

void TaskProcess::read_output(int fd) {
  char buffer[kReadSize];
  const bool from_out = fd == out_.get();
  const ssize_t got = read(fd, buffer, sizeof buffer);
  if (got > 0) {
    (from_out ? out_lines_ : err_lines_)
        .feed(std::string_view(buffer, static_cast<std::size_t>(got)), last_);
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    (from_out ? out_lines_ : err_lines_).finish(last_);
    (from_out ? out_ : err_).reset();
  }
}

// What is in the pipes now; who else holds them is not waited for. A pipe holds 64 KiB, or what its
// writer made of it, so reads are limited against one that keeps writing.
void TaskProcess::drain() {
  constexpr int kMostReads = 256;
  char buffer[kReadSize];
  for (Descriptor* pipe : {&out_, &err_}) {
    LineSplitter& lines = pipe == &out_ ? out_lines_ : err_lines_;
    for (int i = 0; i < kMostReads && pipe->open(); ++i) {
      const ssize_t got = read(pipe->get(), buffer, sizeof buffer);
      if (got <= 0) break;
      lines.feed(std::string_view(buffer, static_cast<std::size_t>(got)), last_);
    }
  }
}

void TaskProcess::close_output() {
  out_lines_.finish(last_);
  err_lines_.finish(last_);
  out_.reset();
  err_.reset();
  control_.reset();
}

std::vector<int> TaskProcess::output_fds() const {
  std::vector<int> fds;
  if (out_.open()) fds.push_back(out_.get());
  if (err_.open()) fds.push_back(err_.get());
  return fds;
}

std::vector<std::string> TaskProcess::last_lines() const {
  LastLines last = last_;
  if (!log_.empty()) read_last_lines(log_, log_begin_, last);
  return {last.lines().begin(), last.lines().end()};
}

}  // namespace tutti::launcher
