#include "tutti/ps/partitioners.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute::partitioners {
namespace {

void check_positive(const char* operation, const char* argument, int64_t value) {
  if (value < 1)
    throw InvalidArgument(cat(operation, ": ", argument, " ", value, ", expected at least 1"));
}

int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t entry_bytes(at::ScalarType dtype, int64_t bytes_per_string) {
  return dtype == kString ? bytes_per_string : static_cast<int64_t>(c10::elementSize(dtype));
}

std::vector<int64_t> parts_at(const std::vector<int64_t>& shape, int64_t axis, int64_t parts) {
  std::vector<int64_t> all(shape.size(), 1);
  all[static_cast<std::size_t>(axis)] = parts;
  return all;
}

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

}  // namespace

std::vector<int64_t> Partitioner::operator()(const std::vector<int64_t>& shape,
                                             at::ScalarType dtype, int64_t axis) const {
  if (!function_)
    throw FailedPrecondition("Partitioner: an empty handle, expected a partitioner; make one");
  if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) {
    throw InvalidArgument(cat("Partitioner: axis ", axis, " of the shape ", shape_text(shape),
                              ", expected one of its ", shape.size()));
  }
  return function_(shape, dtype, axis);
}

FixedShardsPartitioner::FixedShardsPartitioner(int64_t num_shards)
    : Partitioner([num_shards](const auto& shape, at::ScalarType, int64_t axis) {
        return parts_at(shape, axis, std::min(num_shards, shape[static_cast<std::size_t>(axis)]));
      }) {
  check_positive("FixedShardsPartitioner", "num_shards", num_shards);
}

MinSizePartitioner::MinSizePartitioner(const MinSizePartitionerOptions& options)
    : Partitioner([options](const auto& shape, at::ScalarType dtype, int64_t axis) {
        const int64_t bytes = numel(shape) * entry_bytes(dtype, options.bytes_per_string);
        const int64_t parts = std::min({shape[static_cast<std::size_t>(axis)], options.max_shards,
                                        ceil_of(bytes, options.min_shard_bytes)});
        return parts_at(shape, axis, std::max<int64_t>(1, parts));
      }) {
  check_positive("MinSizePartitioner", "min_shard_bytes", options.min_shard_bytes);
  check_positive("MinSizePartitioner", "max_shards", options.max_shards);
  check_positive("MinSizePartitioner", "bytes_per_string", options.bytes_per_string);
}

MaxSizePartitioner::MaxSizePartitioner(const MaxSizePartitionerOptions& options)
    : Partitioner([options](const auto& shape, at::ScalarType dtype, int64_t axis) {
        const int64_t entries = shape[static_cast<std::size_t>(axis)];
        const int64_t entry =
            entries == 0 ? 0
                         : numel(shape) / entries * entry_bytes(dtype, options.bytes_per_string);
        const int64_t entries_a_shard =
            std::max<int64_t>(1, entry == 0 ? entries : options.max_shard_bytes / entry);
        const int64_t parts = ceil_of(entries, entries_a_shard);
        return parts_at(shape, axis, std::min(parts, options.max_shards.value_or(parts)));
      }) {
  check_positive("MaxSizePartitioner", "max_shard_bytes", options.max_shard_bytes);
  if (options.max_shards) check_positive("MaxSizePartitioner", "max_shards", *options.max_shards);
  check_positive("MaxSizePartitioner", "bytes_per_string", options.bytes_per_string);
}

}  // namespace tutti::distribute::partitioners
