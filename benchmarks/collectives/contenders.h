#pragma once
// What the all-reduce benchmark compares: one object for each rank and contender.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/group.h"

namespace tutti::bench {

class Contender {
 public:
  virtual ~Contender() = default;
  /// Where the tensor of this contender lives.
  virtual at::Tensor make(int64_t numel) { return at::zeros({numel}, at::kFloat); }
  virtual void all_reduce(at::Tensor& tensor) = 0;
};

/// Gloo's own all-reduce, through c10d, as PyTorch's DistributedDataParallel calls it.
std::unique_ptr<Contender> make_c10d_gloo(const collectives::GroupOptions& options);

}  // namespace tutti::bench
