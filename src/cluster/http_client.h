#pragma once
// One request to a service, by libcurl: no redirects, always a deadline, never more than so much.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/checked_json.h"

namespace tutti::cluster {

/// PEM texts. Without `authority` the system's are trusted.
struct TlsSettings {
  std::string authority;
  std::string certificate;
  std::string key;
  bool verify = true;
};

struct HttpRequest {
  std::string url;
  std::string method = "GET";
  std::vector<std::string> headers = {};
  std::string body = "";
  /// Sent as a bearer token, over https or to this machine only.
  std::string token = "";
  TlsSettings tls = {};
  /// Of all attempts together.
  std::chrono::milliseconds deadline{10000};
  /// Again when there is nobody, when the answer breaks off, and for 429, 502, 503 and 504.
  int attempts = 3;
  std::size_t most_bytes = std::size_t{32} << 20;
  /// Through the proxy that the environment names.
  bool use_proxy = false;
};

/// The body of the answer, whose status is 200. Throws, beginning with `operation` and naming the
/// URL, but no token: DeadlineExceeded; Unavailable when there is no whole answer, for 429 and 5xx;
/// Unauthenticated for 401 and a certificate that is not trusted, PermissionDenied for 403,
/// NotFound for 404; ResourceExhausted for too much; InvalidArgument for a request that is none;
/// FailedPrecondition for another status.
std::string fetch(const std::string& operation, const HttpRequest& request);

/// The answer as JSON; Unavailable when it is none.
JsonDocument fetch_json(const std::string& operation, const HttpRequest& request);

/// For a part of a path or a query.
std::string percent_encoded(std::string_view text);

}  // namespace tutti::cluster
