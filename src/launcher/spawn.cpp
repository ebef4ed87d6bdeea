#include "launcher/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

// "NAME=VALUE" of this process and of the program, whose own win.
std::vector<std::string> merged_environment(const Program& program) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == text.npos) continue;
    all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const auto& [name, value] : program.environment) all[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : all) entries.push_back(cat(name, "=", value));
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Between fork and exec: system calls only.
[[noreturn]] void become(const char* name, char** arguments, char** environment,
                         const Streams& streams, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // died before the line above
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (streams.in >= 0) dup2(streams.in, STDIN_FILENO);
  if (streams.out >= 0) dup2(streams.out, STDOUT_FILENO);
  if (streams.err >= 0) dup2(streams.err, STDERR_FILENO);
  execvpe(name, arguments, environment);
  const int error = errno;
  const char* reason = std::strerror(error);
  for (const char* part : {"cannot start ", name, ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  _exit(error == ENOENT ? 127 : 126);
}

// The children of this process: those whose fourth field in /proc/…/stat it is.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* processes = opendir("/proc");
  if (!processes) return found;
  while (const dirent* entry = readdir(processes)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    std::ifstream file(cat("/proc/", entry->d_name, "/stat"));
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(") ");  // the name may hold anything
    if (name_end == text.npos || name_end + 4 >= text.size()) continue;
    if (std::atoi(text.c_str() + name_end + 4) == getpid()) {
      found.push_back(std::atoi(entry->d_name));
    }
  }
  closedir(processes);
  return found;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Pipe::Pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw ResourceExhausted(cat("make a pipe: ", std::strerror(errno), "; raise ulimit -n"));
  }
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

pid_t spawn(const Program& program, const Streams& streams) {
  std::vector<std::string> command = program.command;
  std::vector<std::string> environment = merged_environment(program);
  const std::vector<char*> arguments = pointers(command), entries = pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    throw ResourceExhausted(cat("start [", program.command[0], "]: ", std::strerror(errno),
                                "; raise ulimit -u, or start fewer tasks"));
  }
  if (pid == 0) {
    become(command[0].c_str(), const_cast<char**>(arguments.data()),
           const_cast<char**>(entries.data()), streams, parent);
  }
  setpgid(pid, pid);  // whoever comes first; later it has run another program and this fails
  return pid;
}

void kill_children(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < deadline) {
    int status = 0;
    pid_t reaped = 0;
    while ((reaped = waitpid(-1, &status, WNOHANG)) > 0) {
    }
    if (reaped < 0) return;  // no child is left
    for (const pid_t child : children()) kill(child, SIGKILL);
    usleep(2000);
  }
}

}  // namespace tutti::launcher
