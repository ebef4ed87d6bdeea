// All-reduces between devices: HierarchicalCopyAllReduce, NcclAllReduce, and how they pack.

#include "distribute/cross_device_ops_packs.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <map>
#include <numeric>

#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {

Tensor part_of(const Tensor& flat, int64_t offset, at::IntArrayRef sizes) {
  at::AutoDispatchBelowADInplaceOrView untied;
  return flat.narrow(0, offset, c10::multiply_integers(sizes)).view(sizes);
}

namespace {

using PackSum =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& parts, std::size_t pack)>;

/// Components live where they go.
bool stays_on_its_devices(const PerReplica<Tensor>& value, const Destinations& destinations) {
  if (value.size() != destinations.devices().size()) return false;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i].device() != destinations.devices()[i].torch_device()) return false;
  }
  return true;
}

/// What values that are joined have in common.
using PackKey = std::pair<at::ScalarType, std::vector<std::pair<c10::DeviceType, int>>>;
PackKey key_of(const PerReplica<Tensor>& value) {
  PackKey key{value[0].scalar_type(), {}};
  for (const Tensor& component : value.values())
    key.second.emplace_back(component.device().type(), component.device().index());
  return key;
}

/// Sums of packs [0, num_packs) of `flat`, which has one tensor a replica; by pack, then replica.
std::vector<std::vector<Tensor>> sums_of_packs(ReduceOp op, const std::vector<Tensor>& flat,
                                               int num_packs, const PackSum& pack_sum) {
  const int64_t total = flat[0].numel();
  const int64_t packs = std::min<int64_t>(num_packs, std::max<int64_t>(total, 1));
  std::vector<std::vector<Tensor>> sums;
  for (int64_t pack = 0; pack < packs; ++pack) {
    const int64_t begin = pack * (total / packs);
    const int64_t end = pack + 1 == packs ? total : begin + total / packs;
    std::vector<Tensor> parts;
    for (const Tensor& replica : flat) parts.push_back(replica.narrow(0, begin, end - begin));
    sums.push_back(pack_sum(parts, static_cast<std::size_t>(pack)));
    for (std::size_t r = 0; op == ReduceOp::kMean && r < parts.size(); ++r) {
      bool divided = false;
      for (std::size_t earlier = 0; earlier < r; ++earlier)
        divided = divided || sums.back()[earlier].is_same(sums.back()[r]);
      if (!divided) sums.back()[r].div_(static_cast<double>(parts.size()));
    }
  }
  return sums;
}

/// The components of one group of values, joined, reduced and taken apart again.
std::vector<Mirrored<Tensor>> reduce_group(ReduceOp op,
                                           const std::vector<const PerReplica<Tensor>*>& values,
                                           int num_packs, const PackSum& pack_sum) {
  const std::size_t replicas = values[0]->size();
  std::vector<Tensor> flat;
  for (std::size_t r = 0; r < replicas; ++r) {
    std::vector<Tensor> pieces;
    for (const auto* value : values) pieces.push_back((*value)[r].reshape({-1}));
    flat.push_back(pieces.size() == 1 ? pieces[0] : at::cat(pieces));
  }
  const auto sums = sums_of_packs(op, flat, num_packs, pack_sum);
  std::vector<std::vector<Tensor>> components(values.size());
  for (std::size_t r = 0; r < replicas; ++r) {
    std::vector<Tensor> pieces;
    for (const auto& pack : sums) pieces.push_back(pack[r]);
    bool taken = pieces.size() != 1;  // a sum that two replicas got is one replica's own only once
    for (std::size_t earlier = 0; !taken && earlier < r; ++earlier)
      taken = sums[0][earlier].is_same(pieces[0]);
    const Tensor joined = taken ? at::cat(pieces) : pieces[0];
    int64_t offset = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      components[i].push_back(part_of(joined, offset, (*values[i])[r].sizes()));
      offset += (*values[i])[r].numel();
    }
  }
  std::vector<Mirrored<Tensor>> results;
  for (auto& parts : components) results.emplace_back(std::move(parts));
  return results;
}

