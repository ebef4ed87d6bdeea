#include "distribute/collective_all_reduce.h"

#include "collectives/local_reduce.h"
#include "distribute/cross_device_ops_packs.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {

void CollectiveAllReduce::check_devices(const std::vector<DeviceName>& devices) const {
  local_->check_devices(devices);
}

/// On the first destination.
Tensor CollectiveAllReduce::sum_here(const PerReplica<Tensor>& value,
                                     const Destinations& destinations,
                                     const CommunicationOptions& options) const {
  const Destinations first(std::vector<DeviceName>{destinations.devices()[0]});
  return local_->reduce(ReduceOp::kSum, value, first, options)[0].contiguous();
}

Mirrored<Tensor> CollectiveAllReduce::reduce_implementation(
    ReduceOp op, const PerReplica<Tensor>& value, const Destinations& destinations,
    const CommunicationOptions& options) const {
  Tensor sum = sum_here(value, destinations, options);
  workers_->all_reduce(sum, ReduceOp::kSum, options);
  if (op == ReduceOp::kMean) sum.div_(static_cast<double>(value.size()) * workers_->num_workers());
  return broadcast_implementation(sum, destinations);
}

/// Sums of one dtype go together, from the last to the first, in packs of bytes_per_pack.
std::vector<Mirrored<Tensor>> CollectiveAllReduce::batch_reduce_implementation(
    ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>& values,
    const CommunicationOptions& options) const {
  std::vector<Tensor> sums;
  for (const auto& [value, destinations] : values)
    sums.push_back(sum_here(value, destinations, options));
  std::vector<char> done(sums.size(), 0);
  for (std::size_t last = sums.size(); last-- > 0;) {
    if (done[last] != 0) continue;
    std::vector<std::size_t> members;
    std::vector<Tensor> pieces;
    int64_t bytes = 0;
    for (std::size_t i = last + 1; i-- > 0;) {
      if (done[i] != 0 || sums[i].scalar_type() != sums[last].scalar_type() ||
          sums[i].device() != sums[last].device())
        continue;
      if (options.bytes_per_pack > 0 && bytes > options.bytes_per_pack) break;
      done[i] = 1;
      members.push_back(i);
      pieces.push_back(sums[i].reshape({-1}));
      bytes += static_cast<int64_t>(sums[i].nbytes());
    }
    Tensor flat = at::cat(pieces);
    workers_->all_reduce(flat, ReduceOp::kSum, options);
    int64_t offset = 0;
    for (const std::size_t i : members) {
      const int64_t numel = sums[i].numel();
      sums[i] = part_of(flat, offset, sums[i].sizes());
      offset += numel;
    }
  }
  std::vector<Mirrored<Tensor>> results;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    // A part of a pack would keep the whole of it.
    Tensor sum = sums[i].clone();
    if (op == ReduceOp::kMean)
      sum.div_(static_cast<double>(values[i].first.size()) * workers_->num_workers());
    results.push_back(broadcast_implementation(sum, values[i].second));
  }
  return results;
}

IndexedSlices CollectiveAllReduce::join_slices(ReduceOp op, const std::vector<IndexedSlices>& parts,
                                               const CommunicationOptions& options) const {
  const IndexedSlices here = collectives::local_reduce(ReduceOp::kSum, parts);
  workers_->agree("reduce of IndexedSlices",
                  cat(dtype_name(here.values.scalar_type()), " ", shape_text(here.dense_shape)));
  IndexedSlices joined{workers_->all_gather(here.values, options),
                       workers_->all_gather(here.indices, options), here.dense_shape};
  if (op == ReduceOp::kMean)
    joined.values.div_(static_cast<double>(parts.size()) * workers_->num_workers());
  return joined;
}

}  // namespace tutti::distribute
