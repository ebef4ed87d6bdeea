#include "tutti/keras/dtype_policy.h"

#include <vector>

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::keras {
namespace {

struct KnownPolicy {
  const char* name;
  at::ScalarType compute;
  at::ScalarType variable;
};
constexpr KnownPolicy kPolicies[] = {
    {"float32", at::kFloat, at::kFloat},      {"float64", at::kDouble, at::kDouble},
    {"float16", at::kHalf, at::kHalf},        {"bfloat16", at::kBFloat16, at::kBFloat16},
    {"mixed_float16", at::kHalf, at::kFloat}, {"mixed_bfloat16", at::kBFloat16, at::kFloat}};

struct Global {
  Mutex mutex;
  DTypePolicy policy TUTTI_GUARDED_BY(mutex);
};
Global& global() {
  static Global state;
  return state;
}

}  // namespace

DTypePolicy::DTypePolicy(const std::string& name) : name_(name) {
  std::vector<std::string> names;
  for (const KnownPolicy& known : kPolicies) {
    if (name == known.name) {
      compute_ = known.compute;
      variable_ = known.variable;
      return;
    }
    names.emplace_back(known.name);
  }
  throw InvalidArgument(cat("dtype policy: \"", name, "\", expected one of ", join(names, ", ")));
}

namespace mixed_precision {

void set_global_policy(const DTypePolicy& policy) {
  MutexLock lock(global().mutex);
  global().policy = policy;
}

DTypePolicy global_policy() {
  MutexLock lock(global().mutex);
  return global().policy;
}

}  // namespace mixed_precision
}  // namespace tutti::keras
