#pragma once
// Penalties on weights and on what layers give out.

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/tensor/tensor.h"

namespace tutti::keras {

/// A handle: tensor → penalty, a scalar with gradient. Made from a name ("l1", "l2", "l1_l2",
/// "orthogonal_regularizer"), from regularizers::…, or from a function of the tensor; the default
/// has no penalty.
class Regularizer {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual Tensor operator()(const Tensor& tensor) const = 0;
    virtual std::string class_name() const = 0;
    virtual std::string config() const = 0;
  };
  Regularizer() = default;
  Regularizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// Throws InvalidArgument that lists the known names.
  Regularizer(const std::string& name);                              // NOLINT
  Regularizer(const char* name) : Regularizer(std::string(name)) {}  // NOLINT
  /// A user's function; config() says "function", which no file can bring back.
  template <class F>
  requires std::is_invocable_r_v<Tensor, const F&, const Tensor&> &&
      (!std::same_as<F, Regularizer>)Regularizer(F function)  // NOLINT
      : Regularizer(of_function(std::move(function))) {}

  bool defined() const { return impl_ != nullptr; }
  /// Zero when there is no penalty.
  Tensor operator()(const Tensor& tensor) const;
  /// Of a defined regularizer.
  std::string class_name() const { return impl_->class_name(); }
  /// JSON object text; from_config makes the regularizer again.
  std::string config() const { return impl_->config(); }
  /// InvalidArgument for an unknown class.
  static Regularizer from_config(const std::string& class_name, const std::string& config);

 private:
  static Regularizer of_function(std::function<Tensor(const Tensor&)> function);

  std::shared_ptr<const Impl> impl_;
};

/// Factors are finite and not negative (InvalidArgument); one that is 0 everywhere is no penalty.
namespace regularizers {
/// l1 * sum |w|.
Regularizer L1(double l1 = 0.01);
/// l2 * sum w^2.
Regularizer L2(double l2 = 0.01);
Regularizer L1L2(double l1 = 0, double l2 = 0);
/// factor * the mean of |a . b| over pairs of normalised rows (`mode` "rows") or columns
/// ("columns") of a matrix; InvalidArgument for another rank.
Regularizer OrthogonalRegularizer(double factor = 0.01, const std::string& mode = "rows");
}  // namespace regularizers
}  // namespace tutti::keras
