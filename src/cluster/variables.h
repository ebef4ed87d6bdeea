#pragma once
// The environment that a resolver reads: the process's, or a map in its stead.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tutti/cluster/cluster_resolver.h"

namespace tutti::cluster {

class Variables {
 public:
  using Map = distribute::cluster_resolver::EnvironmentVariables;

  /// `operation` begins error messages; without `given` it is the process's environment.
  Variables(std::string operation, std::shared_ptr<Map> given)
      : operation_(std::move(operation)), given_(std::move(given)) {}

  /// Nothing when not set; may be "".
  std::optional<std::string> find(const std::string& name) const;
  /// "" when not set.
  std::string text(const std::string& name) const { return find(name).value_or(""); }
  bool has(const std::string& name) const { return find(name).has_value(); }
  /// FailedPrecondition when not set or empty; `outside` says what that means: "not inside a step
  /// of Slurm".
  std::string require(const std::string& name, const std::string& outside) const;
  /// Likewise; InvalidArgument for what is no whole number in [0, high].
  int64_t require_number(const std::string& name, const std::string& outside, int64_t high) const;
  /// Not while other threads read the process's environment.
  void set(const std::string& name, const std::string& value) const;

 private:
  std::string operation_;
  std::shared_ptr<Map> given_;
};

/// The GPUs that this process may use: the entries of CUDA_VISIBLE_DEVICES when it is set, else
/// what `nvidia-smi --list-gpus` lists within 30 seconds, 0 without that program.
/// FailedPrecondition when it fails.
int64_t count_gpus(const std::string& operation, const Variables& variables);
/// {{"GPU", count_gpus()}}, or nothing when there are none.
std::map<std::string, int64_t> visible_accelerators(const std::string& operation,
                                                    const Variables& variables);

}  // namespace tutti::cluster
