#pragma once
// Runs tutti-run itself, reads what it prints, and looks after what it started.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/spawn.h"
#include "support/temporary_folder.h"
#include "tutti/base/text.h"

namespace tutti::launcher {

using Environment = std::vector<std::pair<std::string, std::string>>;

inline constexpr auto kDeadline = std::chrono::seconds(60);

/// Looks again and again; false after the deadline.
inline bool comes_true_in_time(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    usleep(1000);
  }
  return true;
}

/// True for a process that runs; a zombie does not.
inline bool runs(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end != text.npos && text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

inline ::testing::AssertionResult all_end(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    if (!comes_true_in_time([&] { return !runs(pid); })) {
      kill(pid, SIGKILL);
      return ::testing::AssertionFailure() << "process " << pid << " still runs";
    }
  }
  return ::testing::AssertionSuccess();
}

struct Result {
  int code = -1;  ///< 128 + N for a death by signal N
  std::string out, err;
};

/// A running tutti-run.
class Launched {
 public:
  explicit Launched(std::vector<std::string> arguments, const Environment& environment = {},
                    bool together = false) {
    for (const int number : {SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_DFL);
    arguments.insert(arguments.begin(), TUTTI_RUN_PROGRAM);
    start({arguments, environment}, together);
  }
  /// Some other program, which runs tutti-run.
  static Launched program(const std::vector<std::string>& command,
                          const Environment& environment = {}) {
    return Launched(Program{command, environment});
  }
  ~Launched() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  pid_t pid() const { return pid_; }
  void send(int number) { kill(pid_, number); }
  const std::string& out() const { return result_.out; }
  const std::string& err() const { return result_.err; }
  void stop_reading_out() { out_.reset(); }

  /// Reads until it has printed `text`, to whichever stream; false when it does not in time.
  bool prints(const std::string& text) {
    return read_until([&] {
      return result_.out.find(text) != std::string::npos ||
             result_.err.find(text) != std::string::npos;
    });
  }
  /// Numbers printed after `label`, one for each of its `count` appearances.
  std::vector<pid_t> pids_after(const std::string& label, std::size_t count) {
    const std::regex pattern(label + "([0-9]+)\n");
    const auto found = [&] {
      std::vector<pid_t> pids;
      const std::string& text = result_.out;
      for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i) {
        pids.push_back(std::stoi((*i)[1]));
      }
      return pids;
    };
    EXPECT_TRUE(read_until([&] { return found().size() >= count; })) << result_.out << result_.err;
    return found();
  }
  Result finish() {
    EXPECT_TRUE(read_until([&] { return !out_.open() && !err_.open(); }))
        << "tutti-run does not end: " << result_.out << result_.err;
    return wait();
  }
  /// Without reading more; what `again` does is repeated until it ends.
  Result wait(const std::function<void()>& again = [] {}) {
    int status = 0;
    EXPECT_TRUE(comes_true_in_time([&] {
      again();
      return waitpid(pid_, &status, WNOHANG) == pid_;
    }));
    pid_ = 0;
    result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

 private:
  explicit Launched(const Program& program) { start(program, false); }
  void start(const Program& program, bool together) {
    Pipe out, err;
    pid_ = spawn(program, {-1, out.write.get(), together ? out.write.get() : err.write.get()});
    out_ = std::move(out.read);
    err_ = std::move(err.read);
  }
  bool read_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      std::vector<pollfd> polled;
      for (const Descriptor* pipe : {&out_, &err_}) {
        if (pipe->open()) polled.push_back({pipe->get(), POLLIN, 0});
      }
      if (polled.empty() || std::chrono::steady_clock::now() > deadline) return false;
      poll(polled.data(), polled.size(), 100);
      for (const pollfd& ready : polled) {
        if (ready.revents) read_some(ready.fd);
      }
    }
    return true;
  }
  void read_some(int fd) {
    char buffer[1 << 16];
    const bool from_out = fd == out_.get();
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) {
      (from_out ? out_ : err_).reset();
      return;
    }
    (from_out ? result_.out : result_.err).append(buffer, static_cast<std::size_t>(got));
  }

  pid_t pid_ = 0;
  Descriptor out_, err_;
  Result result_;
};

inline Result run_launcher(const std::vector<std::string>& arguments,
                           const Environment& environment = {}) {
  return Launched(arguments, environment).finish();
}

/// The options, then `sh -c script`.
inline std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  for (const char* word : {"--", "/bin/sh", "-c"}) options.push_back(word);
  options.push_back(script);
  return options;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Programs that tests put first in PATH, and files by which processes wait for each other.
class InFolder : public testing::TemporaryFolder {
 protected:
  void write_program(const std::string& name, const std::string& text) const {
    write(name, text);
    chmod(path(name).c_str(), 0755);
  }
  /// PATH with this folder first.
  std::pair<std::string, std::string> path_here() const {
    return {"PATH", cat(path(""), ":", getenv("PATH"))};
  }
  /// Shell text that waits for a file of this folder.
  std::string wait_for(const std::string& name) const {
    return cat("until [ -e ", path(name), " ]; do sleep 0.01; done; ");
  }
};

}  // namespace tutti::launcher
