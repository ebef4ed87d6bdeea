#pragma once
// Gradients that are added up over several calls before they are applied.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/fused_update.h"

namespace tutti::distribute {
class ReplicaContext;
}

namespace tutti::keras::optimizers {

/// How the gradients of one call are applied.
struct ApplyOptions {
  /// False: they are equal on all replicas already.
  bool sum_replicas = true;
  /// Factor of their sum: what takes a loss scale back.
  double scale = 1;
  bool may_be_empty = false;
  /// Set: they are those of a sum, of which this replica has so many parts; what an update brings
  /// together is divided by all replicas' and calls' parts.
  std::optional<double> denominator = std::nullopt;
};

/// Of one optimizer: each replica has sums of its own, on its device, which meet only in the
/// update.
class Accumulation {
 public:
  /// `steps` calls make an update. Nothing is allocated before the first call.
  Accumulation(std::string optimizer, int64_t steps, std::vector<Variable> variables);

  /// Adds `gradients` (in the order of the variables; undefined: none) times the options' scale to
  /// this replica's sums; in the last call applies the means: over the calls, or by the sum of all
  /// denominators. Collective in a replica context: every replica calls it, and none adds anything
  /// unless all have come. False: as FusedUpdate::apply.
  bool apply(const std::vector<Tensor>& gradients, const ApplyOptions& options,
             distribute::FusedUpdate& update);

  /// Calls since the last update.
  int64_t calls() const { return replicas_[0].calls; }
  std::vector<Tensor> sums() const;
  std::optional<double> denominator() const;
  void restore(const std::vector<Tensor>& sums, int64_t calls, std::optional<double> denominator);

 private:
  /// How the calls of one update were made: sums of them mix only with their like.
  enum class Kind { kNone, kReplicas, kEqualReplicas, kOutside };
  struct alignas(64) Replica {
    std::vector<Tensor> sums;  // kept from update to update; stale where `has` is 0
    std::vector<char> has;
    std::vector<Tensor> means;  // handed to the update: the sums, or undefined
    int64_t calls = 0;
    Kind kind = Kind::kNone;
    std::optional<double> denominator;  // since the last update; set by the first call or never
  };

  void check(const std::vector<Tensor>& gradients, const Replica& mine, Kind kind) const;
  void check_denominator(const Replica& mine, bool has_denominator) const;
  void add(Replica& mine, std::size_t index, const std::vector<Tensor>& gradients, double scale);
  void take_means(Replica& mine, double divisor);

  std::string optimizer_;
  int64_t steps_;
  std::vector<Variable> variables_;
  std::vector<Replica> replicas_;
};

/// What sums are divided by when each of the replicas (when `inside` them) brings `own`: their sum,
/// 1 in the place of 0. A collective inside replicas.
double divisor_over_replicas(double own, bool inside);

}  // namespace tutti::keras::optimizers
