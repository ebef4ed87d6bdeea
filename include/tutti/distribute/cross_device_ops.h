#pragma once
// How values of several replicas become one: the algorithms behind reduce, reduce_to and, where
// they are not the default, all_reduce.

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/collectives/communicator.h"
#include "tutti/distribute/values.h"
#include "tutti/tensor/device.h"
#include "tutti/tensor/indexed_slices.h"

namespace tutti {
class Variable;
}

namespace tutti::distribute {

using collectives::CommunicationImplementation;
using collectives::CommunicationOptions;
using collectives::ReduceOp;

/// A ReduceOp, or its name in any case ("sum", "MEAN"). Other names are InvalidArgument.
class AnyReduceOp {
 public:
  AnyReduceOp(ReduceOp op) : op_(op) {}                                           // NOLINT
  AnyReduceOp(const char* name) : op_(collectives::reduce_op_from_name(name)) {}  // NOLINT
  AnyReduceOp(std::string_view name)                                              // NOLINT
      : op_(collectives::reduce_op_from_name(name)) {}
  AnyReduceOp(const std::string& name)  // NOLINT
      : op_(collectives::reduce_op_from_name(name)) {}
  operator ReduceOp() const { return op_; }  // NOLINT

 private:
  ReduceOp op_;
};

/// Where a result goes: the devices of a distributed value, of a variable or of a tensor, or a
/// device by name. Only the devices are taken; nothing is written to what names them.
class Destinations {
 public:
  /// Throws InvalidArgument for an empty name or a distributed value without components.
  Destinations(const char* device);                             // NOLINT
  Destinations(const std::string& device);                      // NOLINT
  Destinations(const Tensor& tensor);                           // NOLINT
  Destinations(const Variable& variable);                       // NOLINT
  Destinations(const DistributedValues<Tensor>& value);         // NOLINT
  Destinations(const DistributedValues<IndexedSlices>& value);  // NOLINT
  Destinations(std::vector<DeviceName> devices);                // NOLINT
  /// One entry for each component of the result. Logical CPU devices of a value's components
  /// cannot be told apart: they are numbered from 0.
  const std::vector<DeviceName>& devices() const { return devices_; }

 private:
  std::vector<DeviceName> devices_;
};

/// What is reduced: dense tensors, or rows of larger ones.
using ReductionInput = std::variant<PerReplica<Tensor>, PerReplica<IndexedSlices>>;
using ReductionResult = std::variant<Mirrored<Tensor>, Mirrored<IndexedSlices>>;
struct ValueDestinations {
  ReductionInput value;
  Destinations destinations;
};

/// Base of the algorithms; a user may derive from it and override one or more of the three
/// *_implementation members (the defaults are those of ReductionToOneDevice). Implementations are
/// immutable and may be used by several threads.
///
/// Values have one component for each contributing replica, all of one dtype and shape; MEAN
/// divides by their number, and gives float64 for integers. Inputs are never written and never
/// alias results. IndexedSlices come back as IndexedSlices: the concatenation of the components in
/// replica order, not deduplicated, values divided for MEAN.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// Throws InvalidArgument for a PerReplica that is empty or whose components disagree, and for an
  /// implementation that does not give one result for each destination.
  Mirrored<Tensor> reduce(AnyReduceOp op, const PerReplica<Tensor>& value,
                          const Destinations& destinations,
                          const CommunicationOptions& options = {}) const;
  Mirrored<IndexedSlices> reduce(AnyReduceOp op, const PerReplica<IndexedSlices>& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options = {}) const;
  /// The reduction where the first component lives.
  Tensor reduce(AnyReduceOp op, const PerReplica<Tensor>& value) const;
  /// Several at once, results in input order. Dense and sparse ones may be mixed; sparse ones are
  /// reduced apart.
  std::vector<ReductionResult> batch_reduce(AnyReduceOp op,
                                            const std::vector<ValueDestinations>& values,
                                            const CommunicationOptions& options = {}) const;
  /// `tensor` on every destination.
  Mirrored<Tensor> broadcast(const Tensor& tensor, const Destinations& destinations) const;

  /// The class' name, as `strategy.summary()` prints it.
  virtual std::string name() const = 0;
  /// Called when a strategy on these devices is made with it; throws InvalidArgument when it cannot
  /// serve them.
  virtual void check_devices(const std::vector<DeviceName>& devices) const;

 protected:
  /// The overridable parts. What they get is checked, carries no gradient, and is no integer for
  /// MEAN. One result for each destination, in order; none may alias an input.
  virtual Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                                 const Destinations& destinations,
                                                 const CommunicationOptions& options) const;
  /// Default: reduce_implementation for each.
  virtual std::vector<Mirrored<Tensor>> batch_reduce_implementation(
      ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>& values,
      const CommunicationOptions& options) const;
  virtual Mirrored<Tensor> broadcast_implementation(const Tensor& tensor,
                                                    const Destinations& destinations) const;
  /// The rows of all replicas one after the other, of which `parts` are this process's. MEAN
  /// divides the values.
  virtual IndexedSlices join_slices(ReduceOp op, const std::vector<IndexedSlices>& parts,
                                    const CommunicationOptions& options) const;
};

