#include "tutti/base/error.h"

namespace tutti {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCancelled:
      return "CANCELLED";
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case ErrorCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
    case ErrorCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case ErrorCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case ErrorCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case ErrorCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case ErrorCode::kAborted:
      return "ABORTED";
    case ErrorCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case ErrorCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case ErrorCode::kInternal:
      return "INTERNAL";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kDataLoss:
      return "DATA_LOSS";
    case ErrorCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(message), code_(code) {}

void throw_error(ErrorCode code, const std::string& message) {
  switch (code) {
    case ErrorCode::kCancelled:
      throw Cancelled(message);
    case ErrorCode::kInvalidArgument:
      throw InvalidArgument(message);
    case ErrorCode::kDeadlineExceeded:
      throw DeadlineExceeded(message);
    case ErrorCode::kNotFound:
      throw NotFound(message);
    case ErrorCode::kAlreadyExists:
      throw AlreadyExists(message);
    case ErrorCode::kPermissionDenied:
      throw PermissionDenied(message);
    case ErrorCode::kResourceExhausted:
      throw ResourceExhausted(message);
    case ErrorCode::kFailedPrecondition:
      throw FailedPrecondition(message);
    case ErrorCode::kAborted:
      throw Aborted(message);
    case ErrorCode::kOutOfRange:
      throw OutOfRange(message);
    case ErrorCode::kUnimplemented:
      throw Unimplemented(message);
    case ErrorCode::kUnavailable:
      throw Unavailable(message);
    case ErrorCode::kDataLoss:
      throw DataLoss(message);
    case ErrorCode::kUnauthenticated:
      throw Unauthenticated(message);
    case ErrorCode::kInternal:
      break;
  }
  throw Internal(message);
}

}  // namespace tutti
