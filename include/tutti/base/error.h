#pragma once
// Errors: exceptions with a code, one subclass a code. See docs/decisions/errors.md.

#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti {

/// The codes are gRPC's, number for number.
enum class ErrorCode {
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

/// The code's name as it is printed: "INVALID_ARGUMENT".
std::string_view to_string(ErrorCode code);

/// Base of every exception that Tutti throws. The message has the form
/// `operation [where]: found, expected; remedy`.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

namespace internal {
template <ErrorCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};
}  // namespace internal

// Your mistake, nothing happened.
using InvalidArgument = internal::ErrorOf<ErrorCode::kInvalidArgument>;
using FailedPrecondition = internal::ErrorOf<ErrorCode::kFailedPrecondition>;
using OutOfRange = internal::ErrorOf<ErrorCode::kOutOfRange>;
using Unimplemented = internal::ErrorOf<ErrorCode::kUnimplemented>;
using NotFound = internal::ErrorOf<ErrorCode::kNotFound>;
using AlreadyExists = internal::ErrorOf<ErrorCode::kAlreadyExists>;
using PermissionDenied = internal::ErrorOf<ErrorCode::kPermissionDenied>;
using Unauthenticated = internal::ErrorOf<ErrorCode::kUnauthenticated>;
using ResourceExhausted = internal::ErrorOf<ErrorCode::kResourceExhausted>;
// A peer: rebuild, resume.
using Unavailable = internal::ErrorOf<ErrorCode::kUnavailable>;
using DeadlineExceeded = internal::ErrorOf<ErrorCode::kDeadlineExceeded>;
using Aborted = internal::ErrorOf<ErrorCode::kAborted>;
using Cancelled = internal::ErrorOf<ErrorCode::kCancelled>;
// Damaged data, and our own bugs.
using DataLoss = internal::ErrorOf<ErrorCode::kDataLoss>;
using Internal = internal::ErrorOf<ErrorCode::kInternal>;

/// Throws the subclass that belongs to `code`.
[[noreturn]] void throw_error(ErrorCode code, const std::string& message);

}  // namespace tutti
