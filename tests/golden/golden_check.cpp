// golden_check [--differences differences.md] FILE.json…: runs every case that it knows and prints
// `FILE: N passed, M failed, K unknown`, and how many are declared different. Exit 1 on any
// failure; a declared difference that is none fails too.

#include <cstring>
#include <iostream>

#include "golden/golden_file.h"
#include "tutti/base/text.h"

namespace {

using tutti::cat;
using tutti::golden::Differences;
using tutti::golden::GoldenFile;
using tutti::golden::Json;
using tutti::golden::Unknown;
using tutti::golden::Verdict;
using Runner = void (*)(const GoldenFile&, const Json&, Verdict&);

struct Known {
  const char* file;
  Runner run;
  double relative;  // RULES.md, 4
};
constexpr Known kKnown[] = {
    {"training.json", tutti::golden::run_training_case, 1e-4},
    {"optimizers.json", tutti::golden::run_optimizer_case, 1e-5},
    {"schedules.json", tutti::golden::run_schedule_case, 1e-6},
    {"distribute_core.json", tutti::golden::run_distribute_core_case, 1e-6},
    {"distributed_dataset.json", tutti::golden::run_distributed_dataset_case, 1e-6},
    {"losses.json", tutti::golden::run_losses_case, 1e-5},
    {"layers.json", tutti::golden::run_layer_case, 1e-5},
    {"metrics.json", tutti::golden::run_metric_case, 1e-5},
    {"formats.json", tutti::golden::run_format_case, 1e-6},
    {"partitioners.json", tutti::golden::run_partitioner_case, 1e-6},
    {"data.json", tutti::golden::run_data_case, 1e-6}};

int check_file(const std::string& path, const Differences& differences, bool verbose) {
  const GoldenFile file(path);
  const Known* known = nullptr;
  for (const Known& candidate : kKnown) {
    if (file.name() == candidate.file) known = &candidate;
  }
  int passed = 0;
  int different = 0;
  std::vector<std::string> failed, unknown;
  for (const Json& entry : file.cases()) {
    const std::string name = entry.at("name");
    Verdict verdict(known != nullptr ? known->relative : 0, file.name(), name, &differences);
    try {
      if (known == nullptr) throw Unknown{"file"};
      known->run(file, entry, verdict);
    } catch (const Unknown& what) {
      unknown.push_back(cat(name, " (", what.reason, ")"));
      continue;
    } catch (const std::exception& error) {
      verdict.fail(error.what());
    }
    if (differences.names(file.name(), name)) {
      ++different;
      if (!verdict.failures().empty()) continue;
      std::cout << "  " << name << ": declared different, but it agrees; take it off the list\n";
      failed.push_back(name);
    } else if (verdict.failures().empty()) {
      ++passed;
    } else {
      failed.push_back(name);
      for (std::size_t i = 0; i < std::min<std::size_t>(verdict.failures().size(), 5); ++i)
        std::cout << "  " << name << ": " << verdict.failures()[i] << "\n";
    }
  }
  if (verbose) {
    for (const std::string& name : unknown) std::cout << "  unknown: " << name << "\n";
  }
  std::cout << file.name() << ": " << passed << " passed, " << failed.size() << " failed, "
            << unknown.size() << " unknown";
  if (different > 0) std::cout << " (" << different << " declared different)";
  std::cout << "\n";
  for (const std::string& name : failed) std::cout << "  failed: " << name << "\n";
  return failed.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  bool verbose = false;
  int status = 0;
  int files = 0;
  Differences differences;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--verbose") == 0) {
      verbose = true;
      continue;
    }
    if (std::strcmp(argv[i], "--differences") == 0 && i + 1 < argc) {
      try {
        differences = Differences(argv[++i]);
      } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 2;
      }
      continue;
    }
    ++files;
    try {
      status |= check_file(argv[i], differences, verbose);
    } catch (const std::exception& error) {
      std::cout << argv[i] << ": " << error.what() << "\n";
      status = 2;
    }
  }
  if (files == 0) {
    std::cerr << "usage: golden_check [--verbose] [--differences FILE.md] FILE.json…\n";
    return 2;
  }
  return status;
}
