// The text of Keras 3: `1/3 ━━━…━━━ 2s 1s/step - loss: 0.5000`, and that of tf.keras:
// `1/3 [=>…...] - ETA: 2s - loss: 0.5000`. Before the end the time is what is left, at the end what
// has passed. The time of a step leaves the first one out, which pays for start-up.

#include "keras/training/progress_bar.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/output.h"

namespace tutti::keras {

namespace {
constexpr const char* kLayouts[] = {"keras3", "classic"};  // in the order of BarLayout
std::atomic<BarLayout> chosen_layout{BarLayout::kKeras3};
std::atomic<int> chosen_dynamic{-1};  // -1: on a terminal
}  // namespace

void config::set_progress_bar(const ProgressBarConfig& config) {
  for (const BarLayout layout : {BarLayout::kKeras3, BarLayout::kClassic}) {
    if (config.layout != kLayouts[static_cast<int>(layout)]) continue;
    chosen_layout = layout;
    chosen_dynamic = config.dynamic ? static_cast<int>(*config.dynamic) : -1;
    return;
  }
  throw InvalidArgument(cat("set_progress_bar [layout]: \"", config.layout,
                            "\", expected \"keras3\" or \"classic\""));
}

config::ProgressBarConfig config::progress_bar() {
  const int dynamic = chosen_dynamic;
  return {kLayouts[static_cast<int>(chosen_layout.load())],
          dynamic < 0 ? std::nullopt : std::optional<bool>(dynamic != 0)};
}

std::unique_ptr<ProgressBar> make_bar(int64_t target, int verbose) {
  ProgressBarOptions options;
  const int dynamic = chosen_dynamic;
  options.layout = chosen_layout;
  options.verbose = verbose;
  options.dynamic = dynamic < 0 ? isatty(STDOUT_FILENO) != 0 : dynamic != 0;
  return std::make_unique<ProgressBar>(target, options);
}

bool bar_keeps_order() { return chosen_layout == BarLayout::kClassic; }

namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kWhite = "\x1b[37m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kCell = "\u2501";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char buffer[128];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

std::string repeated(const char* text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// Characters that a terminal shows: escape sequences and continuation bytes do not count.
std::size_t visible_length(const std::string& text) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && text[i] != '\r' &&
               text[i] != '\n') {
      ++length;
    }
  }
  return length;
}

std::string left_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (seconds > 3600)
    return formatted("%d:%02d:%02d", static_cast<int>(whole / 3600),
                     static_cast<int>(whole % 3600 / 60), static_cast<int>(whole % 60));
  if (seconds > 60)
    return formatted("%d:%02d", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  return formatted("%ds", static_cast<int>(whole));
}

std::string duration_text(double seconds, const char* unit) {
  if (seconds >= 1 || seconds == 0) return formatted("%.0fs/%s", seconds, unit);
  if (seconds >= 1e-3) return formatted("%.0fms/%s", seconds * 1e3, unit);
  return formatted("%.0fus/%s", seconds * 1e6, unit);
}
std::string step_text(double seconds) { return duration_text(seconds, "step"); }

/// As Keras: four digits, with an exponent up to 1e-3 and so for 0 too.
std::string value_text(double value) {
  if (std::isnan(value)) return "nan";  // printf may put a sign before it
  return formatted(std::abs(value) > 1e-3 ? "%.4f" : "%.4e", value);
}

}  // namespace

ProgressBar::ProgressBar(int64_t target, const ProgressBarOptions& options)
    : target_(target), options_(options) {
  if (!options_.clock) options_.clock = steady_seconds;
  if (options_.out == nullptr) options_.out = &std::cout;
  if (!options_.width) options_.width = options_.layout == BarLayout::kClassic ? 30 : 20;
  start_ = options_.clock();
}

double ProgressBar::time_per_step(int64_t current, double now) const {
  if (current <= 0) return 0;
  if (first_ > 0 && current > first_)
    return (now - after_first_) / static_cast<double>(current - first_);
  return (now - start_) / static_cast<double>(current);
}

void ProgressBar::note(int64_t current, double now) {
  if (first_ == 0 && current >= 1) {
    first_ = current;
    after_first_ = now;
  }
  if (!at_target_ && current == target_) at_target_ = now;
}

