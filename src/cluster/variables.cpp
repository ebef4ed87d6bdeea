#include "cluster/variables.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "cluster/names.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

extern "C" char** environ;  // NOLINT: POSIX' name

namespace tutti::cluster {
namespace {

constexpr std::chrono::seconds kPatience{30};
constexpr std::size_t kMostOutput = std::size_t{1} << 20;

std::string find_program(const std::string& name, const std::string& path) {
  for (const std::string& folder : split(path, ':')) {
    const std::string candidate = folder + "/" + name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

/// What the child wrote until it closed its output; nothing after `kPatience`.
std::optional<std::string> read_all(int handle) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::string output;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waiting{handle, POLLIN, 0};
    if (left.count() <= 0) return std::nullopt;
    const int ready = poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char buffer[4096];
    const ssize_t count = read(handle, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return output;
    output.append(buffer, static_cast<std::size_t>(count));
    if (output.size() > kMostOutput) return std::nullopt;
  }
}

/// The standard output of a program that ends with status 0, else nothing.
std::optional<std::string> output_of(const std::string& program, const char* argument) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>(argument),
                             nullptr};
  pid_t child = 0;
  const int status = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::optional<std::string> output;
  if (status == 0) {
    output = read_all(ends[0]);
    if (!output) kill(child, SIGKILL);
    int ended = 0;
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) output.reset();
  }
  close(ends[0]);
  return output;
}

}  // namespace

std::optional<std::string> Variables::find(const std::string& name) const {
  if (given_) {
    const auto found = given_->find(name);
    if (found == given_->end()) return std::nullopt;
    return found->second;
  }
  const char* text = std::getenv(name.c_str());
  if (text == nullptr) return std::nullopt;
  return std::string(text);
}

std::string Variables::require(const std::string& name, const std::string& outside) const {
  const std::string value = text(name);
  if (!value.empty()) return value;
  throw FailedPrecondition(cat(operation_, " [", name, "]: the variable is not set, ", outside,
                               ", expected a value; start the program there, or choose another "
                               "resolver"));
}

int64_t Variables::require_number(const std::string& name, const std::string& outside,
                                  int64_t high) const {
  const std::string value = require(name, outside);
  if (const auto number = whole_number(value, high)) return *number;
  refuse(operation_, name, {shown(value), cat("a whole number from 0 to ", high), "correct it"});
}

void Variables::set(const std::string& name, const std::string& value) const {
  if (given_) {
    (*given_)[name] = value;
  } else {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

int64_t count_gpus(const std::string& operation, const Variables& variables) {
  if (const auto visible = variables.find("CUDA_VISIBLE_DEVICES")) {
    if (visible->empty()) return 0;
    const auto devices = split(*visible, ',');
    // CUDA takes the entries before the first that is none: -1 hides all.
    return std::find_if(
               devices.begin(), devices.end(),
               [](const std::string& device) { return device.empty() || device[0] == '-'; }) -
           devices.begin();
  }
  const std::string program = find_program("nvidia-smi", variables.text("PATH"));
  if (program.empty()) return 0;
  const auto output = output_of(program, "--list-gpus");
  if (!output) {
    throw FailedPrecondition(cat(operation, " [", program,
                                 " --list-gpus]: it failed, expected a "
                                 "list of GPUs; set CUDA_VISIBLE_DEVICES, or say the number"));
  }
  const auto lines = split(*output, '\n');
  return std::count_if(lines.begin(), lines.end(),
                       [](const std::string& line) { return line.rfind("GPU ", 0) == 0; });
}

std::map<std::string, int64_t> visible_accelerators(const std::string& operation,
                                                    const Variables& variables) {
  const int64_t gpus = count_gpus(operation, variables);
  if (gpus == 0) return {};
  return {{"GPU", gpus}};
}

}  // namespace tutti::cluster
