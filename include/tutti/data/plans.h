#pragma once
// The plans behind the typed front of datasets, made of run-time nests.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/data/options.h"
#include "tutti/data/plan.h"

namespace tutti::data {

using NestFunction = std::function<Nest(const Nest&)>;
using NestPredicate = std::function<bool(const Nest&)>;
/// Gives one element a call, then nothing.
using NestGenerator = std::function<std::optional<Nest>()>;
/// A dataset for each element.
using PlanFunction = std::function<PlanPtr(const Nest&)>;
using NestToNumber = std::function<int64_t(const Nest&)>;
/// (state, element) → (next state, element of the result).
using NestScan = std::function<std::pair<Nest, Nest>(const Nest&, const Nest&)>;
/// How group_by_window makes groups, and a dataset of each full one.
struct Grouping {
  NestToNumber key;
  std::function<PlanPtr(int64_t key, const PlanPtr& group)> reduce;
  std::function<int64_t(int64_t key)> window_size;
};
/// Length of an element, and which lengths go together: bucket i has those below `boundaries[i]`,
/// the last one the others.
struct Buckets {
  NestToNumber element_length;
  std::vector<int64_t> boundaries;
  std::vector<int64_t> batch_sizes;
};
/// A dataset of the shards' datasets → a dataset of elements.
using ShardReader = std::function<PlanPtr(const PlanPtr& shards)>;
/// How elements go into files and come back.
struct Saving {
  std::string compression = "";
  ShardReader reader = nullptr;
  NestToNumber shard = nullptr;
};
/// How group_by_reducer makes one element of all those of a key.
struct Reduction {
  NestToNumber key;
  std::function<Nest(int64_t key)> init;
  std::function<Nest(const Nest& state, const Nest& element)> reduce;
  NestFunction finalize;
};

// Each says its errors (InvalidArgument) when it is made.
namespace plans {
PlanPtr range(int64_t start, int64_t stop, int64_t step, const RangeOptions& options = {});
PlanPtr counter(const CounterOptions& options);
PlanPtr random(const RandomOptions& options);
PlanPtr list_files(const std::vector<std::string>& patterns, const ListFilesOptions& options);
PlanPtr from_tensors(Nest element);
PlanPtr from_tensor_slices(Nest columns);
PlanPtr from_generator(std::function<NestGenerator()> factory, std::optional<SpecNest> spec);
PlanPtr text_lines(std::vector<std::string> files);
PlanPtr zip(std::vector<PlanPtr> inputs);
PlanPtr sample_from_datasets(std::vector<PlanPtr> inputs, const SampleOptions& options);
PlanPtr choose_from_datasets(std::vector<PlanPtr> inputs, PlanPtr choices,
                             const ChooseOptions& options);

PlanPtr map(PlanPtr input, NestFunction function, const MapOptions& options = {});
/// What map is with num_parallel_calls.
PlanPtr parallel_map(PlanPtr input, NestFunction function, const MapOptions& options);
PlanPtr filter(PlanPtr input, NestPredicate predicate);
PlanPtr flat_map(PlanPtr input, PlanFunction function);
PlanPtr interleave(PlanPtr input, PlanFunction function, const InterleaveOptions& options);
/// What interleave is with num_parallel_calls.
PlanPtr parallel_interleave(PlanPtr input, PlanFunction function, const InterleaveOptions& options);
PlanPtr batch(PlanPtr input, int64_t size, const BatchOptions& options);
PlanPtr padded_batch(PlanPtr input, int64_t size, const PaddedBatchOptions& options);
PlanPtr ragged_batch(PlanPtr input, int64_t size, const BatchOptions& options);
PlanPtr sparse_batch(PlanPtr input, int64_t size, std::vector<int64_t> row_shape);
PlanPtr unbatch(PlanPtr input);
PlanPtr rebatch(PlanPtr input, std::vector<int64_t> sizes, const BatchOptions& options);
PlanPtr window(PlanPtr input, int64_t size, const WindowOptions& options);
PlanPtr group_by_window(PlanPtr input, Grouping grouping);
PlanPtr group_by_reducer(PlanPtr input, Reduction reduction);
PlanPtr bucket_by_sequence_length(PlanPtr input, Buckets buckets, const BucketOptions& options);
PlanPtr shuffle(PlanPtr input, int64_t buffer_size, const ShuffleOptions& options);
PlanPtr repeat(PlanPtr input, int64_t count);
PlanPtr take(PlanPtr input, int64_t count);
PlanPtr skip(PlanPtr input, int64_t count);
PlanPtr take_while(PlanPtr input, NestPredicate predicate);
PlanPtr scan(PlanPtr input, Nest initial_state, NestScan function);
PlanPtr unique(PlanPtr input);
PlanPtr rejection_resample(PlanPtr input, NestToNumber class_of, std::vector<double> target_dist,
                           const ResampleOptions& options);
PlanPtr ignore_errors(PlanPtr input, const IgnoreErrorsOptions& options);
PlanPtr assert_cardinality(PlanPtr input, int64_t expected);
PlanPtr cache(PlanPtr input);
PlanPtr cache_in_files(PlanPtr input, const std::string& filename);
PlanPtr snapshot(PlanPtr input, const std::string& path, const Saving& saving);
void save(const Plan& plan, const std::string& path, const Saving& saving);
PlanPtr load(const std::string& path, const ShardReader& reader = nullptr);
PlanPtr pad_to_cardinality(PlanPtr input, int64_t cardinality, const std::string& mask_key);
PlanPtr prefetch(PlanPtr input, int64_t buffer_size);
PlanPtr shard(PlanPtr input, int64_t num_shards, int64_t index);
PlanPtr concatenate(PlanPtr first, PlanPtr second);
PlanPtr enumerate(PlanPtr input, int64_t start);
PlanPtr with_options(PlanPtr input, const Options& options);

/// One pass, each element given to `visit`.
void for_each(const Plan& plan, const std::function<void(const Nest&)>& visit);
/// The element of a dataset of one; InvalidArgument when there are none or more.
Nest single_element(const Plan& plan);
/// Element `index`; OutOfRange when it is not there, Unimplemented when only a pass can reach it.
Nest element_at(const Plan& plan, int64_t index);
/// The number of elements; InvalidArgument when it is infinite or unknown.
int64_t length(const Plan& plan);
/// Whether there are none; makes the first one of a preview where the cardinality does not tell.
bool empty(const Plan& plan);
/// InvalidArgument when the structure or the dtypes of `after` are others; shapes may change.
void check_state(const char* operation, const Nest& before, const Nest& after);
}  // namespace plans

}  // namespace tutti::data
