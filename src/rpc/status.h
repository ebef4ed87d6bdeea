#pragma once
// gRPC's statuses and our errors; the codes are the same numbers.

#include <grpcpp/support/status.h>

#include "tutti/base/error.h"

namespace tutti::rpc {

/// The code of a status that is not OK; gRPC's UNKNOWN is kInternal.
ErrorCode code_of(const grpc::Status& status);

grpc::Status to_status(const Error& error);

}  // namespace tutti::rpc
