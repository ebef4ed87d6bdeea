#pragma once
// A program that a test starts, talks to line by line, and ends by any signal.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::testing {

/// The program `name` beside this test program.
inline std::string beside_this_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

class ChildProcess {
 public:
  /// Arguments begin with the program. Variables are added to the environment.
  explicit ChildProcess(const std::vector<std::string>& arguments,
                        const std::map<std::string, std::string>& variables = {}) {
    std::string log = (std::filesystem::temp_directory_path() / "tutti_child_XXXXXX").string();
    const int log_file = ::mkostemp(log.data(), O_CLOEXEC);
    log_path_ = log;
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
      throw std::runtime_error("pipe2");
    std::vector<std::string> environment;
    for (char** at = environ; *at != nullptr; ++at) environment.emplace_back(*at);
    for (const auto& [name, value] : variables) environment.push_back(cat(name, "=", value));
    auto pointers = [](const std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
      result.push_back(nullptr);
      return result;
    };
    const auto argv = pointers(arguments);
    // The last of two definitions of a variable would lose: those of the test come first.
    std::vector<std::string> ordered(environment.rbegin(), environment.rend());
    const auto envp = pointers(ordered);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(log_file, 2);
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::close(log_file);
    to_ = in[1];
    from_ = out[0];
  }
  ~ChildProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(to_);
    ::close(from_);
    std::filesystem::remove(log_path_);
  }
  ChildProcess(const ChildProcess&) = delete;

  void send(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      ADD_FAILURE() << "could not send \"" << line << "\"";
  }
  /// The next line that it prints; fails after so many seconds without one.
  std::string line(int seconds = 10) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (;;) {
      const auto found = buffer_.find('\n');
      if (found != std::string::npos) {
        const std::string text = buffer_.substr(0, found);
        buffer_.erase(0, found + 1);
        return text;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd file{from_, POLLIN, 0};
      char block[4096];
      const bool readable =
          left.count() > 0 && ::poll(&file, 1, static_cast<int>(left.count())) > 0;
      const ssize_t size = readable ? ::read(from_, block, sizeof block) : 0;
      if (size <= 0) {
        ADD_FAILURE() << (readable ? "the program ended" : "no line in time") << "; its log:\n"
                      << log();
        return "";
      }
      buffer_.append(block, static_cast<std::size_t>(size));
    }
  }
  std::string ask(const std::string& text) {
    send(text);
    return line();
  }

  void signal(int number) { ::kill(pid_, number); }
  pid_t pid() const { return pid_; }
  /// Waits until it has ended; its exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  /// True when it has written `part` to standard error, or does within ten seconds.
  bool logs(const std::string& part) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (log().find(part) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  /// What it wrote to standard error so far.
  std::string log() const {
    std::ifstream file(log_path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
  std::filesystem::path log_path_;
};

}  // namespace tutti::testing
