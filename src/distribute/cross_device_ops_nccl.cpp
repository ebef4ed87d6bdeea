// The one file that needs CUDA's headers. TUTTI_WITH_NCCL is defined for it when CMake found them.

#include "tutti/distribute/cross_device_ops.h"

#ifdef TUTTI_WITH_NCCL
#include <torch/csrc/cuda/nccl.h>
#endif

namespace tutti::distribute {

#ifdef TUTTI_WITH_NCCL

bool NcclAllReduce::is_built() { return true; }

std::vector<Tensor> NcclAllReduce::sums(const std::vector<Tensor>& parts, std::size_t) const {
  std::vector<Tensor> inputs;
  std::vector<Tensor> results;
  for (const Tensor& part : parts) {
    inputs.push_back(part.contiguous());
    results.push_back(at::empty_like(inputs.back()));
  }
  if (parts.size() == 1) {
    results[0].copy_(inputs[0]);
  } else {
    torch::cuda::nccl::all_reduce(inputs, results);
  }
  return results;
}

#else

bool NcclAllReduce::is_built() { return false; }

std::vector<Tensor> NcclAllReduce::sums(const std::vector<Tensor>&, std::size_t) const {
  throw InvalidArgument(
      "NcclAllReduce: this build has no NCCL, expected one with it; use HierarchicalCopyAllReduce "
      "or ReductionToOneDevice");
}

#endif

}  // namespace tutti::distribute
