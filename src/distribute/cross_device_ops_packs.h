#pragma once
// Shared by what joins tensors into packs.

#include <utility>
#include <vector>

#include "tutti/distribute/cross_device_ops.h"

namespace tutti::distribute {

using DenseValues = std::vector<std::pair<PerReplica<Tensor>, Destinations>>;

/// A view that autograd does not tie to `flat`: it counts its writes alone.
Tensor part_of(const Tensor& flat, int64_t offset, at::IntArrayRef sizes);

}  // namespace tutti::distribute
