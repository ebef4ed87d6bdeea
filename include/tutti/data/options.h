#pragma once
// Arguments of sources and transformations.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/plan.h"
#include "tutti/tensor/nest.h"

namespace tutti::data {

struct RangeOptions {
  at::ScalarType output_type = at::ScalarType::Long;
};
struct CounterOptions {
  int64_t start = 0;
  int64_t step = 1;
  at::ScalarType output_type = at::ScalarType::Long;
};
struct RandomOptions {
  std::optional<int64_t> seed = std::nullopt;
  /// True: each pass has other numbers (the same ones in each run of a seeded program).
  bool rerandomize_each_iteration = false;
};
struct ListFilesOptions {
  /// Each pass has another order (the same ones in each run of a seeded program). Workers that
  /// share out the files want false, or one seed, or they see different orders and read some files
  /// twice.
  bool shuffle = true;
  std::optional<int64_t> seed = std::nullopt;
};
struct SampleOptions {
  /// One for each dataset, none below 0; empty: all equal. What they add up to does not matter.
  std::vector<double> weights = {};
  std::optional<int64_t> seed = std::nullopt;
  /// False: a dataset that has ended is left out from then on.
  bool stop_on_empty_dataset = false;
  bool rerandomize_each_iteration = false;
};
struct ChooseOptions {
  /// False: choices of a dataset that has ended are passed over.
  bool stop_on_empty_dataset = true;
};

struct MapOptions {
  /// Unset: one call after the other, on the thread of the pass. Else as many calls at once, on
  /// threads of the pass: the function must be safe to call from several threads; it draws random
  /// numbers from element_random(). The threads also read the input, one at a time. kAutotune: one
  /// call for each core.
  std::optional<int64_t> num_parallel_calls = std::nullopt;
  /// False: results may overtake each other. Only with num_parallel_calls.
  std::optional<bool> deterministic = std::nullopt;
};
struct InterleaveOptions {
  /// Datasets that are open at a time; unset: 4, whatever the machine, so that the order is the
  /// same everywhere.
  std::optional<int64_t> cycle_length = std::nullopt;
  /// Elements that are taken from one before the next has its turn.
  int64_t block_length = 1;
  /// As MapOptions has them; the order of the elements is that of the sequential form.
  std::optional<int64_t> num_parallel_calls = std::nullopt;
  std::optional<bool> deterministic = std::nullopt;
};
struct BatchOptions {
  bool drop_remainder = false;
};
using ShapeNest = NestOf<std::vector<int64_t>>;
struct PaddedBatchOptions {
  /// Of one element, for each component; -1: the longest of the batch. Unset: all of them.
  std::optional<ShapeNest> padded_shapes = std::nullopt;
  /// For each component, or one for all; unset: 0, and "" for strings.
  std::optional<Nest> padding_values = std::nullopt;
  bool drop_remainder = false;
};
struct BucketOptions {
  /// As PaddedBatchOptions has them.
  std::optional<ShapeNest> padded_shapes = std::nullopt;
  std::optional<Nest> padding_values = std::nullopt;
  /// Unknown sizes are filled up to the bucket's boundary - 1, not to the longest of the batch;
  /// elements of the last bucket are InvalidArgument then.
  bool pad_to_bucket_boundary = false;
  /// The elements of a batch must have one shape.
  bool no_padding = false;
  bool drop_remainder = false;
};
struct ShuffleOptions {
  std::optional<int64_t> seed = std::nullopt;
  /// True: each pass has another order (the same ones in each run of a seeded program).
  bool reshuffle_each_iteration = true;
};
struct WindowOptions {
  /// Elements from the start of one window to that of the next; unset: its size.
  std::optional<int64_t> shift = std::nullopt;
  /// Every how many-th element is in the window.
  int64_t stride = 1;
  /// False: the last windows may be short.
  bool drop_remainder = false;
};
struct ResampleOptions {
  /// How frequent each class is; unset: counted during the pass, from 10 of each.
  std::optional<std::vector<double>> initial_dist = std::nullopt;
  std::optional<int64_t> seed = std::nullopt;
};
struct IgnoreErrorsOptions {
  /// Each error is a warning in the log.
  bool log_warning = false;
};

}  // namespace tutti::data
