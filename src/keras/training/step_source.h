#pragma once
// Where the loop takes its steps from: arrays or distributed datasets, as one Batch for each local
// replica.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/keras/model.h"

namespace tutti::keras {

/// The local replicas' parts of one step, and the rows of all replicas together.
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
  /// See DistributedPlan.
  virtual bool deals_in_turn() const { return false; }
};

struct ArrayData {
  Nest x;
  Nest y;              // may be None
  Nest sample_weight;  // may be None
};

// Both throw InvalidArgument in the name of `operation`.

/// Lengths that differ, or no rows, are errors. Every worker has the whole arrays and takes the
/// parts of its replicas.
std::unique_ptr<StepSource> array_source(const char* operation, ArrayData arrays,
                                         int64_t batch_size, Shuffle::Kind shuffle,
                                         const distribute::Strategy& strategy);
/// A dataset that was distributed to another number of replicas is an error.
std::unique_ptr<StepSource> dataset_source(const char* operation,
                                           std::shared_ptr<distribute::DistributedPlan> plan,
                                           const distribute::Strategy& strategy,
                                           std::map<int64_t, double> class_weight = {});

/// The same structure with `function` of each tensor, and `strings` of each StringTensor.
Nest map_parts(const Nest& nest, FunctionRef<Tensor(const Tensor&)> function,
               FunctionRef<StringTensor(const StringTensor&)> strings);
/// Rows `begin` to `end` of every part.
Nest rows_of(const Nest& nest, int64_t begin, int64_t end);
/// Rows of the first part; 0 when there is none.
int64_t count_rows(const Nest& nest);
/// A list or tuple of one part is that part.
Nest unwrapped(Nest nest);

/// The weight of each label's class. InvalidArgument for labels of several outputs.
Tensor weights_of_classes(const char* operation, const Nest& labels,
                          const std::map<int64_t, double>& class_weight);
}  // namespace tutti::keras
