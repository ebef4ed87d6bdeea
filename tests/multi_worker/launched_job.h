#pragma once
// Whole jobs of multi_worker_task, started by tutti-run, and what their workers print.

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "launcher/launched.h"
#include "support/child_process.h"

namespace tutti::testing {

using launcher::Environment;
using launcher::Result;

inline std::string task_program() { return beside_this_program("multi_worker_task"); }

/// Limits of three seconds, as a test has time for.
inline Environment short_limits() {
  return {{"TUTTI_HEARTBEAT_MS", "100"},
          {"TUTTI_PING_LIMIT_MS", "3000"},
          {"TUTTI_PROGRESS_LIMIT_MS", "3000"},
          {"OMP_NUM_THREADS", "1"}};
}

/// `options` are tutti-run's, `arguments` the program's. 60 s without an end are exit code 124.
inline Result run_job(std::vector<std::string> options, const std::vector<std::string>& arguments,
                      const Environment& environment = short_limits()) {
  for (const char* word : {"--timeout", "60", "--color", "never", "--"}) options.emplace_back(word);
  options.push_back(task_program());
  options.insert(options.end(), arguments.begin(), arguments.end());
  return launcher::run_launcher(options, environment);
}

/// "[worker 1] step 3 loss 0x1p-3" → {"worker 1", {{3, "0x1p-3"}}}; of a step that was made twice
/// the last.
inline std::map<std::string, std::map<int, std::string>> losses_of(const Result& result) {
  const std::regex pattern(R"(\[(\w+ \d+)\] step (\d+) loss (\S+))");
  std::map<std::string, std::map<int, std::string>> losses;
  for (std::sregex_iterator i(result.out.begin(), result.out.end(), pattern), end; i != end; ++i)
    losses[(*i)[1]][std::stoi((*i)[2])] = (*i)[3];
  return losses;
}

/// What comes first in the output of `task`, "worker 0", as the cause of the job's end: "worker:1".
inline std::string blamed_by(const std::string& task, const Result& result) {
  const std::regex pattern(cat(R"(\[)", task, R"(\] .*?(\w+:\d+) failed first: )"));
  std::smatch found;
  return std::regex_search(result.err, found, pattern) ? found[1].str() : "nobody";
}

/// Every mention of a first failure, by any task and by tutti-run, is of `task`.
inline ::testing::AssertionResult all_blame(const std::string& task, const Result& result) {
  const std::regex pattern(R"((\w+:\d+) failed first: )");
  int count = 0;
  for (std::sregex_iterator i(result.err.begin(), result.err.end(), pattern), end; i != end; ++i) {
    if ((*i)[1] != task)
      return ::testing::AssertionFailure() << "blames " << (*i)[1] << ":\n" << result.err;
    ++count;
  }
  if (count > 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "blames nobody:\n" << result.err;
}

inline ::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "does not say \"" << part << "\":\n" << text;
}

}  // namespace tutti::testing
