#pragma once
// The count of calls as an object of a checkpoint.

#include <ATen/ATen.h>

#include <cstdint>

#include "tensor/worker_peers.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::preemption {

/// An int64 scalar, as TensorFlow's. Used by one thread at a time.
class RunCounter final : public SharedTrackable {
 public:
  /// All of these workers count alike, and save and restore what has the counter together.
  explicit RunCounter(std::shared_ptr<WorkerPeers> peers) : peers_(std::move(peers)) {}
  int64_t value() const { return value_; }
  void set(int64_t value) { value_ = value; }

  Nest state() const override { return Nest(at::scalar_tensor(value_, at::kLong)); }
  void check_state(const Nest& state) const override { number_in(state); }
  void set_state(const Nest& state) override { value_ = number_in(state); }
  std::shared_ptr<WorkerPeers> peers() const override { return peers_; }

 private:
  static int64_t number_in(const Nest& state) {
    const Tensor& leaf = state.leaf();
    if (leaf.scalar_type() != at::kLong || leaf.dim() != 0)
      throw InvalidArgument("checkpointed_runs: another tensor, expected one int64");
    const auto number = leaf.item<int64_t>();
    if (number < 0)
      throw InvalidArgument(cat("checkpointed_runs: ", number, ", expected 0 or more"));
    return number;
  }
  const std::shared_ptr<WorkerPeers> peers_;
  int64_t value_ = 0;
};

}  // namespace tutti::preemption
