#include "rpc/credentials.h"

#include <grpcpp/security/auth_metadata_processor.h>

#include <fstream>
#include <iterator>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::rpc {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.empty())
    throw NotFound(cat("certificate file [", path, "]: not there or empty, expected PEM text"));
  return text;
}

/// gRPC asks it before each call, of whichever method.
class TokenCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenCheck(const std::string& path) : file_(path) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& shown, grpc::AuthContext*, OutputMetadata* consumed,
                       OutputMetadata*) override {
    const auto [first, last] = shown.equal_range(kTokenKey);
    if (first == last || std::next(first) != last) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              cat(first == last ? "no token" : "several tokens",
                  " in the call, expected one; name the cluster's token file by "
                  "TUTTI_TOKEN_FILE")};
    }
    const grpc::string_ref token = first->second;
    if (!file_.accepts(std::string_view(token.data(), token.size()))) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              "a token that is not this cluster's; compare the files that TUTTI_TOKEN_FILE names"};
    }
    consumed->emplace(kTokenKey, std::string(token.data(), token.size()));
    return grpc::Status::OK;
  }

 private:
  TokenFile file_;
};

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Security& security) {
  if (!security.has_tls()) return grpc::experimental::LocalCredentials(LOCAL_TCP);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = read_file(security.ca_file);
  options.pem_cert_chain = read_file(security.certificate_file);
  options.pem_private_key = read_secret_file(security.key_file);
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const Security& security) {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (security.has_tls()) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = read_file(security.ca_file);
    options.pem_key_cert_pairs.push_back(
        {read_secret_file(security.key_file), read_file(security.certificate_file)});
    credentials = grpc::SslServerCredentials(options);
  } else {
    credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  }
  if (!security.token_file.empty())
    credentials->SetAuthMetadataProcessor(std::make_shared<TokenCheck>(security.token_file));
  return credentials;
}

}  // namespace tutti::rpc
