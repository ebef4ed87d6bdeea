#pragma once
// What compile and fit keep in a model.

#include <ATen/core/TensorBase.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/model.h"

namespace tutti::keras {

/// What was compiled for one output of the model.
struct OutputTraining {
  std::string name;                          ///< empty for the only output
  losses::Loss loss;                         ///< may be undefined
  double weight = 1;                         ///< of its loss in the sum
  std::optional<metrics::Mean> loss_metric;  ///< where several outputs have losses
  std::vector<metrics::Metric> metrics;
  std::vector<metrics::Metric> weighted_metrics;
};

/// The outputs as compiled, for predictions of this structure and these names. InvalidArgument when
/// the compiled losses, weights or metrics do not fit them.
std::vector<OutputTraining> outputs_of(const Model& model, const PerOutput<losses::Loss>& loss,
                                       const PerOutput<double>& loss_weights, const Nest& y_pred);
/// What of `metrics` belongs to output `index`.
std::vector<MetricSpec> metrics_of(const Model& model, const Metrics& metrics,
                                   const std::vector<OutputTraining>& outputs, std::size_t index);
/// The part of targets or weights for output `index`; undefined where there is none.
Tensor part_of(const Nest& nest, const std::vector<OutputTraining>& outputs, std::size_t index);

struct Model::Training {
  explicit Training(int local_replicas) : masks(static_cast<std::size_t>(local_replicas)) {}

  bool compiled = false;
  optimizers::Optimizer optimizer;
  PerOutput<losses::Loss> loss;
  PerOutput<double> loss_weights;
  Metrics metric_specs;
  Metrics weighted_metric_specs;
  int64_t steps_per_execution = 1;
  bool auto_scale_loss = true;

  /// Made with the first predictions, whose structure says which outputs there are.
  std::vector<OutputTraining> outputs;
  void know_outputs(const Model& model, const Nest& y_pred);
  /// Made with the first loss.
  std::optional<metrics::Mean> loss_metric;
  void make_loss_metrics();
  /// Made with the first batch, whose shapes decide what "accuracy" means.
  bool metrics_built = false;
  /// The metrics of all outputs by their names in the logs, the weighted ones behind the others.
  std::vector<std::pair<std::string, metrics::Metric>> named_metrics;
  void name_metrics();
  /// What a step needs and no step changes; made anew by each fit.
  std::vector<Variable> trainable;
  bool trainable_known = false;
  /// Rows of the step under way over all replicas; -1 outside the loop, where they must be counted.
  int64_t step_rows = -1;
  /// While fit is inside an epoch, an evaluation must give the metrics back as they were.
  bool in_epoch = false;

  /// A mask and the output that it belongs to. The weak pointer keeps no tensor alive, but no other
  /// one gets its address either.
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct OutputMask {
    Weak output;
    Tensor mask;
  };
  /// Of each local replica's last call, where the model has masks.
  std::vector<std::vector<OutputMask>> masks;
  void note_masks(std::size_t replica, const std::vector<Tensor>& output_tensors,
                  const std::vector<Tensor>& output_masks) {
    auto& own = masks[replica];
    own.clear();
    for (std::size_t i = 0; i < output_masks.size(); ++i) {
      if (!output_masks[i].defined()) continue;
      own.push_back({Weak(output_tensors[i].getIntrusivePtr()), output_masks[i]});
    }
  }
  Tensor mask_of(std::size_t replica, const Tensor& output) const {
    for (const OutputMask& own : masks[replica]) {
      if (own.output._unsafe_get_target() == output.unsafeGetTensorImpl()) return own.mask;
    }
    return {};
  }

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
    for (const OutputTraining& output : outputs) {
      if (output.loss_metric) all.push_back(*output.loss_metric);
    }
    for (const auto& [name, metric] : named_metrics) all.push_back(metric);
    return all;
  }
};

}  // namespace tutti::keras
