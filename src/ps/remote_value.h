#pragma once
// What a scheduled function will have returned.

#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/tensor/nest.h"

namespace tutti::ps {

/// Shared by who scheduled the function and who runs it. Any thread.
class ValueToCome {
 public:
  /// `what` names it in messages: the function.
  explicit ValueToCome(std::string what) : what_(std::move(what)) {}

  /// Blocks until the function has run, and says every five seconds for which it waits. Throws its
  /// error, or Cancelled when it was given up.
  Nest get() const;
  bool is_ready() const;
  /// Ready, and not with an error.
  bool has_value() const;
  const std::string& what() const { return what_; }

  // The first of these counts.
  void set(Nest value);
  void fail(ErrorCode code, const std::string& message);

 private:
  struct Failure {
    ErrorCode code;
    std::string message;
  };
  const std::string what_;
  mutable Mutex mutex_;
  mutable ConditionVariable ready_;
  std::optional<Nest> value_ TUTTI_GUARDED_BY(mutex_);
  std::optional<Failure> failure_ TUTTI_GUARDED_BY(mutex_);
};
using ValuePtr = std::shared_ptr<ValueToCome>;

}  // namespace tutti::ps
