#pragma once
// The progress bars of Keras 3 and of tf.keras.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::keras {

enum class BarLayout {
  kKeras3,  ///< `1/3 ━━━ 2s 1s/step - loss: 0.5000`
  kClassic  ///< `1/3 [=>...] - ETA: 2s - loss: 0.5000`
};

struct ProgressBarOptions {
  BarLayout layout = BarLayout::kKeras3;
  /// Cells; unset: 20, classic 30.
  std::optional<int> width = std::nullopt;
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
  /// Whether update() would draw now: callers then fetch the values. Told of each step, also where
  /// nothing is drawn, it knows when the target was reached.
  bool due(int64_t current);
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
  void note(int64_t current, double now);
  void draw(int64_t current, const Values& values, double now, bool finalize);
  void print_line(int64_t current, const Values& values, double now) const;

  int64_t target_;
  ProgressBarOptions options_;
  double start_;
  double last_drawn_ = 0;
  int64_t first_ = 0;  ///< steps at the first update, which pays for start-up
  double after_first_ = 0;
  std::optional<double> at_target_;  ///< when the target was reached
  bool drawn_ = false;
  std::size_t visible_ = 0;
  bool line_open_ = false;
};

/// A bar on standard output as config::set_progress_bar says, for `verbose` 1 or 2.
std::unique_ptr<ProgressBar> make_bar(int64_t target, int verbose);
/// Whether numbers stand in the order of compile, not sorted.
bool bar_keeps_order();

}  // namespace tutti::keras
