#include "rpc/status.h"

namespace tutti::rpc {

ErrorCode code_of(const grpc::Status& status) {
  const auto code = status.error_code();
  if (code == grpc::StatusCode::OK || code == grpc::StatusCode::UNKNOWN)
    return ErrorCode::kInternal;
  return static_cast<ErrorCode>(code);
}

grpc::Status to_status(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code()), error.what()};
}

}  // namespace tutti::rpc
