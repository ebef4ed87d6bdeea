#pragma once
// Environments and services that tests put around a resolver.

#include <memory>
#include <string>
#include <utility>

#include "tutti/cluster/resolvers.h"

namespace tutti::distribute::cluster_resolver {

inline std::shared_ptr<EnvironmentVariables> variables(EnvironmentVariables values) {
  return std::make_shared<EnvironmentVariables>(std::move(values));
}

/// A resolver of this TF_CONFIG.
inline TFConfigClusterResolver of_tf_config(const std::string& text, bool strict = true) {
  return TFConfigClusterResolver({.strict = strict, .variables = variables({{"TF_CONFIG", text}})});
}

}  // namespace tutti::distribute::cluster_resolver
