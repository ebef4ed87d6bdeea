#pragma once
// How a strategy of several workers reduces outside replicas.

#include <memory>
#include <string>
#include <vector>

#include "tutti/distribute/cross_device_ops.h"

namespace tutti::distribute {

class WorkerGroup;

/// This worker's components by another algorithm, then one all-reduce over the workers: the result
/// is over all replicas of all workers. Called with the same operation, shapes and dtypes on every
/// worker.
class CollectiveAllReduce : public CrossDeviceOps {
 public:
  CollectiveAllReduce(AnyCrossDeviceOps local, std::shared_ptr<WorkerGroup> workers)
      : local_(std::move(local)), workers_(std::move(workers)) {}
  std::string name() const override { return "CollectiveAllReduce"; }
  void check_devices(const std::vector<DeviceName>& devices) const override;
  /// Among the replicas of this process.
  const CrossDeviceOps& local() const { return *local_.get(); }

 protected:
  Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions& options) const override;
  std::vector<Mirrored<Tensor>> batch_reduce_implementation(
      ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Destinations>>& values,
      const CommunicationOptions& options) const override;
  IndexedSlices join_slices(ReduceOp op, const std::vector<IndexedSlices>& parts,
                            const CommunicationOptions& options) const override;

 private:
  Tensor sum_here(const PerReplica<Tensor>& value, const Destinations& destinations,
                  const CommunicationOptions& options) const;

  AnyCrossDeviceOps local_;
  std::shared_ptr<WorkerGroup> workers_;
};

}  // namespace tutti::distribute
