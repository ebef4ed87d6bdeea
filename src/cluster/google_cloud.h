#pragma once
// Google's metadata service and the APIs that it gives tokens for.

#include <string>

#include "cluster/http_client.h"
#include "cluster/variables.h"

namespace tutti::cluster {

/// Asks the metadata service for `path`, as "project/project-id"; at GCE_METADATA_HOST,
/// GCE_METADATA_IP or metadata.google.internal.
HttpRequest metadata_request(const Variables& variables, const std::string& path);

/// One Google API as one resolver sees it.
class GoogleCloud {
 public:
  /// `service` is the API's address, `given_service` the user's own in its stead, or "";
  /// `credentials` a token, or "default" for the metadata service's.
  GoogleCloud(std::string operation, Variables variables, std::string service,
              std::string given_service, std::string credentials);

  /// Text of the metadata service.
  std::string metadata(const std::string& path) const;
  /// `path` begins with "/".
  JsonDocument get(const std::string& path) const;
  JsonDocument post(const std::string& path, const std::string& body) const;
  /// Another address of the API from now on.
  void set_service(std::string service) { service_ = std::move(service); }
  const Variables& variables() const { return variables_; }

 private:
  HttpRequest request(const std::string& path) const;
  std::string token() const;

  std::string operation_;
  Variables variables_;
  std::string service_;
  bool is_own_service_;
  std::string credentials_;
};

}  // namespace tutti::cluster
