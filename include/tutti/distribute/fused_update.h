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
  /// Value with which slots start.
  virtual double slot_initial_value() const { return 0; }
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
  /// The updates by tensor operations: their oracle, and the way on other devices and
  /// dtypes.
  virtual void update_tensors(Tensor& weights, const Tensor& gradients, std::vector<Tensor>& slots,
                              bool decay) const = 0;
};

/// At most one is set. Applied to the aggregated gradients.
struct GradientClipping {
  std::optional<double> clipnorm;         ///< bound of each variable's gradient norm
  std::optional<double> clipvalue;        ///< bound of each entry
  std::optional<double> global_clipnorm;  ///< bound of the norm over all variables
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
  /// are left as they are. When `sum_replicas` is false they are already equal everywhere and are
  /// not added.
  ///
  /// An undefined gradient counts as zero while another replica has one; a variable without any is
  /// not updated, with one warning. No gradient for any variable on any replica: InvalidArgument on
  /// all of them.
  ///
  /// Gradients of sparse layout (nn::embedding_lookup) are joined row by row and never made dense
  /// as long as every replica that has one brings it so; clipping sees each row once. The numbers
  /// are those of the dense gradients; rules that are the identity at zero touch the rows alone.
  void apply(const std::vector<Tensor>& gradients, bool sum_replicas = true);

  int64_t iterations() const;
  void set_iterations(int64_t iterations);
  const std::vector<Variable>& variables() const;
  /// Slots of one name, one a variable.
  const std::vector<Variable>& slots(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::distribute
