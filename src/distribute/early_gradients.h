#pragma once
// Gradients on their way into the buckets that workers exchange, while backward goes on.

#include <cstdint>
#include <memory>
#include <vector>

#include "distribute/early_calls.h"

namespace tutti::distribute {

class Strategy;
class WorkerGroup;

/// Autograd says when it has a variable's gradient. It is copied to its place in the arena; the
/// buckets whose gradients are all there are reduced by WorkerGroup::early(), in their order, but
/// for the last one. What is in the arena is remembered by a hash of its bits: whether the
/// gradients that an optimizer is handed are those which autograd had is then seen by reading them.
///
/// A bucket is reduced once a round, which an update ends; every worker has the same `done`. A
/// second gradient for what is under way is not taken, and shows in the hash.
class EarlyGradients : public std::enable_shared_from_this<EarlyGradients> {
 public:
  /// One variable's place in the arena, in elements; `view` is it.
  struct Place {
    std::size_t item;
    at::Tensor view;
    int64_t begin;
  };
  /// `places` in the order of the arena; bucket k ends at element `ends[k]`.
  EarlyGradients(WorkerGroup& workers, Strategy& strategy, std::vector<Place> places,
                 std::shared_ptr<EarlyBuckets> buckets, std::vector<int64_t> ends);
  /// Asks autograd to tell of `leaf`, that of places[place]; not when the leaf has another's hook.
  void watch(std::size_t place, const at::Tensor& leaf);

  // By the update, in this order.
  enum class Written { kNo, kThis, kOther };
  /// No bucket is started from here on until begin_round().
  void close();
  /// What is in the place: nothing that matters, this very gradient, or another one that the others
  /// have or are getting.
  Written written(std::size_t place, const void* gradient) const;
  /// Nothing more is taken until begin_round(): the update writes the arena itself.
  void stop_taking() { ready_ = ends_.size() - 1; }
  void begin_round();

  const std::vector<Place>& places() const { return places_; }
  /// The places in the order in which autograd came to them; shorter where it did not.
  const std::vector<std::size_t>& arrivals() const { return arrivals_; }

 private:
  class Hook;
  void arrived(std::size_t place, const at::Tensor& gradient);
  bool under_way(std::size_t place) const;
  int64_t end_of(std::size_t count) const { return count == 0 ? 0 : ends_[count - 1]; }

  WorkerGroup& workers_;
  Strategy& strategy_;
  const std::vector<Place> places_;
  const std::shared_ptr<EarlyBuckets> buckets_;
  const std::vector<int64_t> ends_;
  std::vector<char> here_;        // by place
  std::vector<uint64_t> hashes_;  // by place
  std::vector<std::size_t> arrivals_;
  std::size_t first_missing_ = 0;  // place
  std::size_t ready_ = 0;          // buckets whose gradients are all there
  std::size_t closed_ = 0;         // buckets that were requested when the update began
};

}  // namespace tutti::distribute
