#pragma once
// Starting a process in a group of its own that does not outlive this one.

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace tutti::launcher {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// A pipe; neither end is inherited by programs. Throws ResourceExhausted.
struct Pipe {
  Pipe();
  Descriptor read, write;
};

void set_nonblocking(int fd);

struct Program {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to this process' own
};

struct Streams {
  int in = -1, out = -1, err = -1;  ///< -1: this process' own
};

/// Starts `program` as the leader of a new process group, with no signal blocked, and returns its
/// id. It is killed when this process dies. When it cannot be run the child says why on its
/// standard error and ends with 127 (not found) or 126. Throws ResourceExhausted when fork fails.
pid_t spawn(const Program& program, const Streams& streams);

/// Kills every child of this process and reaps it, again and again while orphans of theirs come to
/// this one (PR_SET_CHILD_SUBREAPER), for at most `seconds`.
void kill_children(double seconds);

}  // namespace tutti::launcher
