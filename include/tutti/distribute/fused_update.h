#pragma once
// One pass over all variables that adds the replicas' gradients, clips and updates the weights: the
// heart of apply_gradients.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distribute/variable.h"

namespace tutti::distribute {

/// An optimizer's formula. All members but begin_step are called by several threads at once, on
/// disjoint parts.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// State tensors that each variable needs, in order, by name ("momentum", "velocity").
  virtual std::vector<std::string> slot_names() const = 0;
  /// Once, before the slots are made: the variables that it is going to update.
  virtual void bind(const std::vector<Variable>& variables) {}
  /// Value with which slots start.
  virtual double slot_initial_value() const { return 0; }
  /// What slot number `slot` of variable number `variable` starts with, a tensor of its own:
  /// slot_initial_value() everywhere unless overridden, in the strides of `weights`, which rules
  /// that update by loops must keep. Undefined: this variable has no such slot, and update gets a
  /// null pointer for it.
  virtual Tensor initial_slot(std::size_t slot, std::size_t variable, const Tensor& weights) const;
  /// Once before each update, by one thread: `iteration` counts finished updates.
  virtual void begin_step(int64_t iteration) = 0;
  /// Updates `n` weights in place by their gradients; `slots` has one pointer for each slot name.
  /// `decay`: weight decay applies.
  virtual void update(float* weights, const float* gradients, float* const* slots, int64_t n,
                      bool decay) const = 0;
  virtual void update(double* weights, const double* gradients, double* const* slots, int64_t n,
                      bool decay) const = 0;
  /// True when a gradient of 0 leaves the weight and the slots as they are. Rows that no replica
  /// looked up are then not touched. Asked after begin_step.
  virtual bool is_identity_at_zero(bool /*decay*/) const { return false; }
  /// True: one pass over parts does not do, since the update needs norms, means or products of all
  /// of this variable. One replica then calls update_whole for it, others for others, so that sums
  /// do not hang on the number of replicas.
  virtual bool needs_whole(std::size_t variable) const { return false; }
  /// As update_tensors, for a float or double variable on the CPU. `gradients` and slots of the
  /// variable's shape lie in memory as `weights` do.
  virtual void update_whole(std::size_t variable, Tensor& weights, const Tensor& gradients,
                            std::vector<Tensor>& slots, bool decay) const {
    update_tensors(weights, gradients, slots, decay);
  }
  /// The updates by tensor operations: their oracle, and the way on other devices and
  /// dtypes. A slot that the variable has not is undefined.
  virtual void update_tensors(Tensor& weights, const Tensor& gradients, std::vector<Tensor>& slots,
                              bool decay) const = 0;
};

/// At most one is set. Applied to the aggregated gradients.
struct GradientClipping {
  std::optional<double> clipnorm;         ///< bound of each variable's gradient norm
  std::optional<double> clipvalue;        ///< bound of each entry
  std::optional<double> global_clipnorm;  ///< bound of the norm over all variables
};

struct UpdateOptions {
  /// False: the gradients are equal on all replicas already and are not added.
  bool sum_replicas = true;
  /// Factor of the sum, before it is clipped: what takes a loss scale back. The same on all
  /// replicas.
  double scale = 1;
  /// No gradient for any variable on any replica is then no error, but an update of nothing.
  bool may_be_empty = false;
};

/// Made once for a list of variables; owns their slots.
class FusedUpdate {
 public:
  /// Packs the weights of shared CPU variables into one arena a dtype (views stay valid), and makes
  /// the slots. Cross-replica or default context. `decay[i]` says whether weight decay applies to
  /// variable i.
  FusedUpdate(std::vector<Variable> variables, std::shared_ptr<UpdateRule> rule,
              GradientClipping clipping, std::vector<bool> decay);
  ~FusedUpdate();

  /// Collective in a replica context: gradients of this replica in the order of the variables;
  /// every replica calls it. Outside replicas the gradients are the aggregated ones. The gradients
  /// are left as they are. False: there was none, which the options allowed.
  ///
  /// An undefined gradient counts as zero while another replica has one; a variable without any is
  /// not updated, with one warning. No gradient for any variable on any replica: InvalidArgument on
  /// all of them.
  ///
  /// Gradients of sparse layout (nn::embedding_lookup) are joined row by row and never made dense
  /// as long as every replica that has one brings it so; clipping sees each row once. The numbers
  /// are those of the dense gradients; rules that are the identity at zero touch the rows alone.
  ///
  /// Variables with a constraint become what it makes of them, after the update. A constraint that
  /// gives another shape or dtype is InvalidArgument.
  bool apply(const std::vector<Tensor>& gradients, const UpdateOptions& options);
  void apply(const std::vector<Tensor>& gradients, bool sum_replicas = true) {
    apply(gradients, UpdateOptions{.sum_replicas = sum_replicas});
  }
  /// Whether every number in the gradients, added over the replicas, is finite: the same answer on
  /// all of them. Collective as apply; nothing is changed.
  bool all_finite(const std::vector<Tensor>& gradients, bool sum_replicas = true);

  int64_t iterations() const;
  void set_iterations(int64_t iterations);
  const std::vector<Variable>& variables() const;
  /// Slots of one name, in the order of the variables; those that have none are left out.
  std::vector<Variable> slots(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::distribute
