#pragma once
// Options of a whole pipeline, for with_options.

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::data {

/// How distribute_dataset gives each of several workers its part of the data. With one worker there
/// is nothing to share out; the policy then only says how batches are cut for its replicas.
enum class AutoShardPolicy {
  kOff = -1,  ///< every worker sees all the data
  kAuto = 0,  ///< kFile where every source reads files, at least one a worker; else kData
  kFile = 1,  ///< each worker reads every num_workers-th file
  kData = 2,  ///< each worker takes every num_workers-th piece of a batch
  kHint = 3   ///< shard(kShardHint, kShardHint) becomes the worker's shard
};

/// What saving an iterator does about functions of the user, which may have a state that is not
/// saved.
enum class ExternalStatePolicy {
  kWarn = 0,    ///< a warning, once
  kIgnore = 1,  ///< nothing
  kFail = 2     ///< FailedPrecondition
};

/// How what is kAutotune is found. Tutti searches for nothing: calls are as many as cpu_budget
/// says, a buffer grows where it runs dry. That is kDefault and kMaxParallelism; with_options
/// refuses the others (Unimplemented).
enum class AutotuneAlgorithm {
  kDefault = 0,
  kHillClimb = 1,
  kGradientDescent = 2,
  kMaxParallelism = 3,
  kStageBased = 4
};

struct AutotuneOptions {
  /// Unset is true. False: prefetch(kAutotune) keeps its buffer of 2.
  std::optional<bool> enabled = std::nullopt;
  /// Calls at once where num_parallel_calls is kAutotune; unset: one for each core.
  std::optional<int64_t> cpu_budget = std::nullopt;
  /// Bytes that the buffer of a prefetch(kAutotune) may grow to; unset: half the memory.
  std::optional<int64_t> ram_budget = std::nullopt;
  std::optional<AutotuneAlgorithm> autotune_algorithm = std::nullopt;
};
struct DistributeOptions {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::kAuto;
  /// Kept for those who ask; strategies know their devices.
  std::optional<int64_t> num_devices = std::nullopt;
};
struct ThreadingOptions {
  /// Cores that the operators of one thread of the pipeline use; unset: 1.
  std::optional<int64_t> max_intra_op_parallelism = std::nullopt;
  /// The most threads that each parallel transformation has; unset or 0: as many as its calls.
  std::optional<int64_t> private_threadpool_size = std::nullopt;
};

/// They hold for the whole pipeline, wherever with_options stands in it.
struct Options {
  AutotuneOptions autotune = {};
  /// Shown in the text of the plan.
  std::optional<std::string> dataset_name = std::nullopt;
  /// For parallel transformations that do not say it themselves; unset is true.
  std::optional<bool> deterministic = std::nullopt;
  DistributeOptions experimental_distribute = {};
  /// Unset: nothing is said.
  std::optional<ExternalStatePolicy> experimental_external_state_policy = std::nullopt;
  /// True: threads begin when the iterator is made, and not with its first element.
  std::optional<bool> experimental_warm_start = std::nullopt;
  ThreadingOptions threading = {};

  /// Both. InvalidArgument where they say different things, but for dataset_name and
  /// experimental_warm_start, where `other` counts.
  Options merge(const Options& other) const;
  /// The fields that are set, as text: "deterministic=false, autotune.ram_budget=1024".
  std::string to_string() const;
};

}  // namespace tutti::data
