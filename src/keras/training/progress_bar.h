#pragma once
// The progress bar of Keras 3.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace tutti::keras {

struct ProgressBarOptions {
  int width = 20;
  /// 1: a bar that is drawn again and again; 2: one line at the end.
  int verbose = 1;
  /// Seconds between two drawings.
  double interval = 0.05;
  /// True: a terminal, on which a line is drawn over; false: each drawing on a line of its own.
  bool dynamic = true;
  /// Seconds of a clock that does not go back.
  std::function<double()> clock = {};
  std::ostream* out = nullptr;  ///< null: std::cout
};

/// Draws `current` of `target` steps with numbers behind it. Not thread-safe.
class ProgressBar {
 public:
  using Values = std::vector<std::pair<std::string, double>>;
  /// `target` -1: unknown.
  explicit ProgressBar(int64_t target, const ProgressBarOptions& options = {});
  /// Whether update() would draw now: callers then fetch the values.
  bool due(int64_t current) const;
  void update(int64_t current, const Values& values, bool finalize = false);
  void set_target(int64_t target) { target_ = target; }
  /// Ends a line that was begun: after an exception.
  void break_line();

 private:
  std::string bar_text(int64_t current) const;
  std::string time_text(int64_t current, double now, bool finalize);
  std::string values_text(const Values& values) const;
  double time_per_step(int64_t current, double now);

  int64_t target_;
  ProgressBarOptions options_;
  double start_;
  double last_drawn_ = 0;
  double after_first_ = -1;
  int64_t seen_ = 0;
  std::size_t visible_ = 0;
  bool line_open_ = false;
};

}  // namespace tutti::keras
