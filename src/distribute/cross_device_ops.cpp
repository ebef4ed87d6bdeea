// Destinations, the checked front of CrossDeviceOps, its defaults and ReductionToOneDevice.

#include "tutti/distribute/cross_device_ops.h"

#include "collectives/local_reduce.h"
#include "distribute/cross_device_ops_packs.h"
#include "tutti/distribute/variable.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

DeviceName device_of(const Tensor& tensor, int index) {
  if (!tensor.defined())
    throw InvalidArgument(
        "reduce: an undefined tensor as destination, expected one that has a device; pass a value, "
        "a variable or a device name");
  return tensor.is_cuda() ? DeviceName{DeviceName::Kind::kCuda, tensor.device().index()}
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

Tensor for_mean(const Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex() ? tensor : tensor.to(at::kDouble);
}

/// The components without gradient; float64 where the mean of integers is asked for.
PerReplica<Tensor> inputs_of(ReduceOp op, const PerReplica<Tensor>& value) {
  std::vector<Tensor> inputs;
  inputs.reserve(value.size());
  for (const Tensor& component : value.values()) {
    inputs.push_back(op == ReduceOp::kMean ? for_mean(component.detach()) : component.detach());
  }
  return PerReplica<Tensor>(std::move(inputs));
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

template <class T>
Mirrored<T> checked(const CrossDeviceOps& ops, Mirrored<T> result,
                    const Destinations& destinations) {
  if (result.size() == destinations.devices().size()) return result;
  throw InvalidArgument(cat("reduce [", ops.name(), "]: the implementation gave ", result.size(),
                            " components for ", destinations.devices().size(),
                            " destinations, expected one for each"));
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
  return checked(*this, reduce_implementation(op, inputs_of(op, value), destinations, options),
                 destinations);
}

Tensor CrossDeviceOps::reduce(AnyReduceOp op, const PerReplica<Tensor>& value) const {
  check_value(value);
  return reduce(op, value, Destinations(value[0]))[0];
}

Mirrored<IndexedSlices> CrossDeviceOps::reduce(AnyReduceOp op,
                                               const PerReplica<IndexedSlices>& value,
                                               const Destinations& destinations,
                                               const CommunicationOptions& options) const {
  check_value(value);
  at::NoGradGuard no_grad;
  std::vector<IndexedSlices> parts(value.values().begin(), value.values().end());
  if (ReduceOp(op) == ReduceOp::kMean) {
    for (IndexedSlices& part : parts) part.values = for_mean(part.values);
  }
  const IndexedSlices joined = join_slices(op, parts, options);
  const auto values =
      checked(*this, broadcast_implementation(joined.values, destinations), destinations);
  const auto indices =
      checked(*this, broadcast_implementation(joined.indices, destinations), destinations);
  std::vector<IndexedSlices> results;
  for (std::size_t i = 0; i < values.size(); ++i)
    results.push_back({values[i], indices[i], joined.dense_shape});
  return Mirrored<IndexedSlices>(std::move(results));
}

std::vector<ReductionResult> CrossDeviceOps::batch_reduce(
    AnyReduceOp op, const std::vector<ValueDestinations>& values,
    const CommunicationOptions& options) const {
  for (const ValueDestinations& item : values)
    std::visit([](const auto& value) { check_value(value); }, item.value);
  at::NoGradGuard no_grad;
  std::vector<ReductionResult> results(values.size());
  std::vector<std::pair<PerReplica<Tensor>, Destinations>> dense;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (const auto* value = std::get_if<PerReplica<Tensor>>(&values[i].value)) {
      dense.emplace_back(inputs_of(op, *value), values[i].destinations);
      positions.push_back(i);
    } else {
      results[i] = reduce(op, std::get<PerReplica<IndexedSlices>>(values[i].value),
                          values[i].destinations, options);
    }
  }
  if (dense.empty()) return results;
  auto reduced = batch_reduce_implementation(op, dense, options);
  if (reduced.size() != dense.size()) {
    throw InvalidArgument(cat("batch_reduce [", name(), "]: the implementation gave ",
                              reduced.size(), " results for ", dense.size(),
                              " values, expected one for each, in order"));
  }
  for (std::size_t i = 0; i < positions.size(); ++i)
    results[positions[i]] = checked(*this, std::move(reduced[i]), dense[i].second);
  return results;
}

Mirrored<Tensor> CrossDeviceOps::broadcast(const Tensor& tensor,
                                           const Destinations& destinations) const {
  if (!tensor.defined()) throw InvalidArgument("broadcast: an undefined tensor, expected a value");
  at::NoGradGuard no_grad;
  Tensor source = tensor.detach();
  for (const DeviceName& device : destinations.devices()) {
    if (device.torch_device() != source.device()) continue;
    source = source.clone();  // what stays on this device must not be the input itself
    break;
  }
  return checked(*this, broadcast_implementation(source, destinations), destinations);
}

// ---- defaults

void CrossDeviceOps::check_devices(const std::vector<DeviceName>&) const {}

Mirrored<Tensor> CrossDeviceOps::reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                                       const Destinations& destinations,
                                                       const CommunicationOptions&) const {
  const c10::Device device = destinations.devices()[0].torch_device();
  std::vector<Tensor> parts;
  for (const Tensor& component : value.values()) parts.push_back(component.to(device));
  return broadcast_implementation(collectives::local_reduce(op, parts), destinations);
}

std::vector<Mirrored<Tensor>> CrossDeviceOps::batch_reduce_implementation(
    ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>& values,
    const CommunicationOptions& options) const {
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

IndexedSlices CrossDeviceOps::join_slices(ReduceOp op, const std::vector<IndexedSlices>& parts,
                                          const CommunicationOptions&) const {
  return collectives::local_reduce(op, parts);
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
  for (const Tensor& component : value.values()) parts.push_back(component.to(device));
  if (!options_.accumulation_fn)
    return broadcast_implementation(collectives::local_reduce(op, parts), destinations);
  Tensor sum = options_.accumulation_fn(parts);
  if (!sum.defined() || sum.sizes() != parts[0].sizes() ||
      sum.scalar_type() != parts[0].scalar_type()) {
    throw InvalidArgument(cat("reduce [ReductionToOneDevice accumulation_fn]: ",
                              sum.defined()
                                  ? cat(dtype_name(sum.scalar_type()), " ", shape_text(sum.sizes()))
                                  : std::string("an undefined tensor"),
                              ", expected ", dtype_name(parts[0].scalar_type()), " ",
                              shape_text(parts[0].sizes()), " as the components are"));
  }
  if (op == ReduceOp::kMean) {
    sum = sum / static_cast<double>(parts.size());
  } else {
    for (const Tensor& part : parts) {
      if (sum.is_alias_of(part)) sum = sum.clone();  // results never alias inputs
    }
  }
  return broadcast_implementation(sum, destinations);
}

}  // namespace tutti::distribute
