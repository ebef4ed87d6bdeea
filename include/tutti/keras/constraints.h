#pragma once
// What weights are held to after each update.

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::keras {

/// A handle: weight → the weight that an optimizer leaves, of the same shape and dtype. Made from a
/// name ("max_norm", "non_neg", "unit_norm", "min_max_norm"), from constraints::…, or from a
/// function of the weight; the default is none.
class Constraint {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual Tensor operator()(const Tensor& weight) const = 0;
    virtual std::string class_name() const = 0;
    virtual std::string config() const = 0;
  };
  Constraint() = default;
  Constraint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// Throws InvalidArgument that lists the known names.
  Constraint(const std::string& name);                             // NOLINT
  Constraint(const char* name) : Constraint(std::string(name)) {}  // NOLINT
  /// A user's function; config() says "function", which no file can bring back.
  template <class F>
  requires std::is_invocable_r_v<Tensor, const F&, const Tensor&> &&
      (!std::same_as<F, Constraint>)Constraint(F function)  // NOLINT
      : Constraint(of_function(std::move(function))) {}

  bool defined() const { return impl_ != nullptr; }
  /// The weight itself when there is no constraint.
  Tensor operator()(const Tensor& weight) const { return defined() ? (*impl_)(weight) : weight; }
  /// What a variable takes; empty when there is no constraint.
  std::function<Tensor(const Tensor&)> function() const;
  /// Of a defined constraint.
  std::string class_name() const { return impl_->class_name(); }
  /// JSON object text; from_config makes the constraint again.
  std::string config() const { return impl_->config(); }
  /// InvalidArgument for an unknown class.
  static Constraint from_config(const std::string& class_name, const std::string& config);

 private:
  static Constraint of_function(std::function<Tensor(const Tensor&)> function);

  std::shared_ptr<const Impl> impl_;
};

/// Norms are taken over `axis`, one or several dimensions: 0 of a Dense kernel, {0, 1, 2} of a
/// Conv2D kernel, is what leads to one output. Formulas of keras.constraints, with its 1e-7.
namespace constraints {
/// w * clip(norm, 0, max_value) / (1e-7 + norm).
Constraint MaxNorm(double max_value = 2, std::vector<int64_t> axis = {0});
/// max(w, 0).
Constraint NonNeg();
/// w / (1e-7 + norm).
Constraint UnitNorm(std::vector<int64_t> axis = {0});
/// w * (rate * clip(norm, min_value, max_value) + (1 - rate) * norm) / (1e-7 + norm).
Constraint MinMaxNorm(double min_value = 0, double max_value = 1, double rate = 1,
                      std::vector<int64_t> axis = {0});
}  // namespace constraints
}  // namespace tutti::keras
