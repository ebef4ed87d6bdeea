#include "tutti/distribute/cross_device_ops.h"

#include <map>

#include "collectives/local_reduce.h"
#include "distribute/variable_state.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

using DenseValues = std::vector<std::pair<PerReplica<Tensor>, Destinations>>;

DeviceName device_of(const Tensor& tensor, int index) {
  return tensor.defined() && tensor.is_cuda()
             ? DeviceName{DeviceName::Kind::kCuda, tensor.device().index()}
             : DeviceName{DeviceName::Kind::kCpu, index};
}

template <class T>
std::vector<DeviceName> devices_of(const DistributedValues<T>& value) {
  if (value.size() == 0)
    throw InvalidArgument(
        "reduce: destinations without components, expected one or more devices; pass a "
        "distributed value, a variable, a tensor or a device name");
  std::vector<DeviceName> devices;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if constexpr (std::is_same_v<T, Tensor>) {
      devices.push_back(device_of(value[i], static_cast<int>(i)));
    } else {
      devices.push_back(device_of(value[i].values, static_cast<int>(i)));
    }
  }
  return devices;
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

void check_value(const PerReplica<Tensor>& value) {
  if (value.size() == 0)
    throw InvalidArgument("reduce: a PerReplica without components, expected one for each replica");
  for (const Tensor& component : value.values()) check_component(component, value[0]);
}

void check_value(const PerReplica<IndexedSlices>& value) {
  if (value.size() == 0)
    throw InvalidArgument("reduce: a PerReplica without components, expected one for each replica");
}

/// The sum of `count` values divided by their number; integers give float64, as a true division
/// does.
Tensor mean_of_sum(const Tensor& sum, std::size_t count) {
  return (sum.is_floating_point() || sum.is_complex() ? sum : sum.to(at::kDouble)) /
         static_cast<double>(count);
}

Tensor sum_or_mean(ReduceOp op, const std::vector<Tensor>& parts) {
  const Tensor sum = collectives::local_reduce(ReduceOp::kSum, parts);
  return op == ReduceOp::kMean ? mean_of_sum(sum, parts.size()) : sum;
}

/// `tensor` on every device: the first entry there is the tensor itself, the others are copies.
Mirrored<Tensor> spread(const Tensor& tensor, const std::vector<DeviceName>& devices) {
  std::vector<Tensor> copies;
  bool used = false;
  for (const DeviceName& device : devices) {
    const bool in_place = tensor.device() == device.torch_device();
    copies.push_back(in_place && !used ? tensor
                                       : tensor.to(device.torch_device(), tensor.scalar_type(),
                                                   /*non_blocking=*/false, /*copy=*/true));
    used = used || in_place;
  }
  return Mirrored<Tensor>(std::move(copies));
}

void check_packs(const char* name, int num_packs) {
  if (num_packs >= 0) return;
  throw InvalidArgument(
      cat(name, " [num_packs]: ", num_packs, ", expected 0 (no packing) or more"));
}

/// Components live where they go: what an all-reduce between devices needs.
bool stays_on_its_devices(const PerReplica<Tensor>& value, const Destinations& destinations) {
  if (value.size() != destinations.devices().size()) return false;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i].device() != destinations.devices()[i].torch_device()) return false;
  }
  return true;
}

}  // namespace

// ---- Destinations

Destinations::Destinations(const char* device) : Destinations(std::string(device)) {}
Destinations::Destinations(const std::string& device) {
  if (device.empty())
    throw InvalidArgument(
        "reduce: an empty destination, expected a device name such as \"cpu:0\", or a value");
  devices_.push_back(DeviceName::parse(device));
}
Destinations::Destinations(const Tensor& tensor) : devices_{device_of(tensor, 0)} {}
Destinations::Destinations(const Variable& variable) : devices_(variable.devices()) {}
Destinations::Destinations(const DistributedValues<Tensor>& value) : devices_(devices_of(value)) {}
Destinations::Destinations(const DistributedValues<IndexedSlices>& value)
    : devices_(devices_of(value)) {}
Destinations::Destinations(std::vector<DeviceName> devices) : devices_(std::move(devices)) {
  if (devices_.empty())
    throw InvalidArgument("reduce: destinations without devices, expected one or more");
}

// ---- the checked front

Mirrored<Tensor> CrossDeviceOps::reduce(AnyReduceOp op, const PerReplica<Tensor>& value,
                                        const Destinations& destinations,
                                        const CommunicationOptions& options) const {
  check_value(value);
  at::NoGradGuard no_grad;
  return reduce_implementation(op, value, destinations, options);
}

