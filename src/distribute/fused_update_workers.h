#pragma once
// Gradients of an update over several workers.

#include <optional>
#include <vector>

#include "distribute/early_gradients.h"
#include "distribute/fused_update_impl.h"
#include "tutti/tensor/flat_buffer.h"

namespace tutti::distribute {

class WorkerGroup;

/// Which workers have a gradient of which variable, and of what kind, changes hardly ever. All
/// agree on it once; then a step is one all-reduce for each dtype, in packs of
/// CommunicationOptions::bytes_per_pack, of a buffer with the dense gradients. Its last number says
/// how many workers found that theirs have changed: then all agree anew, and the step is done
/// again. Rows are gathered.
///
/// Where WorkerGroup::overlaps() and a worker has one replica, the float32 gradients lie in the
/// order in which backward comes to them, and all packs but the last may be under way before the
/// update is called (EarlyGradients). The calls and their order are the same on every worker, early
/// or not. A worker that is handed other gradients than those which it has sent says so in the last
/// number, and the update is done again, this and all later ones without early packs.
class FusedUpdate::Impl::OverWorkers {
 public:
  /// InvalidArgument unless all workers update the same variables.
  OverWorkers(Impl& impl, WorkerGroup& workers);

  /// Called by every local replica, behind gather(): the sum over the replicas of all workers, as
  /// the contribution of one. Valid until the next call.
  Contributions sum(const Meeting& meeting, const char* operation, const Contributions& local);
  bool any_rows() const { return any_rows_; }

 private:
  enum Kind : char { kNone = 0, kDense = 1, kRows = 2, kFused = 4 };

  char kind_of(const Contributions& local, std::size_t item) const;
  bool has_changed(const Contributions& local) const;
  void agree(const Contributions& local);
  void lay_out();
  void cut_floats();
  void watch_gradients(const std::vector<std::size_t>& order);
  std::vector<std::size_t> flat_order() const;
  void learn_order();
  void find_written(const Contributions& local);
  void reduce_floats();
  void reduce_doubles();
  bool reduce_all(bool changed);
  void add_mixed(const Contributions& local);
  void add_rest(const Contributions& local);
  void join_rows_of(const Contributions& local, std::size_t item);
  bool is_flat(std::size_t item) const { return place_[item] >= 0; }
  bool rows_only(std::size_t item) const { return (agreed_[item] & ~kFused) == kRows; }

  Impl& impl_;
  WorkerGroup& workers_;
  std::vector<char> mine_;       // this worker's kinds, as it last told the others
  std::vector<char> agreed_;     // of all workers
  std::vector<int64_t> place_;   // of a dense fused variable among its dtype's views; -1: none
  FlatBuffer floats_, doubles_;  // the last view of floats_ counts the workers that have changed
  std::shared_ptr<EarlyBuckets> buckets_;  // floats_
  std::shared_ptr<EarlyGradients> early_;  // null: the packs go when the update is called
  const int64_t number_;                   // among the updates of all workers
  bool overlaps_;                          // of this worker, and once agreed of all
  bool void_ = false;                      // the early packs of this round are of other gradients
  std::vector<int64_t> ranks_;             // item's place in the chief's order; empty: not known
  bool ordered_ = false;                   // the chief has looked at the order
  bool reorders_ = false;                  // it asks for another
  std::vector<char> sent_;                 // by item: its gradient is in its place
  Contribution sum_;
  bool again_ = false;
  bool any_rows_ = false;
};

}  // namespace tutti::distribute
