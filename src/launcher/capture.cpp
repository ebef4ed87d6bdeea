#include "launcher/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "launcher/spawn.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

using Clock = std::chrono::steady_clock;

// Milliseconds left, at least 0.
int left_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

// glibc 2.36 declares pidfd_open without extern "C".
int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool ready_until(int fd, Clock::time_point deadline) {
  pollfd ready = {fd, POLLIN, 0};
  return poll(&ready, 1, left_until(deadline)) > 0;
}

}  // namespace

std::string capture(const std::vector<std::string>& command, double seconds) {
  constexpr std::size_t kMost = 1 << 20;
  const auto deadline = Clock::now() + std::chrono::ceil<std::chrono::milliseconds>(
                                           std::chrono::duration<double>(seconds));
  const std::string where = cat("run [", join(command, " "), "]: ");
  Pipe out;
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t pid = spawn({.command = command}, {.in = nothing.get(), .out = out.write.get()});
  out.write.reset();

  std::string text;
  bool late = false;
  char buffer[4096];
  for (ssize_t got = 1; got > 0 && text.size() <= kMost && !late;) {
    late = !ready_until(out.read.get(), deadline);
    if (late) break;
    got = read(out.read.get(), buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
  }
  const bool much = text.size() > kMost;
  late = late || (!much && !ready_until(Descriptor(pidfd_of(pid)).get(), deadline));
  if (late || much) kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (late) throw DeadlineExceeded(cat(where, "no answer within ", seconds, " s"));
  if (much) throw FailedPrecondition(cat(where, "over 1 MiB of output"));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw FailedPrecondition(cat(where,
                                 WIFEXITED(status) ? cat("exit code ", WEXITSTATUS(status))
                                                   : cat("signal ", WTERMSIG(status)),
                                 ", expected 0"));
  }
  return text;
}

}  // namespace tutti::launcher
