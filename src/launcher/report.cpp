#include "launcher/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tutti/base/text.h"

namespace tutti::launcher {

// What PreemptionCheckpointHandler records on the worker that was told first, before it ends.
constexpr std::string_view kToldFirst = "preempted: ";

std::optional<RecordedError> read_error_file(const std::string& path) {
  constexpr std::size_t kMost = 64 << 10;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMost, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  char* end = nullptr;
  RecordedError error;
  error.time = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != ' ' || !std::isfinite(error.time)) return std::nullopt;
  error.text = text.substr(static_cast<std::size_t>(end - text.c_str()) + 1);
  while (!error.text.empty() && error.text.back() == '\n') error.text.pop_back();
  return error;
}

Failure failure_of(const TaskProcess& process, std::size_t index, int restarts,
                   const std::string& error_file) {
  Failure failure;
  failure.task = process.task().name();
  if (process.remote()) failure.task += cat(" on ", process.task().machine);
  failure.index = index;
  failure.pid = process.pid();
  failure.restarts = restarts;
  failure.lived = std::chrono::duration<double>(process.ended_at() - process.started_at()).count();
  failure.end = process.end();
  failure.ended_by_us = process.asked() != 0;
  failure.last_lines = process.last_lines();
  failure.error = read_error_file(error_file);
  if (failure.end.preempted() && failure.error && failure.error->text.starts_with(kToldFirst)) {
    failure.told_first = true;
    failure.error.reset();  // it explains no failure
  }
  return failure;
}

std::string preempted_tasks(const std::vector<Failure>& failures) {
  std::vector<std::string> names;
  for (const Failure& failure : failures) {
    if (!failure.end.preempted()) continue;
    if (failure.told_first) {
      names.insert(names.begin(), cat(failure.task, " (told first)"));
    } else {
      names.push_back(failure.task);
    }
  }
  return join(names, ", ");
}

std::string blamed_task(const std::string& error) {
  const std::string::size_type end = error.find(" failed first: ");
  const std::string task = error.substr(0, std::min(end, error.find(' ')));
  const std::string::size_type colon = task.find(':');
  if (end == error.npos || end != task.size() || colon == task.npos) return "";
  return cat(task.substr(0, colon), " ", task.substr(colon + 1));
}

void put_root_first(std::vector<Failure>& failures) {
  const auto earlier = [](const Failure& a, const Failure& b) {
    if (!a.error || !b.error) return a.error.has_value() && !b.error.has_value();
    return a.error->time < b.error->time;
  };
  const auto root = std::min_element(failures.begin(), failures.end(), earlier);
  if (root == failures.end()) return;
  std::rotate(failures.begin(), root, root + 1);
  if (!failures[0].error) return;
  const std::string blamed = blamed_task(failures[0].error->text);
  const auto first = std::find_if(failures.begin(), failures.end(), [&](const Failure& failure) {
    return failure.task == blamed || failure.task.starts_with(blamed + " on ");
  });
  if (blamed.empty() || first == failures.end()) return;
  if (!first->error) first->error = failures[0].error;  // who was killed could not say it
  std::rotate(failures.begin(), first, first + 1);
}

std::string seconds_text(double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", seconds < 1000 ? 3 : 10, seconds);
  return text;
}

std::string summary(const Failure& failure) {
  return cat(failure.task, " (pid ", failure.pid, ", start ", failure.restarts, "), ",
             failure.end.text(), " after ", seconds_text(failure.lived), " s");
}

std::vector<std::string> report_lines(const std::vector<Failure>& failures) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < failures.size(); ++i) {
    const Failure& failure = failures[i];
    if (i > 0) {
      lines.push_back(cat("then: ", summary(failure),
                          failure.ended_by_us ? ", asked to end by tutti-run" : ""));
      continue;
    }
    lines.push_back(cat("first failure: ", summary(failure)));
    if (failure.error) {
      for (const std::string& line : split(failure.error->text, '\n')) {
        lines.push_back(cat("  error: ", line));
      }
    }
    if (failure.last_lines.empty()) {
      lines.push_back("  it printed nothing");
    } else {
      lines.push_back("  its last lines:");
      for (const std::string& line : failure.last_lines) lines.push_back(cat("  | ", line));
    }
  }
  return lines;
}

}  // namespace tutti::launcher