Tensor CrossDeviceOps::reduce(AnyReduceOp op, const PerReplica<Tensor>& value) const {
  check_value(value);
  return reduce(op, value, Destinations(value[0]))[0];
}

Mirrored<IndexedSlices> CrossDeviceOps::reduce(AnyReduceOp op,
                                               const PerReplica<IndexedSlices>& value,
                                               const Destinations& destinations,
                                               const CommunicationOptions&) const {
  check_value(value);
  at::NoGradGuard no_grad;
  const IndexedSlices joined = collectives::local_reduce(
      op, std::vector<IndexedSlices>(value.values().begin(), value.values().end()));
  const Mirrored<Tensor> all_values = broadcast(joined.values, destinations);
  const Mirrored<Tensor> all_indices = broadcast(joined.indices, destinations);
  std::vector<IndexedSlices> results;
  for (std::size_t i = 0; i < all_values.size(); ++i)
    results.push_back({all_values[i], all_indices[i], value[0].dense_shape});
  return Mirrored<IndexedSlices>(std::move(results));
}

std::vector<ReductionResult> CrossDeviceOps::batch_reduce(
    AnyReduceOp op, const std::vector<ValueDestinations>& values,
    const CommunicationOptions& options) const {
  for (const ValueDestinations& item : values)
    std::visit([](const auto& value) { check_value(value); }, item.value);
  at::NoGradGuard no_grad;
  std::vector<ReductionResult> results(values.size());
  DenseValues dense;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (const auto* value = std::get_if<PerReplica<Tensor>>(&values[i].value)) {
      dense.emplace_back(*value, values[i].destinations);
      positions.push_back(i);
    } else {
      results[i] = reduce(op, std::get<PerReplica<IndexedSlices>>(values[i].value),
                          values[i].destinations, options);
    }
  }
  auto reduced = batch_reduce_implementation(op, dense, options);
  if (reduced.size() != dense.size()) {
    throw InvalidArgument(cat("batch_reduce [", name(), "]: ", reduced.size(), " results for ",
                              dense.size(), " values, expected one for each, in order"));
  }
  for (std::size_t i = 0; i < positions.size(); ++i) results[positions[i]] = std::move(reduced[i]);
  return results;
}

Mirrored<Tensor> CrossDeviceOps::broadcast(const Tensor& tensor,
                                           const Destinations& destinations) const {
  if (!tensor.defined()) throw InvalidArgument("broadcast: an undefined tensor, expected a value");
  at::NoGradGuard no_grad;
  return broadcast_implementation(tensor.detach(), destinations);
}

// ---- defaults

Mirrored<Tensor> CrossDeviceOps::reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                                       const Destinations& destinations,
                                                       const CommunicationOptions&) const {
  const c10::Device device = destinations.devices()[0].torch_device();
  std::vector<Tensor> parts;
  for (const Tensor& component : value.values()) parts.push_back(component.detach().to(device));
  return broadcast_implementation(sum_or_mean(op, parts), destinations);
}

std::vector<Mirrored<Tensor>> CrossDeviceOps::batch_reduce_implementation(
    ReduceOp op, const DenseValues& values, const CommunicationOptions& options) const {
  std::vector<Mirrored<Tensor>> results;
  results.reserve(values.size());
  for (const auto& [value, destinations] : values)
    results.push_back(reduce_implementation(op, value, destinations, options));
  return results;
}

Mirrored<Tensor> CrossDeviceOps::broadcast_implementation(const Tensor& tensor,
                                                          const Destinations& destinations) const {
  return spread(tensor, destinations.devices());
}

// ---- ReductionToOneDevice

ReductionToOneDevice::ReductionToOneDevice(ReductionToOneDeviceOptions options)
    : options_(std::move(options)) {
  if (!options_.reduce_to_device.empty()) DeviceName::parse(options_.reduce_to_device);
}

Mirrored<Tensor> ReductionToOneDevice::reduce_implementation(ReduceOp op,
                                                             const PerReplica<Tensor>& value,
                                                             const Destinations& destinations,
                                                             const CommunicationOptions&) const {
  const c10::Device device = options_.reduce_to_device.empty()
                                 ? destinations.devices()[0].torch_device()
                                 : DeviceName::parse(options_.reduce_to_device).torch_device();
  std::vector<Tensor> parts;
  for (const Tensor& component : value.values()) parts.push_back(component.detach().to(device));
  if (!options_.accumulation_fn)
    return broadcast_implementation(sum_or_mean(op, parts), destinations);
  Tensor sum = options_.accumulation_fn(parts);
  check_component(sum, parts[0]);
  for (const Tensor& part : parts) {
    if (sum.is_alias_of(part)) sum = sum.clone();  // results never alias inputs
  }
  if (op == ReduceOp::kMean) sum = mean_of_sum(sum, parts.size());
  return broadcast_implementation(sum, destinations);
}

