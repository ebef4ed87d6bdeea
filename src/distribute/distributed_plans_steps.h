#pragma once
// Passes over datasets that are dealt out to the local replicas.

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/data/plan.h"
#include "tutti/distribute/distributed_dataset.h"
#include "tutti/tensor/device.h"

namespace tutti::distribute {

/// How the steps of one distributed dataset are dealt.
struct Dealing {
  std::vector<DeviceName> devices;  // one a local replica
  int threads = 1;                  // of a batch's operations
  bool fetch_to_device = true;
  mutable std::atomic<bool> warned_of_drop = false;
};

/// A pass over one stream from which the replicas draw in turn, or over one stream for each of
/// them. When a stream ends inside a step, the replicas that are left without data get pieces of
/// zero rows, so that no row is lost; a piece without a batch axis cannot be emptied, then the
/// started step is dropped, with one warning for a dataset. `steps_ahead` steps are made by a
/// thread of their own; 0: when asked for.
std::unique_ptr<DistributedIterator> deal(std::vector<std::unique_ptr<data::Iterator>> streams,
                                          std::shared_ptr<const Dealing> dealing,
                                          int64_t steps_ahead);

/// The steps that a pass had taken when it was saved, where it was one of other workers (`alone`:
/// there are none) or of another number of replicas: such a state says nothing more here. Nothing
/// where `saved` is of as many.
std::optional<int64_t> steps_of_others(const Nest& saved, bool alone, int64_t replicas);
/// Takes so many steps of a new pass, which are lost.
void skip_steps(DistributedIterator& pass, int64_t steps);

}  // namespace tutti::distribute
