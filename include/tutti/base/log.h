#pragma once
// Log lines on standard error, with a level set by TUTTI_LOG or by call.

#include <string>
#include <string_view>

#include "tutti/base/text.h"

namespace tutti {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Lines below `level` are dropped from now on. At start TUTTI_LOG decides (debug, info, warning,
/// error, off; default info).
void set_log_level(LogLevel level);
LogLevel log_level();

/// Prints one line `[tutti level] text` in a single write. Any thread may call it.
void log_line(LogLevel level, std::string_view text);

/// Logs a line at most once for each distinct `key` in this process.
void log_once(LogLevel level, const std::string& key, std::string_view text);

template <class... Args>
void log_debug(const Args&... args) {
  if (log_level() <= LogLevel::kDebug) log_line(LogLevel::kDebug, cat(args...));
}
template <class... Args>
void log_info(const Args&... args) {
  if (log_level() <= LogLevel::kInfo) log_line(LogLevel::kInfo, cat(args...));
}
template <class... Args>
void log_warning(const Args&... args) {
  if (log_level() <= LogLevel::kWarning) log_line(LogLevel::kWarning, cat(args...));
}

}  // namespace tutti
