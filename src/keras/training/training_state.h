#pragma once
// What compile and fit keep in a model.

#include <memory>
#include <vector>

#include "tutti/keras/model.h"

namespace tutti::keras {

struct Model::Training {
  bool compiled = false;
  optimizers::Optimizer optimizer;
  losses::Loss loss;
  std::vector<MetricSpec> metric_specs;
  std::vector<MetricSpec> weighted_metric_specs;
  int64_t steps_per_execution = 1;

  /// Made with the first batch, whose shapes decide what "accuracy" means.
  std::vector<metrics::Metric> metrics;
  std::vector<metrics::Metric> weighted_metrics;
  std::optional<metrics::Mean> loss_metric;
  bool metrics_built = false;
  /// What a step needs and no step changes; made anew by each fit.
  std::vector<Variable> trainable;
  bool trainable_known = false;
  /// Rows of the step under way over all replicas; -1 outside the loop, where they must be counted.
  int64_t step_rows = -1;
  /// While fit is inside an epoch, an evaluation must give the metrics back as they were.
  bool in_epoch = false;

  /// The step whose random numbers a train step draws: the optimizer's count, which is saved with
  /// it; where a train_step of the user's own leaves the optimizer alone, one more each time.
  int64_t next_random_step() const {
    const int64_t steps = optimizer.gradient_steps();
    return steps != seen_steps ? steps : random_step + 1;
  }
  int64_t begin_random_step() {
    random_step = next_random_step();
    seen_steps = optimizer.gradient_steps();
    return random_step;
  }
  int64_t random_step = -1;
  int64_t seen_steps = -1;

  std::vector<metrics::Metric> all_metrics() const {
    std::vector<metrics::Metric> all;
    if (loss_metric) all.push_back(*loss_metric);
    all.insert(all.end(), metrics.begin(), metrics.end());
    all.insert(all.end(), weighted_metrics.begin(), weighted_metrics.end());
    return all;
  }
};

}  // namespace tutti::keras
