#pragma once
// How tensors of several replicas become one: the algorithms behind reduce and, where they are not
// the default, all_reduce.

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "tutti/collectives/communicator.h"
#include "tutti/distribute/values.h"

namespace tutti::distribute {

/// Base of the algorithms; a user may derive from it. Implementations are immutable and may be used
/// by several threads.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// The reduction of the components (one dtype and shape). Throws InvalidArgument for an empty or
  /// uneven PerReplica.
  Tensor reduce(collectives::ReduceOp op, const PerReplica<Tensor>& value) const;
  /// Several at once, in input order.
  std::vector<Tensor> batch_reduce(collectives::ReduceOp op,
                                   const std::vector<PerReplica<Tensor>>& values) const;

  /// The class' name, as `strategy.summary()` prints it.
  virtual std::string name() const = 0;

 protected:
  /// The overridable part: all values are checked.
  virtual std::vector<Tensor> batch_reduce_implementation(
      collectives::ReduceOp op, const std::vector<PerReplica<Tensor>>& values) const = 0;
};

/// Adds all components in replica order on the first one's device (or on `reduce_to_device`).
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  struct Options {
    std::string reduce_to_device = "";
  };
  ReductionToOneDevice() = default;
  explicit ReductionToOneDevice(Options options);
  std::string name() const override { return "ReductionToOneDevice"; }

 protected:
  std::vector<Tensor> batch_reduce_implementation(
      collectives::ReduceOp op, const std::vector<PerReplica<Tensor>>& values) const override;

 private:
  Options options_;
};

struct HierarchicalCopyAllReduceOptions {
  /// The tensors of a batch are joined and cut into so many packs; 0: no packing.
  int num_packs = 1;
};

/// Two groups of devices: each pack is summed inside its group on a rotating main device, then the
/// two sums are exchanged.
class HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  /// Throws InvalidArgument when num_packs is negative.
  explicit HierarchicalCopyAllReduce(HierarchicalCopyAllReduceOptions options = {});
  std::string name() const override { return "HierarchicalCopyAllReduce"; }

 protected:
  std::vector<Tensor> batch_reduce_implementation(
      collectives::ReduceOp op, const std::vector<PerReplica<Tensor>>& values) const override;

 private:
  HierarchicalCopyAllReduceOptions options_;
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
