#pragma once
// The options of the pipeline whose pass is being made.

#include <memory>

#include "tutti/data/plan.h"

namespace tutti::data {

/// Null: nothing is set.
using PassOptions = std::shared_ptr<const Options>;
/// Of this thread. An iterator that makes others later keeps them.
const PassOptions& current_pass_options();

class PassOptionsScope {
 public:
  explicit PassOptionsScope(PassOptions options);
  ~PassOptionsScope();
  PassOptionsScope(const PassOptionsScope&) = delete;
  PassOptionsScope& operator=(const PassOptionsScope&) = delete;

 private:
  PassOptions outer_;
};

/// InvalidArgument or Unimplemented for values that mean nothing here.
void check_options(const Options& options);

/// A pass with the plan's options that is not saved.
std::unique_ptr<Iterator> plain_pass(const Plan& plan);

/// What the current options say, with defaults.
struct PassSettings {
  PassSettings();
  /// For `num_parallel_calls` of a transformation.
  int calls(int64_t num_parallel_calls) const;
  bool deterministic;
  bool warm_start;
  bool autotune;
  int64_t cpu_budget;
  int64_t ram_budget;
  int64_t most_threads;
  int cores_per_thread;
};

}  // namespace tutti::data
