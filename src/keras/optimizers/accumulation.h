#pragma once
// Gradients that are added up over several calls before they are applied.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/distribute/fused_update.h"

namespace tutti::distribute {
class ReplicaContext;
}

namespace tutti::keras::optimizers {

/// Of one optimizer: each replica has sums of its own, on its device, which meet only in the
/// update.
class Accumulation {
 public:
  /// `steps` calls make an update. Nothing is allocated before the first call.
  Accumulation(std::string optimizer, int64_t steps, std::vector<Variable> variables);

  /// Adds `gradients` (in the order of the variables; undefined: none) times the options' scale to
  /// this replica's sums; in the last call applies the means. Collective in a replica context:
  /// every replica calls it, and none adds anything unless all have come. False: as
  /// FusedUpdate::apply.
  bool apply(const std::vector<Tensor>& gradients, const distribute::UpdateOptions& options,
             distribute::FusedUpdate& update);

  /// Calls since the last update.
  int64_t calls() const { return replicas_[0].calls; }
  std::vector<Tensor> sums() const;
  void restore(const std::vector<Tensor>& sums, int64_t calls);

 private:
  /// How the calls of one update were made: sums of them mix only with their like.
  enum class Kind { kNone, kReplicas, kEqualReplicas, kOutside };
  struct alignas(64) Replica {
    std::vector<Tensor> sums;  // kept from update to update; stale where `has` is 0
    std::vector<char> has;
    std::vector<Tensor> means;  // handed to the update: the sums, or undefined
    int64_t calls = 0;
    Kind kind = Kind::kNone;
  };

  void check(const std::vector<Tensor>& gradients, const Replica& mine, Kind kind) const;
  void add(Replica& mine, std::size_t index, const std::vector<Tensor>& gradients, double scale);
  void take_means(Replica& mine);

  std::string optimizer_;
  int64_t steps_;
  std::vector<Variable> variables_;
  std::vector<Replica> replicas_;
};

}  // namespace tutti::keras::optimizers
