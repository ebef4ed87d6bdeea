#include "launcher/guard.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "launcher/spawn.h"
#include "launcher/task_process.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

// nohup and a shell's & have signals ignored, and mean it.
bool ignored_from_the_start(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Passes signals on until `runner` ends; returns its wait status.
int watch(pid_t runner, const sigset_t& taken, int control) {
  while (true) {
    const int signal = sigwaitinfo(&taken, nullptr);
    if (signal != SIGCHLD) {
      const auto byte = static_cast<unsigned char>(signal);
      if (signal > 0 && write(control, &byte, 1) < 0) continue;  // it ends just now
      continue;
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == runner) return status;
    }
  }
}

}  // namespace

int run_guarded(const std::function<int(int control)>& job) {
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    if (!ignored_from_the_start(signal)) sigaddset(&taken, signal);
  }
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Pipe control;
  std::cout.flush();
  const pid_t runner = fork();
  if (runner < 0) throw ResourceExhausted(cat("start the launcher: ", std::strerror(errno)));
  if (runner == 0) {
    control.write.reset();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    _exit(job(control.read.get()));
  }
  control.read.reset();
  const int status = watch(runner, taken, control.write.get());
  kill_children(10);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::cerr << "[tutti-run] killed by " << signal_name(WTERMSIG(status))
            << "; all that it started is killed too\n";
  return 128 + WTERMSIG(status);
}

}  // namespace tutti::launcher
