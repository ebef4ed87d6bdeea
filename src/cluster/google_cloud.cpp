#include "cluster/google_cloud.h"

#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

const char* const kDefaultCredentials = "default";

std::string without_slash(std::string address) {
  while (!address.empty() && address.back() == '/') address.pop_back();
  return address;
}

}  // namespace

HttpRequest metadata_request(const Variables& variables, const std::string& path) {
  std::string host = variables.text("GCE_METADATA_HOST");
  if (host.empty()) host = variables.text("GCE_METADATA_IP");
  if (host.empty()) host = "metadata.google.internal";
  HttpRequest request;
  request.url = cat("http://", host, "/computeMetadata/v1/", path);
  request.headers = {"Metadata-Flavor: Google"};
  request.most_bytes = std::size_t{1} << 20;
  return request;
}

GoogleCloud::GoogleCloud(std::string operation, Variables variables, std::string service,
                         std::string given_service, std::string credentials)
    : operation_(std::move(operation)),
      variables_(std::move(variables)),
      service_(without_slash(given_service.empty() ? std::move(service) : given_service)),
      is_own_service_(!given_service.empty()),
      credentials_(std::move(credentials)) {}

std::string GoogleCloud::metadata(const std::string& path) const {
  return fetch(operation_, metadata_request(variables_, path));
}

std::string GoogleCloud::token() const {
  if (credentials_ != kDefaultCredentials) return credentials_;
  if (is_own_service_) return "";
  const std::string answer = metadata("instance/service-accounts/default/token");
  const JsonDocument document(answer, cat(operation_, " metadata"),
                              {std::size_t{1} << 20, 8, ErrorCode::kUnavailable});
  return document.top().at("access_token").text();
}

HttpRequest GoogleCloud::request(const std::string& path) const {
  HttpRequest request;
  request.url = service_ + path;
  request.token = token();
  request.use_proxy = !is_own_service_;
  return request;
}

JsonDocument GoogleCloud::get(const std::string& path) const {
  return fetch_json(operation_, request(path));
}

JsonDocument GoogleCloud::post(const std::string& path, const std::string& body) const {
  HttpRequest posted = request(path);
  posted.method = "POST";
  posted.body = body;
  posted.headers = {"Content-Type: application/json"};
  return fetch_json(operation_, posted);
}

}  // namespace tutti::cluster