// ---- HierarchicalCopyAllReduce

namespace {

/// Sum over the replicas in two groups; `main` rotates from pack to pack, so that on real devices
/// no single one does all the work.
Tensor hierarchical_sum(const std::vector<Tensor>& parts, std::size_t main) {
  const std::size_t half = (parts.size() + 1) / 2;
  auto group_sum = [&](std::size_t begin, std::size_t end) {
    const std::size_t leader = begin + main % (end - begin);
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

/// Adds one pack: a flat tensor of each replica; `pack` counts them.
using PackSum = std::function<Tensor(const std::vector<Tensor>& parts, std::size_t pack)>;

/// Joins values of one dtype and one list of devices, cuts them into `num_packs` packs (the last
/// takes the rest), adds each pack, and takes the sums apart again. 0 packs: each value alone.
std::vector<Tensor> packed_sums(const std::vector<const PerReplica<Tensor>*>& values, int num_packs,
                                const PackSum& pack_sum) {
  std::vector<Tensor> sums;
  const std::size_t replicas = values[0]->size();
  if (num_packs == 0) {
    for (const auto* value : values) {
      std::vector<Tensor> parts;
      for (const Tensor& component : value->values()) parts.push_back(component.detach());
      sums.push_back(pack_sum(parts, sums.size()));
    }
    return sums;
  }
  std::vector<Tensor> flat;
  for (std::size_t r = 0; r < replicas; ++r) {
    std::vector<Tensor> pieces;
    for (const auto* value : values) pieces.push_back((*value)[r].detach().reshape({-1}));
    flat.push_back(at::cat(pieces));
  }
  const int64_t total = flat[0].numel();
  const int64_t packs = std::min<int64_t>(num_packs, std::max<int64_t>(total, 1));
  std::vector<Tensor> pack_sums;
  for (int64_t pack = 0; pack < packs; ++pack) {
    const int64_t begin = pack * (total / packs);
    const int64_t end = pack + 1 == packs ? total : begin + total / packs;
    std::vector<Tensor> parts;
    for (const Tensor& replica : flat) parts.push_back(replica.narrow(0, begin, end - begin));
    pack_sums.push_back(pack_sum(parts, static_cast<std::size_t>(pack)));
  }
  for (Tensor& sum : pack_sums) sum = sum.to(pack_sums[0].device());
  const Tensor joined = at::cat(pack_sums);
  int64_t offset = 0;
  for (const auto* value : values) {
    const int64_t size = (*value)[0].numel();
    sums.push_back(joined.narrow(0, offset, size).view((*value)[0].sizes()).clone());
    offset += size;
  }
  return sums;
}

}  // namespace

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(HierarchicalCopyAllReduceOptions options)
    : options_(options) {
  check_packs("HierarchicalCopyAllReduce", options_.num_packs);
}

Mirrored<Tensor> HierarchicalCopyAllReduce::reduce_implementation(
    ReduceOp op, const PerReplica<Tensor>& value, const Destinations& destinations,
    const CommunicationOptions& options) const {
  return batch_reduce_implementation(op, {{value, destinations}}, options)[0];
}

std::vector<Mirrored<Tensor>> HierarchicalCopyAllReduce::batch_reduce_implementation(
    ReduceOp op, const DenseValues& values, const CommunicationOptions& options) const {
  std::vector<Mirrored<Tensor>> results(values.size());
  std::map<std::pair<at::ScalarType, std::size_t>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& [value, destinations] = values[i];
    if (stays_on_its_devices(value, destinations)) {
      groups[{value[0].scalar_type(), value.size()}].push_back(i);
    } else {
      results[i] = CrossDeviceOps::reduce_implementation(op, value, destinations, options);
    }
  }
  for (const auto& [key, members] : groups) {
    std::vector<const PerReplica<Tensor>*> group;
    for (std::size_t i : members) group.push_back(&values[i].first);
    const std::vector<Tensor> sums = packed_sums(group, options_.num_packs, hierarchical_sum);
    for (std::size_t k = 0; k < members.size(); ++k) {
      const Tensor sum = op == ReduceOp::kMean ? mean_of_sum(sums[k], key.second) : sums[k];
      results[members[k]] = broadcast_implementation(sum, values[members[k]].second);
    }
  }
  return results;
}

}  // namespace tutti::distribute
