#pragma once
// A link over gRPC.

#include <memory>
#include <string>

#include "coordination/link.h"
#include "rpc/security.h"

namespace tutti::coordination {

/// Throws as rpc::Channel; connects when first used.
std::unique_ptr<Link> make_grpc_link(const std::string& address, const rpc::Security& security);

}  // namespace tutti::coordination
