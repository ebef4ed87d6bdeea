#pragma once
// A program that is its own workers: it starts itself once for each rank.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

extern char** environ;

namespace tutti::bench {

/// Starts this program `ranks` times with its own arguments, --rank and --folder (a new folder for
/// a FileStore), waits for all and returns the worst exit status.
inline int start_ranks(int ranks, int argc, char** argv) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti_bench_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  std::vector<pid_t> processes;
  int worst = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> arguments(argv, argv + argc);
    arguments.insert(arguments.end(), {"--rank", std::to_string(rank), "--folder", folder});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_t process = 0;
    if (posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) != 0) {
      for (const pid_t started : processes) kill(started, SIGKILL);  // they would wait for the rest
      worst = 1;
      break;
    }
    processes.push_back(process);
  }
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  }
  std::filesystem::remove_all(folder);
  return worst;
}

}  // namespace tutti::bench