bool ProgressBar::due(int64_t current) {
  if (options_.verbose != 1) {
    if (current == target_) note(current, options_.clock());
    return false;
  }
  return !drawn_ || options_.clock() - last_drawn_ >= options_.interval;
}

std::string ProgressBar::bar_text(int64_t current) const {
  if (target_ < 0) return formatted("%7lld/Unknown", static_cast<long long>(current));
  const std::string target = std::to_string(target_);
  std::string number = std::to_string(current);
  number.insert(0, target.size() - std::min(target.size(), number.size()), ' ');
  const double share =
      target_ == 0 ? 1 : std::min(1.0, static_cast<double>(current) / static_cast<double>(target_));
  const int filled = static_cast<int>(*options_.width * share);
  const int rest = *options_.width - filled;
  if (options_.layout == BarLayout::kClassic) {
    const std::string head = filled == 0 ? "" : current < target_ ? ">" : "=";
    return cat(number, "/", target, " [", repeated("=", filled - 1), head, repeated(".", rest),
               "]");
  }
  std::string text = cat(kBold, number, "/", target, kPlain, " ");
  if (filled > 0) text += cat(kGreen, repeated(kCell, filled), kPlain);
  return text + cat(kWhite, repeated(kCell, rest), kPlain);
}

std::string ProgressBar::time_text(int64_t current, double now, bool finalize) const {
  const double per_step = time_per_step(current, now);
  const bool passed = target_ < 0 || finalize;
  const std::string shown = passed ? formatted("%.0fs", now - start_)
                                   : left_text(per_step * static_cast<double>(target_ - current));
  if (options_.layout == BarLayout::kClassic)
    return passed ? cat(" - ", shown, " ", step_text(per_step)) : cat(" - ETA: ", shown);
  return cat(" ", kBold, shown, kPlain, " ", step_text(per_step));
}

std::string ProgressBar::values_text(const Values& values) const {
  std::string text;
  for (const auto& [name, value] : values) text += cat(" - ", name, ": ", value_text(value));
  return text;
}

void ProgressBar::update(int64_t current, const Values& values, std::optional<bool> finalize) {
  const double now = options_.clock();
  const bool last = finalize.value_or(target_ >= 0 && current >= target_);
  if (options_.verbose == 1) {
    if (!last && drawn_ && now - last_drawn_ < options_.interval) return;
    draw(current, values, now, last);
  } else if (options_.verbose == 2 && last) {
    print_line(current, values, now);
  }
  note(current, now);
}

void ProgressBar::draw(int64_t current, const Values& values, double now, bool finalize) {
  std::string line;
  if (options_.dynamic) {
    line += std::string(line_open_ ? visible_ : 0, '\b') + "\r";
  } else {
    line += line_open_ ? "\n" : "";
  }
  std::string text = cat(bar_text(current), time_text(current, now, finalize), values_text(values));
  const std::size_t length = visible_length(text);
  if (line_open_ && options_.dynamic && length < visible_) text.append(visible_ - length, ' ');
  visible_ = length;
  line_open_ = !finalize;
  drawn_ = true;
  last_drawn_ = now;
  *options_.out << line << text << (finalize ? "\n" : "") << std::flush;
}

void ProgressBar::print_line(int64_t current, const Values& values, double now) const {
  const double elapsed = now - start_;
  const double per_step = current > 0 ? elapsed / static_cast<double>(current) : 0;
  const std::string count = target_ >= 0 ? cat(current, "/", target_) : cat(current, "/Unknown");
  if (options_.layout == BarLayout::kClassic) {
    const double epoch = at_target_.value_or(now) - start_;
    *options_.out << cat(count, " - ", formatted("%.0fs", elapsed), values_text(values), " - ",
                         duration_text(epoch, "epoch"), " - ",
                         step_text(current > 0 ? epoch / static_cast<double>(current) : 0), "\n")
                  << std::flush;
    return;
  }
  *options_.out << cat(count, " - ", formatted("%.0fs", elapsed), " - ", step_text(per_step),
                       values_text(values), "\n")
                << std::flush;
}

void ProgressBar::break_line() {
  if (line_open_) *options_.out << "\n" << std::flush;
  line_open_ = false;
}

}  // namespace tutti::keras
