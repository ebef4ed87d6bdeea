#pragma once

#include "rpc/security.h"
#include "tutti/coordination/server.h"

namespace tutti::remote {

/// The config's files; those that it does not name are the environment's.
inline tutti::rpc::Security security_of(const distribute::ServerConfig& config) {
  tutti::rpc::Security security = tutti::rpc::Security::from_environment();
  const auto prefer = [](std::string& to, const std::string& from) {
    if (!from.empty()) to = from;
  };
  prefer(security.ca_file, config.ca_file);
  prefer(security.certificate_file, config.certificate_file);
  prefer(security.key_file, config.key_file);
  prefer(security.server_name, config.server_name);
  prefer(security.token_file, config.token_file);
  return security;
}

}  // namespace tutti::remote