struct ReductionToOneDeviceOptions {
  /// Empty: the first destination.
  std::string reduce_to_device = "";
  /// Adds up the components, which are on one device, in replica order; must not write to them.
  /// Empty: their sum, added in replica order.
  std::function<Tensor(const std::vector<Tensor>&)> accumulation_fn = {};
};

/// Adds all components in replica order on one device and copies the result to the destinations.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  ReductionToOneDevice() = default;
  explicit ReductionToOneDevice(ReductionToOneDeviceOptions options);
  std::string name() const override { return "ReductionToOneDevice"; }
  /// True when its sum is the plain one on the components' own device: what all replicas can also
  /// do together.
  bool is_plain() const { return options_.reduce_to_device.empty() && !options_.accumulation_fn; }

 protected:
  Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions& options) const override;

 private:
  ReductionToOneDeviceOptions options_;
};

/// What the all-reduces between devices share. The tensors of a batch are joined (by dtype and
/// device) and cut into packs, each reduced by itself; values that live elsewhere than their
/// destinations are added on one device.
class PackedAllReduce : public CrossDeviceOps {
 public:
  int num_packs() const { return num_packs_; }

 protected:
  /// Throws InvalidArgument in the name of `name` when num_packs is negative.
  PackedAllReduce(const char* name, int num_packs);
  Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions& options) const override;
  std::vector<Mirrored<Tensor>> batch_reduce_implementation(
      ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>& values,
      const CommunicationOptions& options) const override;

 private:
  /// False: `value` is added on one device. Throws InvalidArgument for what it cannot serve.
  virtual bool packs(const PerReplica<Tensor>& value) const { return true; }
  /// Adds up one pack: a flat tensor of each replica, on its device, not to be written. Gives each
  /// replica its sum on its device; entries may be one tensor. `pack` counts the packs of a batch.
  virtual std::vector<Tensor> sums(const std::vector<Tensor>& parts, std::size_t pack) const = 0;

  int num_packs_;
};

struct NcclAllReduceOptions {
  /// The tensors of a batch are joined and cut into so many packs; 0: no packing.
  int num_packs = 1;
};

/// NCCL between GPUs, one pack after the other. Only for CUDA devices and a build with NCCL: CPU
/// devices and CPU values are InvalidArgument that names the alternatives. Integers are added on
/// one device.
class NcclAllReduce : public PackedAllReduce {
 public:
  explicit NcclAllReduce(NcclAllReduceOptions options = {})
      : PackedAllReduce("NcclAllReduce", options.num_packs) {}
  std::string name() const override { return "NcclAllReduce"; }
  void check_devices(const std::vector<DeviceName>& devices) const override;
  /// True when this build has NCCL.
  static bool is_built();

 private:
  bool packs(const PerReplica<Tensor>& value) const override;
  std::vector<Tensor> sums(const std::vector<Tensor>& parts, std::size_t pack) const override;
};

struct HierarchicalCopyAllReduceOptions {
  /// The tensors of a batch are joined (by dtype and device) and cut into so many packs; 0: no
  /// packing.
  int num_packs = 1;
};

/// Two groups of devices: each pack is summed inside its group on a rotating main device, then the
/// two sums are exchanged.
class HierarchicalCopyAllReduce : public PackedAllReduce {
 public:
  explicit HierarchicalCopyAllReduce(HierarchicalCopyAllReduceOptions options = {})
      : PackedAllReduce("HierarchicalCopyAllReduce", options.num_packs) {}
  std::string name() const override { return "HierarchicalCopyAllReduce"; }

 private:
  std::vector<Tensor> sums(const std::vector<Tensor>& parts, std::size_t pack) const override;
};

/// Any CrossDeviceOps, by value; empty means "the strategy chooses".
class AnyCrossDeviceOps {
 public:
  AnyCrossDeviceOps() = default;
  template <std::derived_from<CrossDeviceOps> Ops>
  AnyCrossDeviceOps(Ops ops)
      : ops_(std::make_shared<const Ops>(std::move(ops))) {
  }  // NOLINT: an option is set by naming it
  AnyCrossDeviceOps(std::shared_ptr<const CrossDeviceOps> ops) : ops_(std::move(ops)) {}  // NOLINT
  const CrossDeviceOps* get() const { return ops_.get(); }
  const CrossDeviceOps* operator->() const { return ops_.get(); }
  explicit operator bool() const { return ops_ != nullptr; }

 private:
  std::shared_ptr<const CrossDeviceOps> ops_;
};

}  // namespace tutti::distribute
