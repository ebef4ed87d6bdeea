#include "tutti/base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/mutex.h"

namespace tutti {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("TUTTI_LOG");
  if (text == nullptr || *text == '\0') return LogLevel::kInfo;
  const std::string name = to_lower(text);
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  std::fprintf(stderr,
               "[tutti warning] TUTTI_LOG is \"%s\", expected debug, info, warning, error or off; "
               "using info\n",
               text);
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

}  // namespace

void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }
LogLevel log_level() { return current_level().load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  if (level < log_level()) return;
  const std::string line = cat("[tutti ", name_of(level), "] ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void log_once(LogLevel level, const std::string& key, std::string_view text) {
  static Mutex mutex;
  static std::set<std::string> seen;
  {
    MutexLock lock(mutex);
    if (!seen.insert(key).second) return;
  }
  log_line(level, text);
}

}  // namespace tutti
