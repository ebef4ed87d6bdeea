#pragma once
// How to reach a Kubernetes API server.

#include <string>

#include "cluster/http_client.h"
#include "cluster/variables.h"

namespace tutti::cluster {

struct KubernetesAccess {
  /// https://host:port, no slash at the end.
  std::string server;
  std::string token;
  TlsSettings tls;
};

/// From KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the files `token` and `ca.crt` of
/// `folder`. FailedPrecondition outside a pod.
KubernetesAccess access_within_cluster(const std::string& operation, const Variables& variables,
                                       const std::string& folder);

/// The current context of the files of KUBECONFIG (several with colons: what an earlier one says
/// wins), else of ~/.kube/config. Credentials are tokens, token files and client certificates;
/// Unimplemented for programs (`exec`) and for passwords. FailedPrecondition without a file,
/// InvalidArgument with the path in the file for what is wrong in it.
KubernetesAccess access_by_kube_config(const std::string& operation, const Variables& variables);

/// YAML without aliases as JSON: at most 1 MiB, 32 deep, the first document. Plain true, false and
/// null are those, every other scalar is a string. InvalidArgument with the line.
Json parse_yaml(const std::string& operation, const std::string& text);

}  // namespace tutti::cluster
