#pragma once
// Where the loop takes its steps from: arrays or distributed datasets, as one Batch for each local
// replica.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/model.h"

namespace tutti::keras {

/// The replicas' parts of one step and their rows together.
struct Step {
  std::vector<Batch> batches;
  int64_t rows = 0;
};

class StepSource {
 public:
  virtual ~StepSource() = default;
  /// Begins a pass; `step`, that of the training so far, decides the order of shuffled rows.
  virtual void start(int64_t step) = 0;
  /// The next step of the pass, or nothing at its end.
  virtual std::optional<Step> next() = 0;
  /// Leaves out the next `steps` steps of the pass.
  virtual void skip(int64_t steps) {
    while (steps-- > 0 && next()) {
    }
  }
  /// As if so many passes had been begun and left: for data whose order is another in each pass.
  virtual void count_passes(int64_t passes) {}
  /// What decides the order of shuffled rows besides the step; 0 where that is not the source's.
  virtual uint64_t seed() const { return 0; }
  virtual void set_seed(uint64_t seed) {}
  /// Steps in a pass; -1 when unknown or without end.
  virtual int64_t steps() const = 0;
  /// How steps() comes about, and how large batches are; see DistributedPlan.
  virtual std::string steps_text() const = 0;
};

struct ArrayData {
  Tensor x;
  Tensor y;              // may be undefined
  Tensor sample_weight;  // may be undefined
};

// Both throw InvalidArgument in the name of `operation`.

/// Lengths that differ, or no rows, are errors.
std::unique_ptr<StepSource> array_source(const char* operation, ArrayData arrays,
                                         int64_t batch_size, bool shuffle,
                                         const distribute::Strategy& strategy);
/// A dataset that was distributed to another number of replicas is an error.
std::unique_ptr<StepSource> dataset_source(const char* operation,
                                           std::shared_ptr<distribute::DistributedPlan> plan,
                                           const distribute::Strategy& strategy,
                                           std::map<int64_t, double> class_weight = {});

/// The weight of each label's class.
Tensor weights_of_classes(const Tensor& labels, const std::map<int64_t, double>& class_weight);

}  // namespace tutti::keras
