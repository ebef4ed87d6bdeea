#include "launcher/output.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/environment.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

constexpr std::string_view kPlain = "\x1b[0m";

bool same_place(int a, int b) {
  struct stat of_a, of_b;
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

// https://no-color.org
bool colored(Color color, int fd) {
  if (color != Color::kAuto) return color == Color::kAlways;
  return isatty(fd) && !environment("NO_COLOR") && environment("TERM").value_or("dumb") != "dumb";
}

}  // namespace

void LastLines::add(std::string_view line) {
  if (lines_.size() == kMost) {  // the oldest one's memory is the next one's
    lines_.push_back(std::move(lines_.front()));
    lines_.pop_front();
  } else {
    lines_.emplace_back();
  }
  lines_.back().assign(line.substr(0, kLongest));
}

// Where poll says that a pipe can be written, PIPE_BUF bytes do not block; more may.
void Sink::write_ready() {
  while (!empty() && !closed_) {
    pollfd ready = {fd_, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) return;
    const std::size_t size = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
    const ssize_t wrote = write(fd_, pending_.data() + written_, size);
    if (wrote >= 0) {
      written_ += static_cast<std::size_t>(wrote);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) drop();  // EPIPE, EIO of a terminal that is gone, ENOSPC
      break;
    }
  }
  if (closed_ || empty()) {
    pending_.clear();
    written_ = 0;
  } else if (written_ > kFull) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

void Sink::drop() {
  closed_ = true;
  pending_.clear();
  written_ = 0;
}

Output::Output(Color color)
    : same_(same_place(STDOUT_FILENO, STDERR_FILENO)),
      out_(STDOUT_FILENO, isatty(STDOUT_FILENO), colored(color, STDOUT_FILENO)),
      err_(STDERR_FILENO, isatty(STDERR_FILENO), colored(color, STDERR_FILENO)) {}

void Output::note(std::string_view text) {
  const bool bold = err().colored();
  err().add(cat(bold ? "\x1b[1m" : "", "[tutti-run]", bold ? kPlain : "", " ", text, "\n"));
}

LineSplitter::LineSplitter(Sink& sink, std::string_view name, int number) : sink_(sink) {
  constexpr std::array<int, 12> kColors = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
  if (name.empty()) return;
  if (sink.colored()) {
    const int color = kColors[static_cast<std::size_t>(number) % kColors.size()];
    prefix_ = cat("\x1b[", color, "m[", name, "]", kPlain, " ");
  } else {
    prefix_ = cat("[", name, "] ");
  }
}

void LineSplitter::feed(std::string_view bytes, LastLines& last) {
  while (!bytes.empty()) {
    const std::size_t room = kLongest - partial_.size();
    const std::size_t end = bytes.substr(0, room + 1).find('\n');
    if (end == bytes.npos && bytes.size() <= room) {
      partial_.append(bytes);
      return;
    }
    const std::size_t taken = std::min(end, room);
    if (partial_.empty()) {
      emit(bytes.substr(0, taken), last);
    } else {
      partial_.append(bytes.substr(0, taken));
      emit(partial_, last);
      partial_.clear();
    }
    bytes.remove_prefix(end == bytes.npos ? taken : taken + 1);
  }
}

void LineSplitter::finish(LastLines& last) {
  if (!partial_.empty()) emit(partial_, last);
  partial_.clear();
}

void LineSplitter::emit(std::string_view line, LastLines& last) {
  std::string_view shown = line;
  if (sink_.terminal()) {  // a bar would write over the prefix
    if (!shown.empty() && shown.back() == '\r') shown.remove_suffix(1);
    shown.remove_prefix(shown.rfind('\r') + 1);
  }
  sink_.add(prefix_);
  sink_.add(shown);
  sink_.add("\n");
  last.add(line);
}

}  // namespace tutti::launcher
