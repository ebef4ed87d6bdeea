#pragma once
// What a FusedUpdate has and does; the words are explained in fused_update.cpp.

#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/rendezvous.h"
#include "distribute/fused_update_rows.h"
#include "distribute/variable_state.h"
#include "tutti/distribute/fused_update.h"

namespace tutti::distribute {

/// The replicas of one update, or the one thread outside them.
class Meeting {
 public:
  explicit Meeting(Strategy& strategy);
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// In a replica of the strategy.
  bool inside() const { return inside_; }
  void meet(const char* operation, const void* payload) const;
  void leave() const;
  /// Everybody is through with what came before it.
  void meet_again(const char* operation, const void* payload) const {
    leave();
    meet(operation, payload);
  }

 private:
  collectives::Rendezvous* rendezvous_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  bool inside_ = false;
};

/// fused_update.cpp makes it and drives the steps, fused_update_pass.cpp does them,
/// fused_update_workers.cpp adds up over workers.
struct FusedUpdate::Impl {
  static constexpr int64_t kChunk = 2048;
  /// Shares are cut on multiples of this: no cache line of floats is written by two replicas.
  static constexpr int64_t kLine = 16;

  /// What one replica brings to the meeting; owned by it and reused from step to step.
  struct Contribution {
    std::vector<Tensor> gradients;  // in the variable's strides and dtype, or rows; undefined: none
    std::vector<const void*> data;  // memory of the dense ones, null for others
    std::vector<double> squares;    // of this replica's share, by variable
    std::vector<double>
        scales;  // of the aggregated gradients, by variable; the same on each replica
    UpdateOptions options;
    bool has_rows = false;
    bool finite = true;  // this replica's share
  };

  // Small and on the stack: a step takes no memory.
  using Contributions = c10::SmallVector<const Contribution*, 16>;
  template <class Scalar>
  using Parts = c10::SmallVector<const Scalar*, 16>;  // the replicas' gradients of one variable

  struct Item {
    tutti::internal::VariableState* state;
    int64_t numel;
    int64_t begin;  // among the elements of all fused items
    bool fused;     // float or double, on CPU, one storage
    bool decay;
    bool whole = false;  // updated by one replica, the `owner`, when it is fused
    int owner = 0;
  };

  /// Adds the gradients up over the workers; only where there are several.
  class OverWorkers;

  Impl();
  ~Impl();

  std::vector<Variable> variables;
  std::shared_ptr<UpdateRule> rule;
  GradientClipping clipping;
  std::vector<Item> items;
  int64_t total = 0;
  std::vector<std::string> slot_names;
  std::vector<std::vector<Variable>> slots;      // [name][variable]
  std::vector<Contribution> contributions;       // one a local replica
  std::vector<RowGradient> row_gradients;        // by variable, of the update under way
  std::vector<char> warned;                      // by variable: said that it has no gradient
  std::vector<Tensor> whole_gradients;           // by variable: room for the sum where one needs it
  std::vector<std::vector<Tensor>> whole_slots;  // by variable: what update_whole is handed
  bool constrained = false;                      // some variable has a constraint
  std::unique_ptr<OverWorkers> over_workers;     // null with one worker
  int64_t iterations = 0;

  bool clips_by_norm() const {
    return clipping.clipnorm.has_value() || clipping.global_clipnorm.has_value();
  }

  void pack_weights();
  void make_slots();
  void deal_whole_variables();
  void classify();
  bool is_stale() const;
  void prepare(Contribution& mine, const std::vector<Tensor>& gradients, std::size_t replica);
  Contributions gather(const Meeting& meeting, const char* operation,
                       const std::vector<Tensor>& gradients, const UpdateOptions& options);
  bool join_rows_together(const Meeting& meeting, const char* operation, const Contributions& all);
  void forget(const Meeting& meeting, bool any_rows);
  template <class Visitor>
  void for_whole(int rank, int size, Visitor visit) const {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].fused && items[i].whole && (size == 1 || items[i].owner == rank)) visit(i);
    }
  }
  template <class Visitor>
  void for_share(int rank, int size, Visitor visit) const;
  template <class Scalar>
  Parts<Scalar> parts_of(const Contributions& all, std::size_t item) const;
  template <class Scalar>
  void add_squares(const Contributions& all, std::size_t item, int64_t begin, int64_t end,
                   double& sum) const;
  void forget_rows() {
    for (RowGradient& joined : row_gradients) {
      if (joined.is_rows() || joined.dense.defined()) joined = RowGradient();
    }
  }
  void join_rows(const Contributions& all, int rank, int size);
  /// The replicas' sums of this replica's share, each where `target(item)` says; null: nowhere.
  void write_sums(const Contributions& all, int rank, int size,
                  FunctionRef<void*(std::size_t)> target) const;
  template <class Scalar>
  void write_sum(const Contributions& all, std::size_t item, int64_t begin, int64_t end,
                 Scalar* out) const;
  const RowGradient* rows_of(std::size_t item) const {
    return row_gradients[item].is_rows() ? &row_gradients[item] : nullptr;
  }
  void measure(const Contributions& all, int rank, int size, Contribution& mine) const;
  template <class Scalar>
  bool is_finite(const Contributions& all, std::size_t item, int64_t begin, int64_t end) const;
  bool is_share_finite(const Contributions& all, int rank, int size) const;
  void find_scales(const Contributions& all, double scale, std::vector<double>& factors) const;
  template <class Scalar>
  void update_segment(const Contributions& all, std::size_t item, int64_t begin, int64_t end,
                      double scale) const;
  template <class Scalar>
  void update_rows(const RowGradient& rows, std::size_t item, int64_t begin, int64_t end,
                   double scale) const;
  void update_share(const Contributions& all, int rank, int size,
                    const std::vector<double>& scales) const;
  template <class Scalar>
  Tensor whole_gradient(const Contributions& all, std::size_t item, double scale);
  void update_whole_variables(const Contributions& all, int rank, int size,
                              const std::vector<double>& scales);
  void constrain(const Contributions& all, int rank, int size);
  void update_by_tensors(const Contributions& all, std::size_t item, double scale);
  void update_component(std::size_t item, std::size_t replica, const Tensor& gradient,
                        const RowGradient* only);
  bool has_gradient(const Contributions& all, std::size_t item) const;
  bool has_any_gradient(const Contributions& all) const;
  Tensor aggregated(const Contributions& all, std::size_t item) const;
  void finish(const Contributions& all);
};

}  // namespace tutti::distribute
