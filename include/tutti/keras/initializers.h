#pragma once
// How weights start.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::keras {

/// A handle: draws from a generator of the library that set_seed seeds. Made from a name
/// ("glorot_uniform") or from initializers::….
class Initializer {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual Tensor operator()(const std::vector<int64_t>& shape) const = 0;
    virtual std::string class_name() const = 0;
    virtual std::string config() const = 0;
  };
  Initializer() = default;
  Initializer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// Throws InvalidArgument that lists the known names.
  Initializer(const std::string& name);  // NOLINT: `.kernel_initializer = "he_normal"`
  Initializer(const char* name) : Initializer(std::string(name)) {}  // NOLINT

  /// A float32 tensor of this shape. Fans as in Keras: the last two dimensions times the receptive
  /// field of those before.
  Tensor operator()(const std::vector<int64_t>& shape) const;
  bool defined() const { return impl_ != nullptr; }
  std::string class_name() const { return impl_->class_name(); }
  /// JSON object text; from_config makes the initializer again.
  std::string config() const { return impl_->config(); }
  static Initializer from_config(const std::string& class_name, const std::string& config);

 private:
  std::shared_ptr<const Impl> impl_;
};

/// With a `seed`, an initializer gives the same values each time it is asked for a shape, and draws
/// nothing from the library's stream; two weights that share it start equal.
namespace initializers {
using Seed = std::optional<int64_t>;
Initializer Zeros();
Initializer Ones();
Initializer Constant(double value = 0);
/// gain * the identity matrix; InvalidArgument for a shape that is no matrix.
Initializer Identity(double gain = 1);
Initializer RandomNormal(double mean = 0, double stddev = 0.05, Seed seed = {});
Initializer RandomUniform(double minval = -0.05, double maxval = 0.05, Seed seed = {});
/// Cut at two standard deviations.
Initializer TruncatedNormal(double mean = 0, double stddev = 0.05, Seed seed = {});
/// gain * a matrix with orthonormal rows or columns, whichever are fewer, of all dimensions but the
/// last by the last; InvalidArgument for fewer than two dimensions.
Initializer Orthogonal(double gain = 1, Seed seed = {});
/// `mode` fan_in, fan_out or fan_avg; `distribution` truncated_normal, untruncated_normal or
/// uniform.
Initializer VarianceScaling(double scale = 1, const std::string& mode = "fan_in",
                            const std::string& distribution = "truncated_normal", Seed seed = {});
Initializer GlorotUniform(Seed seed = {});
Initializer GlorotNormal(Seed seed = {});
Initializer HeUniform(Seed seed = {});
Initializer HeNormal(Seed seed = {});
Initializer LecunUniform(Seed seed = {});
Initializer LecunNormal(Seed seed = {});
}  // namespace initializers
}  // namespace tutti::keras
