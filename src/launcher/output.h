#pragma once
// The launcher's own standard output and error: whole lines, from whichever task, in order, without
// ever blocking the loop.

#include <deque>
#include <string>
#include <string_view>

#include "launcher/options.h"

namespace tutti::launcher {

/// The last lines of a task, cut to a length worth showing.
class LastLines {
 public:
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return lines_; }
  void clear() { lines_.clear(); }

  static constexpr std::size_t kMost = 20, kLongest = 500;

 private:
  std::deque<std::string> lines_;
};

/// What waits to be written to one descriptor.
class Sink {
 public:
  /// Prefixes are shown in colour, and a line that rewrites itself (\r) by its last state.
  Sink(int fd, bool terminal, bool colored) : fd_(fd), terminal_(terminal), colored_(colored) {}

  void add(std::string_view text) { pending_.append(text); }
  /// Writes as much as goes without blocking, when poll says that something does. What the reader
  /// does not want any more (EPIPE) is dropped, now and later.
  void write_ready();
  bool empty() const { return pending_.size() == written_; }
  bool full() const { return pending_.size() - written_ > kFull; }
  void drop();
  int fd() const { return fd_; }
  bool terminal() const { return terminal_; }
  bool colored() const { return colored_; }

 private:
  static constexpr std::size_t kFull = 1 << 20;

  int fd_;
  bool terminal_, colored_, closed_ = false;
  std::string pending_;
  std::size_t written_ = 0;
};

/// Standard output and standard error; one sink when both go to the same place, so that a line of
/// one never lands in the midst of a line of the other.
class Output {
 public:
  explicit Output(Color color);

  Sink& out() { return out_; }
  Sink& err() { return same_ ? out_ : err_; }
  bool same() const { return same_; }
  /// "[tutti-run] text" on standard error.
  void note(std::string_view text);
  bool full() const { return out_.full() || err_.full(); }
  bool empty() const { return out_.empty() && err_.empty(); }

 private:
  bool same_;
  Sink out_, err_;
};

/// Cuts a stream of bytes into lines with a prefix. A line over 64 KiB is shown in pieces, each as
/// a line; a last line without end gets one.
class LineSplitter {
 public:
  /// "[name] " in the colour `number`; none when `name` is empty.
  LineSplitter(Sink& sink, std::string_view name, int number);

  void feed(std::string_view bytes, LastLines& last);
  void finish(LastLines& last);

 private:
  void emit(std::string_view line, LastLines& last);

  static constexpr std::size_t kLongest = 64 << 10;

  Sink& sink_;
  std::string prefix_, partial_;
};

}  // namespace tutti::launcher
