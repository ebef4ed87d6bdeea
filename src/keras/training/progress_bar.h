#pragma once
// The progress bar of Keras 3.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
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

/// Draws `current` of `target` steps with numbers behind it; a line that is still open when it dies
/// is ended. Not thread-safe.
class ProgressBar {
 public:
  using Values = std::vector<std::pair<std::string, double>>;
  /// `target` -1: unknown.
  explicit ProgressBar(int64_t target, const ProgressBarOptions& options = {});
  ~ProgressBar() { break_line(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Whether update() would draw now: callers then fetch the values.
  bool due(int64_t current) const;
  /// `finalize` ends the line; unset: at the target.
  void update(int64_t current, const Values& values, std::optional<bool> finalize = std::nullopt);
  void set_target(int64_t target) { target_ = target; }
  /// Ends a line that was begun: after an exception.
  void break_line();

 private:
  std::string bar_text(int64_t current) const;
  std::string time_text(int64_t current, double now, bool finalize) const;
  std::string values_text(const Values& values) const;
  double time_per_step(int64_t current, double now) const;
  void draw(int64_t current, const Values& values, double now, bool finalize);
  void print_line(int64_t current, const Values& values, double now) const;

  int64_t target_;
  ProgressBarOptions options_;
  double start_;
  double last_drawn_ = 0;
  int64_t first_ = 0;  ///< steps at the first update, which pays for start-up
  double after_first_ = 0;
  bool drawn_ = false;
  std::size_t visible_ = 0;
  bool line_open_ = false;
};

}  // namespace tutti::keras
