#pragma once
// Into how many shards a variable is cut: tf.distribute.experimental.partitioners.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::distribute::partitioners {

/// A handle on a partitioner: copies are the same one. A partitioner of one's own is a function
/// (shape, dtype, axis) -> parts. Made without arguments it holds none. Any thread may call.
class Partitioner {
 public:
  using Function = std::function<std::vector<int64_t>(const std::vector<int64_t>& shape,
                                                      at::ScalarType dtype, int64_t axis)>;
  Partitioner() = default;
  explicit Partitioner(Function function) : function_(std::move(function)) {}
  bool defined() const { return function_ != nullptr; }

  /// How many parts each dimension has: 1 everywhere but at `axis`. `dtype` may be kString.
  /// InvalidArgument for an axis that the shape has not, FailedPrecondition when it holds none.
  std::vector<int64_t> operator()(const std::vector<int64_t>& shape, at::ScalarType dtype,
                                  int64_t axis = 0) const;

 private:
  Function function_;
};

/// min(num_shards, size of the axis) parts. InvalidArgument for less than 1.
class FixedShardsPartitioner : public Partitioner {
 public:
  explicit FixedShardsPartitioner(int64_t num_shards);
};

struct MinSizePartitionerOptions {
  int64_t min_shard_bytes = 256 << 10;
  int64_t max_shards = 1;
  int64_t bytes_per_string = 16;  ///< what a string counts
};
/// As many parts as have min_shard_bytes each, rounded up: the last may have fewer.
/// max(1, min(size of the axis, max_shards, ceil(all bytes / min_shard_bytes))). InvalidArgument
/// for a number below 1.
class MinSizePartitioner : public Partitioner {
 public:
  explicit MinSizePartitioner(const MinSizePartitionerOptions& options = {});
};

struct MaxSizePartitionerOptions {
  int64_t max_shard_bytes = 0;                       ///< must be given
  std::optional<int64_t> max_shards = std::nullopt;  ///< wins over max_shard_bytes
  int64_t bytes_per_string = 16;
};
/// As few parts as keep each within max_shard_bytes, or one entry of the axis each: with
/// r = max(1, floor(max_shard_bytes / bytes of one entry), min(max_shards, ceil(entries / r)).
/// InvalidArgument for a number below 1.
class MaxSizePartitioner : public Partitioner {
 public:
  explicit MaxSizePartitioner(const MaxSizePartitionerOptions& options);
};

}  // namespace tutti::distribute::partitioners
