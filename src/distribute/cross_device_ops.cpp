#include "tutti/distribute/cross_device_ops.h"

#include <map>

#include "collectives/local_reduce.h"
#include "tutti/tensor/device.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

std::vector<Tensor> components_of(const PerReplica<Tensor>& value) {
  return std::vector<Tensor>(value.values().begin(), value.values().end());
}

/// Sum over the replicas in two groups; `main` rotates from pack to pack, so that on real devices
/// no single one does all the work.
Tensor hierarchical_sum(const std::vector<Tensor>& parts, std::size_t main) {
  const std::size_t half = (parts.size() + 1) / 2;
  auto group_sum = [&](std::size_t begin, std::size_t end) {
    const std::size_t count = end - begin;
    const std::size_t leader = begin + main % count;
    Tensor sum = parts[leader].clone();
    for (std::size_t i = begin; i < end; ++i) {
      if (i != leader) sum.add_(parts[i].to(sum.device()));
    }
    return sum;
  };
  Tensor sum = group_sum(0, half);
  if (half < parts.size()) sum.add_(group_sum(half, parts.size()).to(sum.device()));
  return sum;
}

void check_component(const Tensor& component, const Tensor& first) {
  if (!component.defined())
    throw InvalidArgument("reduce: an undefined component, expected a tensor on every replica");
  if (component.sizes() == first.sizes() && component.scalar_type() == first.scalar_type()) return;
  throw InvalidArgument(
      cat("reduce: components ", dtype_name(first.scalar_type()), " ", shape_text(first.sizes()),
          " and ", dtype_name(component.scalar_type()), " ", shape_text(component.sizes()),
          ", expected one shape and dtype; reduce over an axis first, or gather"));
}

}  // namespace

Tensor CrossDeviceOps::reduce(collectives::ReduceOp op, const PerReplica<Tensor>& value) const {
  return batch_reduce(op, {value})[0];
}

std::vector<Tensor> CrossDeviceOps::batch_reduce(
    collectives::ReduceOp op, const std::vector<PerReplica<Tensor>>& values) const {
  for (const auto& value : values) {
    if (value.size() == 0)
      throw InvalidArgument(
          "reduce: a PerReplica without components, expected one for each replica");
    for (const Tensor& component : value.values()) check_component(component, value[0]);
  }
  return batch_reduce_implementation(op, values);
}

ReductionToOneDevice::ReductionToOneDevice(Options options) : options_(std::move(options)) {
  if (!options_.reduce_to_device.empty()) DeviceName::parse(options_.reduce_to_device);
}

std::vector<Tensor> ReductionToOneDevice::batch_reduce_implementation(
    collectives::ReduceOp op, const std::vector<PerReplica<Tensor>>& values) const {
  std::vector<Tensor> reduced;
  for (const auto& value : values) {
    const c10::Device device = options_.reduce_to_device.empty()
                                   ? value[0].device()
                                   : DeviceName::parse(options_.reduce_to_device).torch_device();
    std::vector<Tensor> parts;
    for (const Tensor& component : value.values()) parts.push_back(component.detach().to(device));
    reduced.push_back(collectives::local_reduce(op, parts));
  }
  return reduced;
}

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(HierarchicalCopyAllReduceOptions options)
    : options_(options) {
  if (options_.num_packs < 0) {
    throw InvalidArgument(cat("HierarchicalCopyAllReduce [num_packs]: ", options_.num_packs,
                              ", expected 0 (no packing) or more"));
  }
}

std::vector<Tensor> HierarchicalCopyAllReduce::batch_reduce_implementation(
    collectives::ReduceOp op, const std::vector<PerReplica<Tensor>>& values) const {
  std::vector<Tensor> reduced(values.size());
  std::map<std::pair<at::ScalarType, std::size_t>, std::vector<std::size_t>>
      groups;  // dtype and component count → batch indices
  for (std::size_t i = 0; i < values.size(); ++i)
    groups[{values[i][0].scalar_type(), values[i].size()}].push_back(i);
  for (const auto& [key, members] : groups) {
    const std::size_t replicas = key.second;
    if (options_.num_packs == 0) {
      for (std::size_t i : members) reduced[i] = hierarchical_sum(components_of(values[i]), i);
    } else {
      std::vector<Tensor> flat;  // one a replica
      for (std::size_t r = 0; r < replicas; ++r) {
        std::vector<Tensor> pieces;
        for (std::size_t i : members) pieces.push_back(values[i][r].detach().reshape({-1}));
        flat.push_back(at::cat(pieces));
      }
      const int64_t total = flat[0].numel();
      const int64_t packs = std::min<int64_t>(options_.num_packs, std::max<int64_t>(total, 1));
      std::vector<Tensor> sums;
      for (int64_t pack = 0; pack < packs; ++pack) {
        const int64_t begin = pack * (total / packs);
        const int64_t end = pack + 1 == packs ? total : begin + total / packs;
        std::vector<Tensor> parts;
        for (const Tensor& replica : flat) parts.push_back(replica.narrow(0, begin, end - begin));
        sums.push_back(hierarchical_sum(parts, static_cast<std::size_t>(pack)));
      }
      const Tensor sum = at::cat(sums);
      int64_t offset = 0;
      for (std::size_t i : members) {
        reduced[i] = sum.narrow(0, offset, values[i][0].numel()).view(values[i][0].sizes());
        offset += values[i][0].numel();
      }
    }
    for (std::size_t i : members) {
      if (op == collectives::ReduceOp::kMean) {
        if (!reduced[i].is_floating_point()) {
          throw InvalidArgument(cat("reduce: MEAN of ", dtype_name(reduced[i].scalar_type()),
                                    ", expected a floating dtype; convert first"));
        }
        reduced[i] = reduced[i] / static_cast<double>(replicas);
      }
    }
  }
  return reduced;
}

}  // namespace tutti::distribute
