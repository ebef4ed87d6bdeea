#pragma once
// What all-reduces between devices share: tensors of a batch joined into packs.

#include <functional>
#include <utility>
#include <vector>

#include "tutti/distribute/cross_device_ops.h"

namespace tutti::distribute {

using DenseValues = std::vector<std::pair<PerReplica<Tensor>, Destinations>>;

/// Adds up one pack: a flat tensor of each replica, on its device, not to be written. Gives each
/// replica its sum on its device; entries may be one tensor. `pack` counts the packs of a batch.
using PackSum =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& parts, std::size_t pack)>;

/// All values whose components live where they go are joined by dtype and devices and cut into
/// `num_packs` packs (the last takes the rest; 0: each value alone). Leaves those that live
/// elsewhere undefined: false in the second part.
std::pair<std::vector<Mirrored<Tensor>>, std::vector<bool>> reduce_in_packs(
    ReduceOp op, const DenseValues& values, int num_packs, const PackSum& pack_sum);

/// Throws InvalidArgument for a negative number.
void check_num_packs(const char* name, int num_packs);

/// A view that autograd does not tie to `flat`: it counts its writes alone.
Tensor part_of(const Tensor& flat, int64_t offset, at::IntArrayRef sizes);

/// Sums of tensors on different GPUs, on each of them.
std::vector<Tensor> nccl_sums(const std::vector<Tensor>& parts);

}  // namespace tutti::distribute