/// Those of `values` that are `packed` are joined by dtype and devices and cut into `num_packs`
/// packs (the last takes the rest; 0: each value alone); the others stay undefined.
std::vector<Mirrored<Tensor>> reduce_in_packs(ReduceOp op, const DenseValues& values,
                                              const std::vector<bool>& packed, int num_packs,
                                              const PackSum& pack_sum) {
  std::vector<Mirrored<Tensor>> results(values.size());
  std::map<PackKey, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (packed[i]) groups[key_of(values[i].first)].push_back(i);
  }
  for (const auto& [key, members] : groups) {
    std::vector<const PerReplica<Tensor>*> group;
    for (std::size_t i : members) group.push_back(&values[i].first);
    std::vector<Mirrored<Tensor>> sums;
    if (num_packs > 0) {
      sums = reduce_group(op, group, num_packs, pack_sum);
    } else {
      for (std::size_t k = 0; k < group.size(); ++k) {
        auto alone = [&](const std::vector<Tensor>& parts, std::size_t) {
          return pack_sum(parts, k);
        };
        sums.push_back(reduce_group(op, {group[k]}, 1, alone)[0]);
      }
    }
    for (std::size_t k = 0; k < members.size(); ++k) {
      results[members[k]] = std::move(sums[k]);
    }
  }
  return results;
}

}  // namespace

PackedAllReduce::PackedAllReduce(const char* name, int num_packs) : num_packs_(num_packs) {
  if (num_packs >= 0) return;
  throw InvalidArgument(
      cat(name, " [num_packs]: ", num_packs, ", expected 0 (no packing) or more"));
}

Mirrored<Tensor> PackedAllReduce::reduce_implementation(ReduceOp op,
                                                        const PerReplica<Tensor>& value,
                                                        const Destinations& destinations,
                                                        const CommunicationOptions& options) const {
  return batch_reduce_implementation(op, {{value, destinations}}, options)[0];
}

std::vector<Mirrored<Tensor>> PackedAllReduce::batch_reduce_implementation(
    ReduceOp op, const DenseValues& values, const CommunicationOptions& options) const {
  std::vector<bool> packed;
  for (const auto& [value, destinations] : values)
    packed.push_back(packs(value) && stays_on_its_devices(value, destinations));
  auto results = reduce_in_packs(
      op, values, packed, num_packs_,
      [this](const std::vector<Tensor>& parts, std::size_t pack) { return sums(parts, pack); });
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!packed[i])
      results[i] =
          CrossDeviceOps::reduce_implementation(op, values[i].first, values[i].second, options);
  }
  return results;
}

// ---- HierarchicalCopyAllReduce: sums inside two groups of replicas, each on a main one that
// rotates from pack to pack, so that no single device does all the work; the mains exchange theirs
// and hand the whole to their group.

std::vector<Tensor> HierarchicalCopyAllReduce::sums(const std::vector<Tensor>& parts,
                                                    std::size_t pack) const {
  const std::size_t half = (parts.size() + 1) / 2;
  const std::size_t begins[] = {0, half};
  const std::size_t ends[] = {half, parts.size()};
  const int groups = half < parts.size() ? 2 : 1;
  Tensor group_sums[2];
  for (int g = 0; g < groups; ++g) {
    const std::size_t main = begins[g] + pack % (ends[g] - begins[g]);
    const c10::Device device = parts[main].device();
    Tensor sum = parts[begins[g]].to(device, /*non_blocking=*/false, /*copy=*/true);
    for (std::size_t i = begins[g] + 1; i < ends[g]; ++i) sum.add_(parts[i].to(device));
    group_sums[g] = sum;
  }
  Tensor wholes[2] = {group_sums[0], group_sums[0]};
  if (groups == 2) {
    // Both mains add the first group's sum to the second's: every device gets the same bits.
    wholes[0] = group_sums[0] + group_sums[1].to(group_sums[0].device());
    wholes[1] = group_sums[0].device() == group_sums[1].device()
                    ? wholes[0]
                    : group_sums[0].to(group_sums[1].device()) + group_sums[1];
  }
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < parts.size(); ++i)
    results.push_back(wholes[i < half ? 0 : 1].to(parts[i].device()));
  return results;
}

// ---- NcclAllReduce

void NcclAllReduce::check_devices(const std::vector<DeviceName>& devices) const {
  for (const DeviceName& device : devices) {
    if (device.kind == DeviceName::Kind::kCuda) continue;
    throw InvalidArgument(cat("NcclAllReduce: the device ", device,
                              ", expected CUDA devices; on CPUs use ReductionToOneDevice (the "
                              "default) or HierarchicalCopyAllReduce"));
  }
  if (!is_built()) {
    throw InvalidArgument(
        "NcclAllReduce: this build has no NCCL, expected one with it; configure with "
        "TUTTI_WITH_CUDA and a CUDA toolkit, or use HierarchicalCopyAllReduce or "
        "ReductionToOneDevice");
  }
}

bool NcclAllReduce::packs(const PerReplica<Tensor>& value) const {
  check_devices(Destinations(value).devices());
  return value[0].is_floating_point();
}

}  // namespace tutti::distribute
