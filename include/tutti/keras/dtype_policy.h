#pragma once
// In which dtype layers compute, and in which they keep their weights: Keras' dtype policies.

#include <c10/core/ScalarType.h>

#include <string>

namespace tutti::keras {

/// "float32" (the default), "float64", "float16", "bfloat16", "mixed_float16" or "mixed_bfloat16":
/// the mixed ones compute in half precision on float32 weights. InvalidArgument lists them for
/// another name.
class DTypePolicy {
 public:
  DTypePolicy(const std::string& name = "float32");                  // NOLINT
  DTypePolicy(const char* name) : DTypePolicy(std::string(name)) {}  // NOLINT
  const std::string& name() const { return name_; }
  at::ScalarType compute_dtype() const { return compute_; }
  at::ScalarType variable_dtype() const { return variable_; }
  bool operator==(const DTypePolicy& other) const { return name_ == other.name_; }

 private:
  std::string name_;
  at::ScalarType compute_;
  at::ScalarType variable_;
};

namespace mixed_precision {
using Policy = DTypePolicy;
/// The policy of layers made from now on, on any thread, that name none of their own.
void set_global_policy(const DTypePolicy& policy);
DTypePolicy global_policy();
}  // namespace mixed_precision
}  // namespace tutti::keras
