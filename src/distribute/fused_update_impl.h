#pragma once
// What a FusedUpdate has and does; the words are explained in fused_update.cpp.

#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

#include "distribute/fused_update_rows.h"
#include "distribute/variable_state.h"
#include "tutti/distribute/fused_update.h"

namespace tutti::distribute {

/// fused_update.cpp makes it and drives the steps, fused_update_pass.cpp does them.
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
    bool sum_replicas = true;
    bool has_rows = false;
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
  };

  std::vector<Variable> variables;
  std::shared_ptr<UpdateRule> rule;
  GradientClipping clipping;
  std::vector<Item> items;
  int64_t total = 0;
  std::vector<std::string> slot_names;
  std::vector<std::vector<Variable>> slots;  // [name][variable]
  std::vector<Contribution> contributions;   // one a local replica
  std::vector<RowGradient> row_gradients;    // by variable, of the update under way
  std::vector<char> warned;                  // by variable: said that it has no gradient
  int64_t iterations = 0;

  bool clips_by_norm() const {
    return clipping.clipnorm.has_value() || clipping.global_clipnorm.has_value();
  }

  void pack_weights();
  void make_slots();
  void classify();
  bool is_stale() const;
  void prepare(Contribution& mine, const std::vector<Tensor>& gradients, std::size_t replica);
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
  const RowGradient* rows_of(std::size_t item) const {
    return row_gradients[item].is_rows() ? &row_gradients[item] : nullptr;
  }
  void measure(const Contributions& all, int rank, int size, Contribution& mine) const;
  void find_scales(const Contributions& all, std::vector<double>& factors) const;
  template <class Scalar>
  void update_segment(const Contributions& all, std::size_t item, int64_t begin, int64_t end,
                      double scale) const;
  template <class Scalar>
  void update_rows(const RowGradient& rows, std::size_t item, int64_t begin, int64_t end,
                   double scale) const;
  void update_share(const Contributions& all, int rank, int size,
                    const std::vector<double>& scales) const;
  void update_by_tensors(const Contributions& all, std::size_t item, double scale);
  void update_component(std::size_t item, std::size_t replica, const Tensor& gradient,
                        const RowGradient* only);
  bool has_gradient(const Contributions& all, std::size_t item) const;
  bool has_any_gradient(const Contributions& all) const;
  Tensor aggregated(const Contributions& all, std::size_t item) const;
  void finish(const Contributions& all);
};

}  // namespace tutti::distribute
